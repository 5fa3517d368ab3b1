package lock_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	lockscript "github.com/luatomic/luatomic/gen/lock"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/internal/testkit/scriptcase"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// A permit guards other scripts like a lock does.
func TestSemaphorePermitGuards(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, l, name, c := newSemaphore(t, 2, nil)
	one, err := s.Try(ctx, 1)
	require.NoError(t, err)
	reader, err := l.RW(name).RTry(ctx)
	require.NoError(t, err)
	for _, lease := range []*lock.Lease{one, reader} {
		q, err := queue.New(lua.Guard(c, lease), name, nil)
		require.NoError(t, err)
		_, err = q.Push(ctx, queue.Job{})
		require.NoError(t, err)
		require.NoError(t, lease.Release(ctx))
		_, err = q.Push(ctx, queue.Job{})
		require.ErrorIs(t, err, lua.ErrFenced)
	}
}

// On a server that is over its memory limit no semaphore begins. A permit of one that is there is extended, given back,
// handed over and acquired.
func TestSemaphoreOverTheMemoryLimit(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := luatomictest.StartServer(t).Client()
	l := lab.Locker(t, c, &lock.Options{TTL: time.Minute, Note: "n"})
	s, rw, e := l.Semaphore("s", 2), l.RW("s"), l.Election("s")
	one, err := s.Try(ctx, 2)
	require.NoError(t, err)
	writer, err := rw.Try(ctx)
	require.NoError(t, err)
	leads, err := e.Campaign(ctx, "me")
	require.NoError(t, err)
	next := acquiring(ctx, s, 1)
	waitForPermits(t, s, 1)
	require.NoError(t, c.ConfigSet(ctx, "maxmemory", "1").Err())
	_, err = l.Semaphore("new", 1).Try(ctx, 1)
	require.ErrorContains(t, err, "OOM")
	require.NoError(t, one.Extend(ctx))
	require.NoError(t, one.Release(ctx))
	require.NoError(t, permit(t, next).Release(ctx))
	again, err := s.Try(ctx, 1)
	require.NoError(t, err)
	require.NoError(t, again.Release(ctx))
	require.NoError(t, s.Resize(ctx, 1))
	require.NoError(t, writer.Release(ctx))
	require.NoError(t, leads.Resign(ctx))
}

// A dead waiter costs no look at the holders: these may be many, and their notes long.
func TestDeadWaitersCostNoLookAtTheHolders(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), luatomictest.StartServer(t).Client()
	for name, run := range map[string]func(permits, waiting string){
		"release": func(permits, waiting string) {
			lab.Must(lockscript.SemRelease(ctx, c, lockscript.SemReleaseParams{Permits: permits, Queue: waiting,
				Channel: permits,
				Owner:   "p.me:2"}))
		},
		"resize": func(permits, waiting string) {
			lab.Must(lockscript.SemResize(ctx, c, lockscript.SemResizeParams{Permits: permits, Queue: waiting,
				Channel: permits, Size: 6}))
		},
		"acquire": func(permits, waiting string) {
			lab.Must(lockscript.SemAcquire(ctx, c, lockscript.SemAcquireParams{Permits: permits, Queue: waiting,
				Channel: permits,
				Owner:   "p.new:1", Limit: 6, TTL: time.Minute}))
		},
	} {
		var dead []string
		for i := range 90 {
			dead = append(dead, scriptcase.Standing(fmt.Sprintf("dead%d:5", i)))
		}
		require.NoError(t, scriptcase.SemOf(6, map[string]float64{"p.a:2": lab.Future, "p.me:2": lab.Future},
			dead...)(ctx, c, name))
		before := lab.Calls(t, c)["zrange"]
		run("sem:{"+name+"}", "semq:{"+name+"}")
		require.Zero(t, c.Exists(ctx, "semq:{"+name+"}").Val(), name)
		require.Less(t, lab.Calls(t, c)["zrange"]-before, 100, "%s: one for each of the waiters, and a few", name)
	}
}

// A process that died with many waiters delays none of the others, and no call takes the server for long: it passes
// over 1000 dead processes and 2000 entries at most, and notifies 1000 waiters at most that they ask for too much.
func TestManyDeadWaitersOfASemaphoreArePassedOverInOneCall(t *testing.T) {
	t.Parallel()
	entries := func(n int, token string) (all []string) {
		for i := range n {
			all = append(all, scriptcase.Standing(fmt.Sprintf(token, i)))
		}
		return all
	}
	for what, of := range map[string]struct {
		ahead []string
		left  int
	}{
		"one process":      {entries(1999, "dead.%d:1"), 0},
		"too many entries": {entries(2001, "dead.%d:1"), 2},
		"processes":        {entries(999, "dead%d.1:1"), 0},
		"too many of them": {entries(1001, "dead%d.1:1"), 2},
		"too heavy":        {entries(1001, "live.%d:9"), 2},
	} {
		t.Run(what, func(t *testing.T) {
			eachGrant(t, func(t *testing.T, call func(s rawSem, limit int64) error) {
				s := newRawSem(t, 2, nil, slices.Concat(of.ahead, standing("live.1:2"))...)
				require.NoError(t, lab.Subscribe(t.Context(), t, s.c, s.permits+":live"))
				require.NoError(t, call(s, 2))
				require.Equal(t, of.left, len(s.entries()))
				require.Equal(t, of.left == 0, s.score("live.1:2") > 0)
			})
		})
	}
}
