// Package script is the machine layer of compat/sidekiq: one typed function for each Lua file beside it.
package script

//go:generate go tool luagen -strict
