// Package ratelimit is an example: a rate limiter whose decision is one script.
package ratelimit

//go:generate go tool luagen
