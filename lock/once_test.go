package lock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/luatomictest"
)

// The processes of a cron job come one after another, each with the clock of its machine. With TryDo each finds the
// lock free again. A lease that is not released lets one of them through, and outlives its process.
func TestOneProcessDoesTheWorkOfAPeriod(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c, hour := luatomictest.Client(t), luatomictest.Namespace(t)+":2026-11-28T04"
	again, once := 0, 0
	for range 3 {
		l := lock.New(c, &lock.Options{TTL: time.Hour})
		require.NoError(t, l.TryDo(ctx, hour+":do", func(context.Context, *lock.Lease) error { again++; return nil }))
		if _, err := l.Try(ctx, hour); err == nil {
			once++
		} else {
			require.ErrorIs(t, err, lock.ErrHeld)
		}
		require.NoError(t, l.Close())
	}
	require.Equal(t, 3, again)
	require.Equal(t, 1, once)
	_, err := lab.Locker(t, c, nil).Try(ctx, hour+":next")
	require.NoError(t, err)
}
