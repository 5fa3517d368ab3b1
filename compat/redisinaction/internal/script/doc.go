// Package script is the machine layer of compat/redisinaction: one Lua file for each
// operation, and the typed function that luagen makes of it.
package script

//go:generate go tool luagen -strict
