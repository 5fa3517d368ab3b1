// Package inventory is an example: reservations of many articles, each made completely or not at all.
//
// A call whose reply is lost is sent again, and its first copy can arrive last, when the reservation has ended. So
// Settle leaves a mark that outlives any copy, and expires.
package inventory

//go:generate go tool luagen
