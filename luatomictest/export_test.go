package luatomictest

import (
	"net"
	"strconv"
	"testing"
)

// Remove ends the server before its test does.
func Remove(s *Server) { s.remove() }

// Reserve reports whether a server could take the address now.
func Reserve(addr string) error {
	_, text, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return err
	}
	reserved, err := reserve(port)
	if err != nil {
		return err
	}
	return reserved.Close()
}

// WatchedBy is a Sentinel of servers that run already.
func WatchedBy(t testing.TB, sentinel *Server, servers ...*Server) *Sentinel {
	return newSentinel(t, sentinel, servers...)
}
