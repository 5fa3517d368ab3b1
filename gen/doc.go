// Package gen is the machine layer: for each file in scripts one typed function,
// its batch form, and the digest that a server's SLOWLOG shows.
//
// luagen writes it from the headers of the scripts, after checking each header
// against its body. The root package builds on it and is what programs import;
// this one follows the scripts and carries no promise of compatibility.
package gen

//go:generate go tool luagen -strict -scripts ../scripts -out .
