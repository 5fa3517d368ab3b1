package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A command does not go on without the process that renews its lock.
func TestLockKilledEndsItsCommand(t *testing.T) {
	t.Parallel()
	e := shared(t)
	c := e.start("lock", "x", "--", "sh", "-c", `echo "child $$." >&2; exec sleep 1000`)
	c.shows("child ")
	require.NoError(t, c.cmd.Process.Kill())
	c.wait()
	goes(t, c.stderr.String(), "child ")
}
