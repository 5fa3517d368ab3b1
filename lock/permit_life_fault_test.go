package lock_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	lockscript "github.com/luatomic/luatomic/gen/lock"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lock"
)

// A waiter that acquires by an attempt of its own, as after a holder that died, has the lease of its options: the short
// one of a hand-over is for a waiter that has to confirm its grant.
func TestAWaiterThatFindsAPermitFreeHasItForTheWholeTTL(t *testing.T) {
	t.Parallel()
	type acquire = func(*lock.Locker, string) (*lock.Lease, error)
	for kind, acquire := range map[string]acquire{
		"lock": func(l *lock.Locker, name string) (*lock.Lease, error) { return l.Acquire(t.Context(), name) },
		"semaphore": func(l *lock.Locker, name string) (*lock.Lease, error) {
			return l.Semaphore(name, 1).Acquire(t.Context(), 1)
		},
		"writer": func(l *lock.Locker, name string) (*lock.Lease, error) { return l.RW(name).Acquire(t.Context()) },
	} {
		t.Run(kind, func(t *testing.T) {
			l, name, _ := lab.NewLocker(t, &lock.Options{TTL: time.Hour, Claim: time.Minute})
			dead := lab.Must(acquire(l.With(lock.Options{TTL: 200 * time.Millisecond}), name))
			next := lab.Must(acquire(l, name))
			require.Greater(t, next.Fence(), dead.Fence())
			require.Greater(t, time.Until(next.Deadline()), 50*time.Minute)
			require.NoError(t, next.Release(t.Context()))
		})
	}
}

// A permit that was handed over and is confirmed by another acquire has a lease of its own length from then on: the key
// of the semaphore lasts as long, and so does the note.
func TestConfirmedPermitKeepsItsSemaphore(t *testing.T) {
	t.Parallel()
	s := newRawSem(t, 1, nil)
	s.set("new.1:1", s.now+30000.5)
	s.set("used", 1e15+1)
	require.NoError(t, s.c.PExpire(t.Context(), s.permits, 70*time.Second).Err())
	r, err := s.acquire(lockscript.SemAcquireParams{Owner: "new.1:1", Limit: 1, TTL: time.Hour, Note: "worker"})
	require.NoError(t, err)
	require.True(t, r.Acquired)
	require.Equal(t, time.Hour, r.Remaining)
	require.Greater(t, s.stays(), time.Hour)
	require.Equal(t, s.score("new.1:1"), s.score("new.1:1\nworker"))
	require.Equal(t, 1, s.used())
}

// An owner that comes back after its own lease is counted once, however many other leases have ended since.
func TestAnOwnersOwnLapsedPermitIsCountedOnce(t *testing.T) {
	t.Parallel()
	leases := map[string]time.Duration{"me.1:2": -10 * time.Second}
	for i := range 150 { // the script looks at 100 of those that have ended, the latest first
		leases[fmt.Sprintf("dead.%d:1", i)] = -time.Second
	}
	for _, waiting := range [][]string{nil, standing("gone.1:1")} {
		s := newRawSem(t, 1000, leases, waiting...)
		before := s.used()
		r, err := s.acquire(lockscript.SemAcquireParams{Owner: "me.1:2", Limit: 1000, TTL: time.Minute})
		require.NoError(t, err)
		require.True(t, r.Acquired)
		require.Equal(t, before-100, s.used(), "its weight was counted and is; 100 others were buried")
		released := lab.Must(s.release(lockscript.SemReleaseParams{Owner: "me.1:2"}))
		require.Equal(t, lockscript.SemReleaseResultReleased, released)
		require.Zero(t, s.used())
	}
}

// The mark of a withdrawn acquire lasts for 10 s, also where the key of the semaphore would end before.
func TestWithdrawnPermitOutlivesItsSemaphore(t *testing.T) {
	t.Parallel()
	for owner, leases := range map[string]map[string]time.Duration{
		"never held":      {"other.1:1": time.Second},
		"its lease ended": {"other.1:1": time.Second, "late.1:1": -time.Second},
	} {
		t.Run(owner, func(t *testing.T) {
			s := newRawSem(t, 5, leases)
			require.NoError(t, s.c.PExpire(t.Context(), s.permits, 2*time.Second).Err())
			_, err := s.release(lockscript.SemReleaseParams{Owner: "late.1:1"})
			require.NoError(t, err)
			require.Greater(t, s.stays(), 7*time.Second)
			r, err := s.acquire(lockscript.SemAcquireParams{Owner: "late.1:1", Limit: 5, TTL: time.Minute})
			require.NoError(t, err)
			require.False(t, r.Acquired)
		})
	}
}

// The fence of a permit is greater than the one the caller knows, also where the semaphore is new and the clock was set
// back.
func TestFenceOfAPermitIsAboveTheFloor(t *testing.T) {
	t.Parallel()
	s := newRawSem(t, 1, nil)
	require.NoError(t, s.c.Del(t.Context(), s.permits).Err())
	r, err := s.acquire(lockscript.SemAcquireParams{Owner: "me.1:1", Limit: 1, TTL: time.Minute,
		Floor: aheadOfTheClock})
	require.NoError(t, err)
	require.Greater(t, r.Fence, aheadOfTheClock)
}
