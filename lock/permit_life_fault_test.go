package lock_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/lab"
)

// A permit that was handed over and is confirmed by another acquire has a lease of its own length from then on: the key
// of the semaphore lasts as long, and so does the note.
func TestConfirmedPermitKeepsItsSemaphore(t *testing.T) {
	t.Parallel()
	s := newRawSem(t, 1, nil)
	s.set("new.1:1", s.now+30000.5)
	s.set("used", 1e15+1)
	require.NoError(t, s.c.PExpire(t.Context(), s.permits, 70*time.Second).Err())
	r, err := s.acquire(gen.SemAcquireParams{Owner: "new.1:1", Limit: 1, TTL: time.Hour, Note: "worker"})
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
		r, err := s.acquire(gen.SemAcquireParams{Owner: "me.1:2", Limit: 1000, TTL: time.Minute})
		require.NoError(t, err)
		require.True(t, r.Acquired)
		require.Equal(t, before-100, s.used(), "its weight was counted and is; 100 others were buried")
		released := lab.Must(s.release(gen.SemReleaseParams{Owner: "me.1:2"}))
		require.Equal(t, gen.SemReleaseResultReleased, released)
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
			_, err := s.release(gen.SemReleaseParams{Owner: "late.1:1"})
			require.NoError(t, err)
			require.Greater(t, s.stays(), 7*time.Second)
			r, err := s.acquire(gen.SemAcquireParams{Owner: "late.1:1", Limit: 5, TTL: time.Minute})
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
	r, err := s.acquire(gen.SemAcquireParams{Owner: "me.1:1", Limit: 1, TTL: time.Minute, Floor: aheadOfTheClock})
	require.NoError(t, err)
	require.Greater(t, r.Fence, aheadOfTheClock)
}
