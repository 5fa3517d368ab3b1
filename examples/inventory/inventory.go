// Package inventory is an example: reservations over many articles, each whole or not at all.
//
// A call whose reply is lost is sent again, and the first copy of it can arrive last, when the reservation has ended.
// So Settle leaves a mark that outlives any copy, and ends by itself.
package inventory

//go:generate go tool luagen
