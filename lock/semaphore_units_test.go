package lock_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/internal/scriptcase"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// The kin of the lock on a cluster, where each is told in its own slot.
func TestKinOfTheLockOnACluster(t *testing.T) {
	t.Parallel()
	ctx, cluster := t.Context(), luatomictest.StartCluster(t)
	mine := lab.Locker(t, cluster.Client(), &lock.Options{TTL: time.Minute})
	other := lab.Locker(t, cluster.Client(), &lock.Options{TTL: time.Minute})
	for i := range 6 {
		name := fmt.Sprint("name", i)
		s := mine.Semaphore(name, 2)
		held, err := s.Try(ctx, 2)
		require.NoError(t, err)
		got := acquiring(ctx, other.Semaphore(name, 2), 1)
		waitForPermits(t, s, 1)
		require.NoError(t, held.Release(ctx))
		require.NoError(t, permit(t, got).Release(ctx))

		writer, err := mine.RW(name).Try(ctx)
		require.NoError(t, err)
		reading := inBackground(ctx, other.RW(name).RAcquire)
		waitForRW(t, mine.RW(name), 1)
		require.NoError(t, writer.Release(ctx))
		require.NoError(t, permit(t, reading).Release(ctx))

		// A word can get lost while the nodes of a new cluster link up; the lease covers it.
		brief := lock.Options{TTL: 3 * time.Second}
		seen := observing(t, other.With(brief).Election(name))
		require.Zero(t, sees(t, seen, ""))
		leads, err := mine.With(brief).Election(name).Campaign(ctx, "me")
		require.NoError(t, err)
		leads.Keep(ctx) // until it was seen
		sees(t, seen, "me")
		require.NoError(t, leads.Resign(ctx))
		require.Zero(t, sees(t, seen, ""))
	}
}

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

// On a server that is over its memory limit nothing new is acquired, and what is held
// is extended, given back and handed over.
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
	require.NoError(t, s.Resize(ctx, 1))
	require.NoError(t, writer.Release(ctx))
	require.NoError(t, leads.Resign(ctx))
}

// Both change the string of the one who holds the lock now, and of no other.
func TestLockNoteAndFenceOnlyForTheHolder(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c, k := luatomictest.Client(t), luatomictest.Namespace(t)
	lock := "lock:{" + k + "}"
	for _, tc := range []struct {
		text, owner string
		noted       bool
		fenced      bool
	}{
		{scriptcase.HeldByMe, "me", true, true},
		{scriptcase.HeldByOther, "me", false, false},
		{scriptcase.Record(7, 0, "me", int64(lab.Past)*1000, 1000), "me", false, false},
		{scriptcase.Record(7, 0, "-", 0, 0), "me", false, false},
		{"", "me", false, false},
	} {
		set := func() {
			require.NoError(t, c.Del(ctx, lock).Err())
			if tc.text != "" {
				require.NoError(t, c.Set(ctx, lock, tc.text, time.Hour).Err())
			}
		}
		set()
		held, err := gen.LockNote(ctx, c, gen.LockNoteParams{Lock: lock, Owner: tc.owner, Note: "new"})
		require.NoError(t, err)
		require.Equal(t, tc.noted, held, tc)
		want := tc.text
		if tc.noted {
			want = strings.TrimSuffix(want, "note") + "new"
		}
		require.Equal(t, want, c.Get(ctx, lock).Val())
		set()
		held, err = gen.LockFence(ctx, c, gen.LockFenceParams{Lock: lock, Owner: tc.owner, Least: 9})
		require.NoError(t, err)
		require.Equal(t, tc.fenced, held, tc)
		want = tc.text
		if tc.fenced {
			want = "9" + want[1:]
			again, err := gen.LockFence(ctx, c, gen.LockFenceParams{Lock: lock, Owner: tc.owner, Least: 8})
			require.NoError(t, err)
			require.True(t, again)
		}
		require.Equal(t, want, c.Get(ctx, lock).Val(), "never lowered, and nobody else's")
	}
}
