package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/luatomictest"
)

// A reader that hangs is found by its token, and its lock taken away: its command is killed,
// the other reader's goes on.
func TestLocksOfReaders(t *testing.T) {
	t.Parallel()
	e := shared(t)
	c := e.start("lock", "x", "--read", "--note", "the victim", "--ttl", "1h", "--", "sh", "-c",
		`echo "child $$." >&2; sleep 1000`)
	c.shows("child ")
	other, err := e.locker().RW("x").RTry(t.Context())
	require.NoError(t, err)
	require.Empty(t, e.run("locks", "ls").exits(exitDone).stdout.String(), "plain ones only")
	o := e.run("locks", "ls", "--kind", "rw").exits(exitDone).object()
	holds(t, o, map[string]any{"name": "x", "kind": "rw", "writing": false, "readers": 2, "waiting": 0, "waiters": "[]",
		"key": e.prefix + "rw:{x}"})
	require.NotContains(t, o, "limit")
	shown := e.run("locks", "show", "x", "--kind", "rw").exits(exitDone).object()
	require.Equal(t, o["holders"].([]any)[0].(map[string]any)["token"],
		shown["holders"].([]any)[0].(map[string]any)["token"])
	victim := ""
	require.NotContains(t, o["holders"].([]any)[0], "weight", "a reader has none")
	for _, h := range o["holders"].([]any) {
		if h := h.(map[string]any); h["note"] == "the victim" {
			victim = h["token"].(string)
			require.Equal(t, "reader", h["as"])
			require.InDelta(t, time.Hour.Milliseconds(), h["remaining_ms"], 60_000)
		}
	}
	r := e.run("locks", "release", "x", "--kind", "rw", "--token", victim).exits(exitDone)
	holds(t, r.object(), map[string]any{"name": "x", "released": true, "token": victim})
	c.exits(exitFailed)
	require.Regexp(t, takenAway, c.stderr.String())
	require.NoError(t, other.Extend(t.Context()), "the other was spared")
	r = e.run("locks", "release", "x", "--kind", "rw", "--token", "nobody.1:1").exits(exitFailed)
	require.Contains(t, r.stderr.String(), "luatomic locks show --kind rw lists the holders")
}

// A writer has the weight of all readers there may be, which is a number of the scripts and none for people.
func TestLocksOfAWriter(t *testing.T) {
	t.Parallel()
	e := shared(t)
	lease, err := e.locker().RW("x").Try(t.Context())
	require.NoError(t, err)
	o := e.run("locks", "show", "x", "--kind", "rw").exits(exitDone)
	require.NotContains(t, o.stdout.String(), "weight")
	holds(t, o.object()["holders"].([]any)[0].(map[string]any), map[string]any{"token": lease.Token(), "as": "writer"})
}

func TestLocksOfSemaphores(t *testing.T) {
	t.Parallel()
	e := shared(t)
	holds(t, e.run("locks", "show", "x", "--kind", "semaphore").exits(exitDone).object(), map[string]any{
		"name": "x", "kind": "semaphore", "limit": 0, "used": 0, "fence": nil, "holders": "[]", "waiting": 0,
	})
	sem := e.locker().Semaphore("x", 3)
	lease, err := sem.Try(t.Context(), 2)
	require.NoError(t, err)
	waits := make(chan error, 1)
	go func() {
		lease, err := sem.Acquire(t.Context(), 2)
		if err == nil {
			err = lease.Release(t.Context())
		}
		waits <- err
	}()
	luatomictest.Eventually(t, within, "one waits", func() bool {
		info, err := sem.Info(t.Context())
		require.NoError(t, err)
		return info.Waiting == 1
	})
	o := e.run("locks", "ls", "x*", "--kind", "semaphore").exits(exitDone).object()
	holds(t, o, map[string]any{"name": "x", "limit": 3, "used": 2, "waiting": 1, "waiters": "[the test]"})
	require.EqualValues(t, lease.Fence(), o["fence"])
	require.Empty(t, e.run("locks", "ls", "y*", "--kind", "semaphore").exits(exitDone).stdout.String())
	e.run("locks", "release", "x", "--kind", "semaphore", "--token", lease.Token()).exits(exitDone)
	require.NoError(t, <-waits, "it has the permit that was taken away")
	require.ErrorIs(t, lease.Extend(t.Context()), lock.ErrLost)
}
