// Package rpcscript is the machine layer of calls between processes: for each file in
// scripts/rpc one typed function, its batch form, the text that Redis runs, and
// the digest that a server's SLOWLOG shows.
//
// luagen writes it from the headers of the scripts, after checking each header
// against its body. Package rpc builds on it and is what programs import; this
// one follows the scripts and carries no promise of compatibility.
package rpcscript

//go:generate go tool luagen -strict -domain rpc -scripts ../../scripts/rpc -out .
