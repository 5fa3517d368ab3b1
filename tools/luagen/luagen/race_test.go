//go:build race

package luagen_test

const raceEnabled = true
