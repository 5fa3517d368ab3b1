package lock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/lua"
)

// With changes what it names and keeps the rest.
func TestOptionsOfACallKeepTheOthers(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	seen := make(chan lock.Event, 8)
	l, name, c := lab.NewLocker(t, &lock.Options{
		Prefix: "p:", TTL: time.Minute, Note: "mine", LockDelay: time.Second, Observe: func(e lock.Event) { seen <- e },
	})
	lease, err := l.With(lock.Options{Prefix: "q:", TTL: time.Hour}).Try(ctx, name)
	require.NoError(t, err)
	require.Equal(t, "p:lock:{"+name+"}", lease.Key())
	require.Greater(t, time.Until(lease.Deadline()), 50*time.Minute)
	require.Regexp(t, ` 1000 2000 mine$`, c.Get(ctx, lease.Key()).Val())
	require.Equal(t, lock.EventAcquired, (<-seen).Kind)
	require.NoError(t, lease.Release(ctx))

	lease, err = l.With(lock.Options{Note: "other", LockDelay: 2 * time.Second, Afterlife: 5 * time.Second}).Try(ctx,
		name)
	require.NoError(t, err)
	require.Less(t, time.Until(lease.Deadline()), time.Minute)
	require.Regexp(t, ` 2000 7000 other$`, c.Get(ctx, lease.Key()).Val())
	require.NoError(t, lease.Release(ctx))

	_, err = l.With(lock.Options{TTL: -time.Second}).Try(ctx, name)
	require.ErrorIs(t, err, lua.ErrOutOfRange)
	_, err = l.With(lock.Options{Replicas: 1}).Semaphore(name, 1).Try(ctx, 1)
	require.ErrorIs(t, err, lua.ErrOutOfRange)
	tagged, err := l.With(lock.Options{Tag: "t"}).Try(ctx, name)
	require.NoError(t, err)
	require.Equal(t, "p:lock:{t}:"+name, tagged.Key())
	require.NoError(t, tagged.Release(ctx))
}

func TestWithReturnsTheValueOfTheFunction(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	l, name, _ := lab.NewLocker(t, nil)
	fence, err := lock.DoValue(ctx, l, name, func(ctx context.Context) (int64, error) {
		return lock.LeaseFrom(ctx).Fence(), nil
	})
	require.NoError(t, err)
	require.Positive(t, fence)
	boom := errors.New("boom")
	partial, err := lock.DoValue(ctx, l, name, func(context.Context) (string, error) { return "half", boom })
	require.ErrorIs(t, err, boom)
	require.Equal(t, "half", partial)
	_, err = lock.DoValue(ctx, l, "{"+name, func(context.Context) (string, error) { return "", nil })
	require.ErrorIs(t, err, lua.ErrBadName)
}

func TestLeaseFromIsTheInnermost(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	require.Nil(t, lock.LeaseFrom(ctx))
	l, name, _ := lab.NewLocker(t, nil)
	require.NoError(t, l.Do(ctx, name, func(outer context.Context, first *lock.Lease) error {
		derived, cancel := context.WithTimeout(outer, time.Minute)
		defer cancel()
		require.Same(t, first, lock.LeaseFrom(derived))
		return l.TryDo(derived, name+"2", func(inner context.Context, second *lock.Lease) error {
			require.Same(t, second, lock.LeaseFrom(inner))
			require.Same(t, first, lock.LeaseFrom(outer))
			return nil
		})
	}))
	lease, err := l.Try(ctx, name)
	require.NoError(t, err)
	require.Same(t, lease, lock.LeaseFrom(lease.Keep(ctx)))
	require.NoError(t, lease.Release(ctx))
}
