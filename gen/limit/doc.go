// Package limitscript is the machine layer of rate limits: for each file in
// scripts/limit one typed function, its batch form, the text that Redis runs, and
// the digest that a server's SLOWLOG shows.
//
// luagen writes it from the headers of the scripts, after checking each header
// against its body. Package limit builds on it and is what programs import; this
// one follows the scripts and carries no promise of compatibility.
package limitscript

//go:generate go tool luagen -strict -domain limit -scripts ../../scripts/limit -out .
