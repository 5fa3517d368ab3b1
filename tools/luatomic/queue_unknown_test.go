package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A queue that no process has used is named by a verb that needs what is in it; pause and limit, which can come before
// the first push, say so and go on.
func TestQueueVerbsOfAnUnknownQueue(t *testing.T) {
	t.Parallel()
	e := shared(t)
	for _, args := range [][]string{
		{"queue", "audit", "pots"}, {"queue", "audit", "pots", "--repair"}, {"queue", "trim", "pots", "--keep", "1"},
		{"queue", "resume", "pots"},
	} {
		c := e.run(args...).exits(exitFailed)
		require.Equal(t, "luatomic: there is no queue \"pots\"; luatomic queues ls lists them\n", c.stderr.String(), args)
		require.Empty(t, c.stdout.String())
	}
	for _, args := range [][]string{{"queue", "pause", "early"}, {"queue", "limit", "tight", "10"}} {
		c := e.run(args...).exits(exitDone)
		require.Contains(t, c.stderr.String(), `no process has used queue "`+args[2]+`" so far`)
		require.Empty(t, e.run(args...).exits(exitDone).stderr.String(), "by its setting it is known")
	}
	require.Empty(t, e.run("queue", "resume", "early").exits(exitDone).stderr.String())
	e.known("posts")
	for _, args := range [][]string{
		{"queue", "audit", "posts"}, {"queue", "trim", "posts", "--keep", "1"}, {"queue", "resume", "posts"},
		{"queue", "pause", "posts"},
	} {
		require.Empty(t, e.run(args...).exits(exitDone).stderr.String(), args)
	}
}
