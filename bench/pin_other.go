//go:build !linux

package main

// pinning does nothing where this program cannot choose the core of a process.
type pinning struct{ done bool }

func newPinning(string) *pinning { return &pinning{} }

func (*pinning) apart(f func()) { f() }
