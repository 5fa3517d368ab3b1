// Package lockscript is the machine layer of locks and semaphores: for each file in
// scripts/lock one typed function, its batch form, the text that Redis runs, and
// the digest that a server's SLOWLOG shows.
//
// luagen writes it from the headers of the scripts, after checking each header
// against its body. Package lock builds on it and is what programs import; this
// one follows the scripts and carries no promise of compatibility.
package lockscript

//go:generate go tool luagen -strict -domain lock -scripts ../../scripts/lock -out .
