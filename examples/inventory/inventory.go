// Package inventory is an example: reservations over many articles, each whole or not at all.
package inventory

//go:generate go tool luagen
