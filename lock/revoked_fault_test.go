package lock_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	lockscript "github.com/luatomic/luatomic/gen/lock"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/luatomictest"
)

// takings are the ways to acquire a lease of each kind, and to take it away.
var takings = map[string]struct {
	try  func(ctx context.Context, l *lock.Locker, name string) (*lock.Lease, error)
	take func(ctx context.Context, l *lock.Locker, name, token string) error
}{
	"lock, forced": {tryLock, func(ctx context.Context, l *lock.Locker, name, _ string) error {
		_, err := l.ForceRelease(ctx, name, 0)
		return err
	}},
	"lock, stolen": {tryLock, func(ctx context.Context, l *lock.Locker, name, _ string) error {
		_, err := l.Steal(ctx, name)
		return err
	}},
	"semaphore": {func(ctx context.Context, l *lock.Locker, name string) (*lock.Lease, error) {
		return l.Semaphore(name, 2).Try(ctx, 2)
	}, func(ctx context.Context, l *lock.Locker, name, token string) error {
		_, err := l.Semaphore(name, 2).Revoke(ctx, token)
		return err
	}},
	"read-write lock": {func(ctx context.Context, l *lock.Locker, name string) (*lock.Lease, error) {
		return l.RW(name).Try(ctx)
	}, func(ctx context.Context, l *lock.Locker, name, token string) error {
		_, err := l.RW(name).Revoke(ctx, token)
		return err
	}},
}

func tryLock(ctx context.Context, l *lock.Locker, name string) (*lock.Lease, error) {
	return l.Try(ctx, name)
}

// atFirstSubscription runs f when the client behind the proxy subscribes, before the server receives that.
func atFirstSubscription(proxy *luatomictest.LossyProxy, f func() error) (ran <-chan error) {
	var once sync.Once
	result := make(chan error, 1)
	subscribe := luatomictest.Command("SUBSCRIBE")
	proxy.DropRequest(1, func(args []string) bool {
		if subscribe(args) {
			once.Do(func() { result <- f() })
		}
		return false
	})
	return result
}

// A kept lease is taken away while its process subscribes for the first time. The notification has no receiver; the
// confirmation renews the lease, long before its next renewal is due.
func TestRevocationBeforeTheFirstSubscriptionIsNoticed(t *testing.T) {
	t.Parallel()
	lab.Unmarked(t)
	for kind, of := range takings {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			c, proxy := proxied(t, luatomictest.URL(t))
			l, name := lab.Locker(t, c, &lock.Options{TTL: time.Hour}), luatomictest.Namespace(t)
			other := lab.Locker(t, luatomictest.Client(t), nil)
			lease, err := of.try(ctx, l, name)
			require.NoError(t, err)
			taken := atFirstSubscription(proxy, func() error {
				return of.take(context.WithoutCancel(ctx), other, name, lease.Token())
			})
			kept := lease.Keep(ctx)
			require.NoError(t, lab.Soon(t, 20*time.Second, "taken away", taken))
			lab.Soon(t, 20*time.Second, "noticed", kept.Done())
			require.ErrorIs(t, context.Cause(kept), lock.ErrRevoked)
		})
	}
	t.Run("Do", func(t *testing.T) {
		t.Parallel()
		ctx := t.Context()
		c, proxy := proxied(t, luatomictest.URL(t))
		l, name := lab.Locker(t, c, &lock.Options{TTL: time.Hour}), luatomictest.Namespace(t)
		other := lab.Locker(t, luatomictest.Client(t), nil)
		taken := atFirstSubscription(proxy, func() error {
			_, err := other.Steal(context.WithoutCancel(ctx), name)
			return err
		})
		err := l.Do(ctx, name, func(ctx context.Context, _ *lock.Lease) error {
			require.NoError(t, lab.Soon(t, 20*time.Second, "taken away", taken))
			lab.Soon(t, 20*time.Second, "noticed", ctx.Done())
			return nil
		})
		require.ErrorIs(t, err, lock.ErrRevoked)
	})
}

// A lease that was taken away is not extended and not released: its holder learns why.
func TestCallsOfARevokedLeaseSaySo(t *testing.T) {
	t.Parallel()
	for kind, of := range takings {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			l, name, _ := lab.NewLocker(t, &lock.Options{TTL: time.Minute})
			lease, err := of.try(ctx, l, name)
			require.NoError(t, err)
			require.NoError(t, of.take(ctx, l, name, lease.Token()))
			require.ErrorIs(t, lease.Release(ctx), lock.ErrRevoked)
			name += "2"
			lease, err = of.try(ctx, l, name)
			require.NoError(t, err)
			require.NoError(t, of.take(ctx, l, name, lease.Token()))
			require.ErrorIs(t, lease.Extend(ctx), lock.ErrRevoked)
			require.ErrorIs(t, lease.Err(), lock.ErrRevoked)
		})
	}
}

// A permit that is revoked before its waiter has confirmed it is lost to the waiter at once, as a lock is.
func TestAWaiterWhoseGrantIsRevokedEnds(t *testing.T) {
	t.Parallel()
	ctx, server := t.Context(), luatomictest.StartServer(t)
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": server.Addr()}})
	defer ring.Close()
	l := lab.Locker(t, ring, &lock.Options{TTL: time.Minute, Claim: time.Minute})
	s := l.Semaphore("x", 1)
	held, err := s.Try(ctx, 1)
	require.NoError(t, err)
	confirms, revoked, attempts := make(chan struct{}), make(chan struct{}), atomic.Int64{}
	require.NoError(t, ring.ForEachShard(ctx, func(_ context.Context, c *redis.Client) error {
		c.AddHook(&lab.Around{Sha: lab.Digest(&lockscript.SemAcquireScript), Do: func(run func() error) error {
			if attempts.Add(1) == 3 { // one looks, one joins the queue
				close(confirms)
				<-revoked
			}
			return run()
		}})
		return nil
	}))
	got := make(chan error, 1)
	go func() {
		_, err := s.Acquire(ctx, 1)
		got <- err
	}()
	luatomictest.Eventually(t, 20*time.Second, "it waits", func() bool { return lab.Must(s.Info(ctx)).Waiting == 1 })
	require.NoError(t, held.Release(ctx))
	lab.Soon(t, 20*time.Second, "the confirmation", confirms)
	did, err := s.Revoke(ctx, lab.Must(s.Info(ctx)).Holders[0].Token)
	close(revoked)
	require.NoError(t, err)
	require.True(t, did)
	require.ErrorIs(t, lab.Soon(t, 20*time.Second, "the end of Acquire", got), lock.ErrLost)
	require.EqualValues(t, 3, attempts.Load())
}
