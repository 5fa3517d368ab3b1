package lock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	lockscript "github.com/luatomic/luatomic/gen/lock"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// The subscribers of a replica receive what is published on its master, where they do not
// count. So a waiter subscribed there is skipped, and must not take the message of a
// grant for one: the next in line has the lock.
func TestWhoListensAtAReplicaIsNotGrantedTheLock(t *testing.T) {
	t.Parallel()
	for name, acquire := range map[string]func(l *lock.Locker) (try, wait func(context.Context) (*lock.Lease, error)){
		"lock": func(l *lock.Locker) (try, wait func(context.Context) (*lock.Lease, error)) {
			return func(ctx context.Context) (*lock.Lease, error) { return l.Try(ctx, "x") },
				func(ctx context.Context) (*lock.Lease, error) { return l.Acquire(ctx, "x") }
		},
		"semaphore": func(l *lock.Locker) (try, wait func(context.Context) (*lock.Lease, error)) {
			s := l.Semaphore("x", 1)
			return func(ctx context.Context) (*lock.Lease, error) { return s.Try(ctx, 1) },
				func(ctx context.Context) (*lock.Lease, error) { return s.Acquire(ctx, 1) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			p := lab.StartPair(t)
			opts := &lock.Options{TTL: 8 * time.Second} // the two change places meanwhile
			holder := lab.Locker(t, p.Client(t), opts)
			try, _ := acquire(holder)
			held, err := try(ctx)
			require.NoError(t, err)
			waiter := lab.Locker(t, p.Client(t), opts)
			_, wait := acquire(waiter)
			got := make(chan lab.Acquired, 1)
			go func() {
				lease, err := wait(ctx)
				got <- lab.Acquired{Lease: lease, Err: err, Id: 0}
			}()
			luatomictest.Eventually(t, 20*time.Second, "one waits", func() bool {
				n, err := p.Master.Client().PubSubNumPat(ctx).Result()
				subscribed := p.Master.Client().PubSubChannels(ctx, "*").Val()
				return err == nil && n == 0 && len(subscribed) > 0 && waits(ctx, p.Master.Client())
			})
			p.Turn(t)

			other, _ := acquire(lab.Locker(t, p.Client(t), opts))
			require.NoError(t, held.Release(ctx))
			lease, err := other(ctx)
			if err == nil {
				select {
				case w := <-got:
					t.Fatalf("two hold it: fences %d and %v", lease.Fence(), w)
				case <-time.After(500 * time.Millisecond): // the message would be here long since
				}
				require.NoError(t, lease.Release(ctx))
			} else {
				require.ErrorIs(t, err, lock.ErrHeld)
			}
			w := lab.Soon(t, 60*time.Second, "it comes to the waiter in the end", got)
			require.NoError(t, w.Err)
			require.NoError(t, w.Lease.Release(ctx))
		})
	}
}

// waits reports whether a queue has an entry.
func waits(ctx context.Context, c *redis.Client) bool {
	return c.Exists(ctx, "lockq:{x}", "semq:{x}").Val() > 0
}

// A pipeline that meets a server which has become a replica does not come back to it
// for ever: neither one that loads a script nor a batch.
func TestCallsAndBatchesLeaveAServerThatHasBecomeAReplica(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	p := lab.StartPair(t)
	l := lab.Locker(t, p.Client(t), &lock.Options{TTL: time.Minute})
	leases := make([]*lock.Lease, 5)
	var wg sync.WaitGroup
	for i := range leases { // some connections at once
		wg.Go(func() { leases[i], _ = l.Try(ctx, fmt.Sprint("x", i)) })
	}
	wg.Wait()
	require.NotContains(t, leases, (*lock.Lease)(nil))
	p.Turn(t)
	require.NoError(t, leases[0].Extend(ctx), "a batch of one, its script not loaded")
	require.NoError(t, leases[1].Release(ctx), "a call, its script not loaded")
	one := p.ClientOf(t, 1)
	for range 3 {
		p.Turn(t)
		b, count := lua.NewBatch(one), guardedCount()
		var counted []*lua.Future[int64]
		for range 5 {
			call := lua.NewCall(count, 1, 0)
			call.Key("counter", "count")
			call.EndKeys()
			counted = append(counted, lua.Queue(b, call, func(r *lua.Reply) int64 { return r.Int("n") }))
		}
		require.NoError(t, b.Exec(ctx))
		first, err := counted[0].Get()
		require.NoError(t, err)
		for i, n := range counted[1:] {
			got, err := n.Get()
			require.NoError(t, err)
			require.Equal(t, first+int64(i)+1, got, "each ran once, in their order")
		}
	}
}

