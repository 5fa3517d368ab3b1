//go:build !linux

package main

// pinning does nothing where this program cannot choose the core of a process.
type pinning struct{}

func newPinning(string) *pinning { return &pinning{} }

func (*pinning) apart(f func()) bool {
	f()
	return false
}
