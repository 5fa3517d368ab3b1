package lock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	lockscript "github.com/luatomic/luatomic/gen/lock"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// Row 7. The context ends between request and reply: one detached call, and nothing
// of the acquire is left, whether it got the lock or a place in the queue.
func TestCancelInFlightLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"free", "held", "look"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			c, proxy := proxied(t, luatomictest.URL(t))
			l, name := lab.Locker(t, c, nil), luatomictest.Namespace(t)
			direct := lab.Locker(t, luatomictest.Client(t), &lock.Options{TTL: time.Minute})
			holder, err := direct.Try(t.Context(), name)
			require.NoError(t, err)
			warm := lab.AcquireLater(t.Context(), l, name)
			lab.WaitFor(t, direct, name, 1)
			require.NoError(t, holder.Release(t.Context()))
			require.NoError(t, lab.Soon(t, 20*time.Second, "warm", warm).Lease.Release(t.Context()))
			if how != "free" {
				_, err = direct.Try(t.Context(), name)
				require.NoError(t, err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			sent := lab.Sent(&lockscript.AcquireScript)
			require.NoError(t, lua.Preload(ctx, luatomictest.Client(t), &lockscript.AcquireScript,
				&lockscript.LeaveScript))
			left := lab.Sent(&lockscript.LeaveScript)
			// The lease that was handed over is extended at once, perhaps only now. That is no part of an acquire.
			executed := func() int { return proxy.Executed(sent) + proxy.Executed(left) }
			before := executed()
			if how == "look" {
				got := lab.AcquireLater(ctx, l, name)
				lab.WaitFor(t, direct, name, 1)
				before++
				luatomictest.Eventually(t, 20*time.Second, "it has the answer", func() bool {
					return executed() == before
				})
				proxy.Drop(1, func(args []string) bool { return sent(args) && cancelled(cancel) })
				proxy.CutAll() // so that it makes another attempt
				err = lab.Soon(t, 20*time.Second, "the end", got).Err
			} else {
				proxy.Drop(1, func(args []string) bool { return sent(args) && cancelled(cancel) })
				_, err = l.Acquire(ctx, name)
			}
			require.ErrorIs(t, err, context.Canceled)
			// The call that gives back goes on when the caller has left.
			luatomictest.Eventually(t, 20*time.Second, "one to acquire, one to give back", func() bool {
				return executed()-before >= 2
			})
			require.Equal(t, 2, executed()-before)
			info, err := direct.Info(t.Context(), name)
			require.NoError(t, err)
			require.Equal(t, how != "free", info.Held)
			require.Zero(t, info.Waiting)
		})
	}
}

func cancelled(cancel func()) bool {
	cancel()
	return true
}

// Row 21. Options have no state: a Locker takes a copy, and a second use is like the
// first.
func TestLockerOptionsAreReused(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	queued := make(chan struct{}, 3)
	opts := lock.Options{TTL: time.Minute, Poll: time.Millisecond, Observe: func(e lock.Event) {
		if e.Kind == lock.EventQueued {
			queued <- struct{}{}
		}
	}}
	first, second := lab.Locker(t, c, &opts), lab.Locker(t, c, &opts)
	opts.TTL = -1
	lease, err := first.Try(t.Context(), name)
	require.NoError(t, err)
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		got := lab.AcquireLater(ctx, second, name)
		lab.Soon(t, 20*time.Second, "it waits", queued)
		cancel()
		require.ErrorIs(t, lab.Soon(t, 20*time.Second, "the end", got).Err, lock.ErrHeld)
	}
	require.NoError(t, lease.Release(t.Context()))
	lease, err = second.Acquire(t.Context(), name)
	require.NoError(t, err)
	require.NoError(t, lease.Release(t.Context()))
}
