package lock_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	lockscript "github.com/luatomic/luatomic/gen/lock"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lock"
)

// The end of a permit that is not confirmed has a half behind it. A waiter for that permit is notified of when to look
// in whole milliseconds, as it reads no others.
func TestANoticeOfAPermitThatIsNotConfirmedIsInWholeMilliseconds(t *testing.T) {
	t.Parallel()
	eachGrant(t, func(t *testing.T, call func(s rawSem, limit int64) error) {
		s := newRawSem(t, 4, map[string]time.Duration{"h.1:3": time.Hour}, standing("x.1:1", "a.1:3", "b.1:1")...)
		s.set("h.1:3", s.now+3_600_000.5)
		said := s.said(func() error { return call(s, 4) }, "x", "a", "b")
		require.Equal(t, []string{"x g x.1:1", "a n a.1:3", "b n b.1:1"}, heads(said))
		for _, notice := range said[1:] {
			wait, err := strconv.Atoi(strings.Fields(notice)[3])
			require.NoError(t, err, notice)
			require.LessOrEqual(t, wait, 3_600_001)
		}
	})
}

// A waiter that was handed a permit and has stopped delays the next one by its claim, not until the lease of the holder
// before it would have ended.
func TestAStoppedWaiterOfASemaphoreCostsItsClaim(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	l, name, c := lab.NewLocker(t, &lock.Options{TTL: time.Hour})
	s := l.Semaphore(name, 1)
	holder, err := s.Try(ctx, 1)
	require.NoError(t, err)
	inbox := c.Subscribe(ctx, "lock:c:"+name)
	defer inbox.Close()
	_, err = inbox.Receive(ctx)
	require.NoError(t, err)
	stopped := name + ".1:1"
	joined, err := lockscript.SemAcquire(ctx, c, lockscript.SemAcquireParams{
		Permits: "sem:{" + name + "}", Queue: "semq:{" + name + "}", Owner: stopped, Limit: 1, TTL: time.Hour,
		Entry: stopped + " 300\n", Channel: "lock:c:",
	})
	require.NoError(t, err)
	require.Equal(t, lockscript.SemAcquirePlaceJoined, joined.Place)
	next := acquiring(ctx, s, 1)
	waitForPermits(t, s, 2)
	require.NoError(t, holder.Release(ctx))
	got := lab.Soon(t, 20*time.Second, "the permit", next)
	require.NoError(t, got.Err)
	require.NoError(t, got.Lease.Release(ctx))
}

// A permit that was taken away leaves its note until its lease would have ended. It is not that of a holder.
func TestAHeldErrorDoesNotNameAHolderWhosePermitWasRevoked(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	l, name, c := lab.NewLocker(t, nil)
	permit := func(note string, ttl time.Duration) *lock.Lease {
		lease, err := l.With(lock.Options{TTL: ttl, Note: note}).Semaphore(name, 3).Try(ctx, 1)
		require.NoError(t, err)
		return lease
	}
	gone := permit("gone", time.Minute)
	permit("stays", time.Hour)
	permit("ends later", 2*time.Hour)
	revoked, err := lab.Locker(t, c, nil).Semaphore(name, 3).Revoke(ctx, gone.Token())
	require.NoError(t, err)
	require.True(t, revoked)
	_, err = l.Semaphore(name, 3).Try(ctx, 3)
	var held *lock.HeldError
	require.ErrorAs(t, err, &held)
	require.Equal(t, "stays", held.Holder, "the first of those that hold a permit")
}
