package lock_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/lock/quorum"
	"github.com/luatomic/luatomic/lua"
)

// Each call on a nil client says so, and none asks again or panics in a goroutine that the caller cannot see.
func TestANilClientIsAnErrorOfEachCall(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for name, client := range map[string]lua.Client{"nil": nil, "a nil Client": (*redis.Client)(nil)} {
		l := lock.New(client, nil)
		said := func(err error) { require.ErrorContains(t, err, "the client is nil", name) }
		_, err := l.Try(ctx, "l")
		said(err)
		_, err = l.Acquire(ctx, "l")
		said(err)
		_, err = l.With(lock.Options{TTL: time.Second}).Info(ctx, "l")
		said(err)
		_, err = l.AcquireAll(ctx, "l", "m")
		said(err)
		_, err = l.Steal(ctx, "l")
		said(err)
		for _, err := range l.List(ctx) {
			said(err)
		}
		for _, err := range l.Election("e").Observe(ctx) {
			said(err)
		}
		_, err = l.Semaphore("s", 2).Acquire(ctx, 1)
		said(err)
		_, err = l.RW("rw").RAcquire(ctx)
		said(err)
		require.NoError(t, l.Close())
		q := quorum.New([]redis.UniversalClient{client}, nil)
		_, err = q.Acquire(ctx, "l")
		require.ErrorIs(t, err, lua.ErrOutOfRange, name)
		require.ErrorContains(t, err, "clients: number 0 is nil", name)
	}
}
