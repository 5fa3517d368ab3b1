// Package queuescript is the machine layer of jobs in queues: for each file in
// scripts/queue one typed function, its batch form, the text that Redis runs, and
// the digest that a server's SLOWLOG shows.
//
// luagen writes it from the headers of the scripts, after checking each header
// against its body. Package queue builds on it and is what programs import; this
// one follows the scripts and carries no promise of compatibility.
package queuescript

//go:generate go tool luagen -strict -domain queue -scripts ../../scripts/queue -out .
