package lock_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/luatomictest"
)

// The related primitives on a cluster, where each is notified in its own slot.
func TestPermitsAndElectionsOnACluster(t *testing.T) {
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

		// A message can be lost while the nodes of a new cluster link up; the lease covers it.
		brief := lock.Options{TTL: 8 * time.Second}
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
