package lock_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/luatomictest"
)

// A waiter whose subscription was lost joins the queue all the same. An attempt that has no place there overtakes no
// waiter, so it would starve.
func TestAWaiterWhoseSubscribeIsLostJoinsTheQueue(t *testing.T) {
	t.Parallel()
	type acquire = func(context.Context, *lock.Locker, string) (*lock.Lease, error)
	for kind, acquire := range map[string]acquire{
		"lock": func(ctx context.Context, l *lock.Locker, name string) (*lock.Lease, error) {
			return l.Acquire(ctx, name)
		},
		"semaphore": func(ctx context.Context, l *lock.Locker, name string) (*lock.Lease, error) {
			return l.Semaphore(name, 1).Acquire(ctx, 1)
		},
		"read-write lock": func(ctx context.Context, l *lock.Locker, name string) (*lock.Lease, error) {
			return l.RW(name).Acquire(ctx)
		},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			name, queued := luatomictest.Namespace(t), make(chan lock.Event, 1)
			c, proxy := proxied(t, luatomictest.URL(t))
			l := lab.Locker(t, c, &lock.Options{TTL: time.Minute, Observe: func(e lock.Event) {
				if e.Kind == lock.EventQueued {
					queued <- e
				}
			}})
			held, err := acquire(t.Context(), lab.Locker(t, luatomictest.Client(t), nil), name)
			require.NoError(t, err)
			kept := held.Keep(t.Context())
			proxy.DropRequest(1, luatomictest.Command("SUBSCRIBE"))
			got := make(chan lab.Acquired, 1)
			go func() {
				lease, err := acquire(t.Context(), l, name)
				got <- lab.Acquired{Lease: lease, Err: err}
			}()
			require.Equal(t, 1, lab.Soon(t, 20*time.Second, "a place in the queue", queued).Waiting)
			require.Equal(t, 1, proxy.Stats().Refused)
			require.NoError(t, kept.Err())
			require.NoError(t, held.Release(t.Context()))
			next := lab.Soon(t, 20*time.Second, "the lock", got)
			require.NoError(t, next.Err)
			require.NoError(t, next.Lease.Release(t.Context()))
		})
	}
}

// A waiter that polls because its user may not subscribe asks again: the user may have been given the right.
func TestAWaiterThatPollsJoinsTheQueueWhenItMaySubscribe(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	rights := func(subscribe string) {
		t.Helper()
		args := []any{"ACL", "SETUSER", "late", "on", ">pw", "~*", "&*", "+@all", subscribe}
		require.NoError(t, server.Client().Do(t.Context(), args...).Err())
	}
	rights("-subscribe")
	c := server.Client(func(o *redis.Options) { o.Username, o.Password = "late", "pw" })
	l := lab.Locker(t, c, &lock.Options{TTL: time.Minute})
	held, err := l.Try(t.Context(), "x")
	require.NoError(t, err)
	got := lab.AcquireLater(t.Context(), l, "x")
	luatomictest.Eventually(t, 20*time.Second, "it polls", func() bool {
		return lab.CommandCalls(t, server.Client())["evalsha"] > 5
	})
	require.Zero(t, lab.Must(l.Info(t.Context(), "x")).Waiting)
	rights("+subscribe")
	lab.WaitFor(t, l, "x", 1)
	require.NoError(t, held.Release(t.Context()))
	next := lab.Soon(t, 20*time.Second, "the lock", got)
	require.NoError(t, next.Err)
	require.NoError(t, next.Lease.Release(t.Context()))
}

// The connection of a waiter breaks, and its user may not subscribe any more: the waiter polls, until the user has the
// right again. That needs no new connection.
func TestAWaiterThatMayNotSubscribeAnewPolls(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]bool{"for good": false, "for a while": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, server := t.Context(), luatomictest.StartServer(t)
			admin := server.Client()
			rights := func(subscribe string) {
				t.Helper()
				args := []any{"ACL", "SETUSER", "late", "on", ">pw", "~*", "&*", "+@all", subscribe}
				require.NoError(t, admin.Do(ctx, args...).Err())
			}
			rights("+subscribe")
			c := server.Client(func(o *redis.Options) { o.Username, o.Password = "late", "pw" })
			direct := lab.Locker(t, admin, &lock.Options{TTL: time.Minute})
			held, err := direct.Try(ctx, "x")
			require.NoError(t, err)
			got := lab.AcquireLater(ctx, lab.Locker(t, c, nil), "x")
			lab.WaitFor(t, direct, "x", 1)
			rights("-subscribe")
			require.NoError(t, admin.Do(ctx, "CLIENT", "KILL", "TYPE", "pubsub").Err())
			luatomictest.Eventually(t, 20*time.Second, "it is refused", func() bool {
				return len(admin.Do(ctx, "ACL", "LOG").Val().([]any)) > 0
			})
			if again {
				rights("+subscribe")
				luatomictest.Eventually(t, 20*time.Second, "it is subscribed", func() bool {
					return len(admin.PubSubChannels(ctx, "*").Val()) > 0
				})
			}
			require.NoError(t, held.Release(ctx))
			// half of the time between two attempts, less than the lease
			next := lab.Soon(t, 10*time.Second, "the lock", got)
			require.NoError(t, next.Err)
			require.NoError(t, next.Lease.Release(ctx))
		})
	}
}

// An observer that may not subscribe sees a change soon, however long the leases are.
func TestElectionObserverPollsWhereItMayNotSubscribe(t *testing.T) {
	lab.Long(t)
	t.Parallel()
	ctx, server := t.Context(), luatomictest.StartServer(t)
	rights := []any{"ACL", "SETUSER", "late", "on", ">pw", "~*", "&*", "+@all", "-subscribe"}
	require.NoError(t, server.Client().Do(ctx, rights...).Err())
	c := server.Client(func(o *redis.Options) { o.Username, o.Password = "late", "pw" })
	hour := &lock.Options{TTL: time.Hour}
	seen := observing(t, lab.Locker(t, c, hour).Election("x"))
	require.Zero(t, sees(t, seen, ""))
	leads, err := lab.Locker(t, server.Client(), hour).Election("x").Campaign(ctx, "me")
	require.NoError(t, err)
	sees(t, seen, "me")
	require.NoError(t, leads.Resign(ctx))
	require.Zero(t, sees(t, seen, ""))
}
