package lock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/lab"
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
			sent := luatomictest.Command("EVALSHA", gen.LockAcquireScript.SHA)
			before := proxy.Executed(luatomictest.Command("EVALSHA"))
			if how == "look" {
				got := lab.AcquireLater(ctx, l, name)
				lab.WaitFor(t, direct, name, 1)
				before++
				luatomictest.Eventually(t, 20*time.Second, "it has the answer", func() bool {
					return proxy.Executed(luatomictest.Command("EVALSHA")) == before
				})
				proxy.Drop(1, func(args []string) bool { return sent(args) && cancelled(cancel) })
				proxy.CutAll() // so that it looks again
				err = lab.Soon(t, 20*time.Second, "the end", got).Err
			} else {
				proxy.Drop(1, func(args []string) bool { return sent(args) && cancelled(cancel) })
				_, err = l.Acquire(ctx, name)
			}
			require.ErrorIs(t, err, context.Canceled)
			require.Equal(t, 2, proxy.Executed(luatomictest.Command("EVALSHA"))-before, "one to acquire, one to give back")
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

// Row 26. Several locks: all or none, whatever is lost or cancelled.
func TestAcquireAllLeavesNothingHalfHeld(t *testing.T) {
	t.Parallel()
	url := luatomictest.URL(t)
	for _, tagged := range []bool{true, false} {
		t.Run(fmt.Sprint("tagged ", tagged), func(t *testing.T) {
			t.Parallel()
			c, proxy := proxied(t, url)
			space := luatomictest.Namespace(t)
			names := []string{space + "c", space + "a", space + "b"}
			opts := lock.Options{TTL: time.Minute}
			if tagged {
				opts.Tag = space
			}
			l := lab.Locker(t, c, &opts)
			direct := lab.Locker(t, luatomictest.Client(t), &opts)
			holding := func() (held []string) {
				for info, err := range direct.List(t.Context()) {
					require.NoError(t, err)
					if info.Held && strings.HasPrefix(info.Name, space) {
						held = append(held, info.Name)
					}
				}
				slices.Sort(held)
				return held
			}
			warm, err := l.AcquireAll(t.Context(), names...)
			require.NoError(t, err)
			require.Len(t, holding(), 3)
			require.NoError(t, warm.Release(t.Context()))
			require.Empty(t, holding())

			for nth := range 3 {
				ctx, cancel := context.WithCancel(t.Context())
				seen := 0
				proxy.Drop(1, func(args []string) bool {
					if !strings.EqualFold(args[0], "EVALSHA") {
						return false
					}
					if seen++; seen <= nth && !tagged {
						return false
					}
					return cancelled(cancel)
				})
				_, err = l.AcquireAll(ctx, names...)
				cancel()
				require.ErrorIs(t, err, context.Canceled)
				require.Empty(t, holding(), "cancelled at the %d.", nth+1)
			}

			last, err := direct.Try(t.Context(), names[0])
			require.NoError(t, err)
			short, cancel := context.WithTimeout(t.Context(), 3*time.Second) // it has an answer by then
			defer cancel()
			_, err = l.AcquireAll(short, names...)
			require.True(t, errors.Is(err, lock.ErrHeld) && errors.Is(err, context.DeadlineExceeded), err)
			require.Equal(t, []string{names[0]}, holding(), "it holds nothing while it waits")
			require.NoError(t, last.Release(t.Context()))
		})
	}
}

// Nothing was sent, so nothing is given back.
func TestAcquireOnAnEndedContextSendsNothing(t *testing.T) {
	t.Parallel()
	c, proxy := proxied(t, luatomictest.URL(t))
	l, name := lab.Locker(t, c, nil), luatomictest.Namespace(t)
	require.NoError(t, c.Ping(t.Context()).Err())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := l.Try(ctx, name)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, lua.ErrNotExecuted)
	require.Zero(t, proxy.Executed(luatomictest.Command("EVALSHA")))
}
