package main

import (
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A signal that arrives after the lock and before its child is known reaches the child as what it is.
func TestSignalBeforeTheChildIsPassedOn(t *testing.T) {
	t.Parallel()
	s := watchSignals(func() {})
	defer s.close()
	s.hold()
	other := syscall.Signal(1000) // as one of job control, which without a child would stop this process alone
	require.True(t, s.taken(other))
	s.got <- syscall.SIGHUP
	<-s.stop.Done()
	var passed []os.Signal
	kept := s.forwardTo(func(sig os.Signal) { passed = append(passed, sig) })
	require.Equal(t, []os.Signal{syscall.SIGHUP, other}, passed)
	s.interrupt()
	require.Len(t, passed, 2)
	require.True(t, s.taken(os.Interrupt))
	require.Equal(t, []os.Signal{syscall.SIGHUP, other, os.Interrupt}, passed)
	kept()
	require.False(t, s.taken(os.Interrupt), "the child has ended, and its group may be that of others")
	require.Len(t, passed, 3)
}