// Row 14. The lock is released exactly between the failed attempt and the
// subscription, and between that and the place in the queue.
func TestNoWakeUpIsMissedBeforeTheSubscription(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"SUBSCRIBE", "EVALSHA"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			c, proxy := proxied(t, luatomictest.URL(t))
			l, name := lab.Locker(t, c, nil), luatomictest.Namespace(t)
			direct := lab.Locker(t, luatomictest.Client(t), &lock.Options{TTL: time.Minute})
			holder, err := direct.Try(ctx, name)
			require.NoError(t, err)
			match := luatomictest.Command("SUBSCRIBE")
			if at == "EVALSHA" {
				match = lab.Sent(&lockscript.AcquireScript)
			}
			var once sync.Once
			var released error
			proxy.DropRequest(1, func(args []string) bool {
				if match(args) {
					once.Do(func() { released = holder.Release(context.WithoutCancel(ctx)) })
				}
				return false
			})
			// half of the time between two attempts
			next := lab.Soon(t, 15*time.Second, "the lock", lab.AcquireLater(ctx, l, name))
			require.NoError(t, next.Err)
			require.NoError(t, released)
			require.Greater(t, next.Lease.Fence(), holder.Fence())
			require.NoError(t, next.Lease.Release(ctx))
		})
	}
}

// Row 14. The connection that listens is cut while the lock is handed over: the
// waiter owns it, or its place again, within one subscription.
func TestNoWakeUpIsMissedWhenTheConnectionBreaks(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c, proxy := proxied(t, luatomictest.URL(t))
	l, name := lab.Locker(t, c, nil), luatomictest.Namespace(t)
	direct := lab.Locker(t, luatomictest.Client(t), &lock.Options{TTL: time.Minute})
	worst := time.Duration(0)
	for round := range 20 {
		holder, err := direct.Acquire(ctx, name)
		require.NoError(t, err)
		got := lab.AcquireLater(ctx, l, name)
		lab.WaitFor(t, direct, name, 1)
		var cut sync.WaitGroup
		start := time.Now()
		if round%2 == 0 {
			proxy.CutAll()
		} else {
			cut.Go(proxy.CutAll)
		}
		require.NoError(t, holder.Release(ctx))
		cut.Wait()
		next := lab.Soon(t, 15*time.Second, "the lock", got)
		require.NoError(t, next.Err)
		worst = max(worst, time.Since(start))
		require.NoError(t, next.Lease.Release(ctx))
	}
	t.Logf("at most %v", worst)
}

// A connection that says nothing, and is not closed, is found out.
func TestSilentConnectionIsFoundOut(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c, proxy := proxied(t, luatomictest.URL(t))
	l, name := lab.Locker(t, c, nil), luatomictest.Namespace(t)
	direct := lab.Locker(t, luatomictest.Client(t), &lock.Options{TTL: time.Minute})
	holder, err := direct.Try(ctx, name)
	require.NoError(t, err)
	got := lab.AcquireLater(ctx, l, name)
	lab.WaitFor(t, direct, name, 1)
	proxy.Blackhole(true)
	require.NoError(t, holder.Release(ctx))
	proxy.Blackhole(false)
	next := lab.Soon(t, 20*time.Second, "the lock", got)
	require.NoError(t, next.Err)
	require.NoError(t, next.Lease.Release(ctx))
}

// Row 22. The server is paused for a moment, and the lock is free: it is acquired,
// and not waited for.
func TestPausedServerIsWaitedFor(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	c := server.Client()
	l := lab.Locker(t, server.Client(), &lock.Options{TTL: time.Minute})
	for range 3 {
		require.NoError(t, c.Do(t.Context(), "CLIENT", "PAUSE", "50", "ALL").Err())
		next := lab.Soon(t, 20*time.Second, "the lock", lab.AcquireLater(t.Context(), l, "x"))
		require.NoError(t, next.Err)
		require.NoError(t, next.Lease.Release(t.Context()))
	}
}

// A waiter outlasts an outage that its deadline outlasts. Without a deadline it ends with the reason, and hangs at no
// server that never comes back.
func TestAWaiterOutlastsAnOutageUntilItsDeadline(t *testing.T) {
	lab.Long(t)
	t.Parallel()
	server := luatomictest.StartServer(t)
	c := server.Client()
	l := lab.Locker(t, server.Client(), &lock.Options{TTL: 2 * time.Second})
	other := lab.Locker(t, server.Client(), nil)
	_, err := l.Try(t.Context(), "x") // nobody renews it
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	bounded, endless := lab.AcquireLater(ctx, l, "x"), lab.AcquireLater(t.Context(), other, "x")
	luatomictest.Eventually(t, 20*time.Second, "both wait", func() bool {
		return c.LLen(t.Context(), "lockq:{x}").Val() == 2
	})
	require.NoError(t, c.ConfigSet(t.Context(), "min-replicas-to-write", "1").Err())
	ended := lab.Soon(t, time.Minute, "the end of the waiter without a deadline", endless)
	require.ErrorIs(t, ended.Err, lua.ErrNotExecuted)
	require.ErrorContains(t, ended.Err, "NOREPLICAS")
	require.NoError(t, c.ConfigSet(t.Context(), "min-replicas-to-write", "0").Err())
	require.NoError(t, lab.Soon(t, time.Minute, "the lock", bounded).Err)
}
