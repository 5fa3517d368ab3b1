// Package script has the scripts of the ActionHero dialect, each beside the Go that luagen
// makes of it.
package script

//go:generate go tool luagen -strict
