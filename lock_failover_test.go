package luatomic_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// pair is a server and its replica, which can change places while the connections
// that there are stay where they are: behind the name of a managed service, say.
type pair struct {
	master, replica *luatomictest.Server
	address         atomic.Pointer[string] // where new connections go
}

func startPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{master: luatomictest.StartServer(t)}
	host, port, err := net.SplitHostPort(p.master.Addr())
	require.NoError(t, err)
	p.replica = luatomictest.StartServer(t, "--replicaof", host+" "+port, "--repl-diskless-sync-delay", "0")
	address := p.master.Addr()
	p.address.Store(&address)
	p.inSync(t, p.replica)
	return p
}

func (p *pair) inSync(t *testing.T, replica *luatomictest.Server) {
	t.Helper()
	c := replica.Client()
	luatomictest.Eventually(t, 30*time.Second, "the replica is in sync", func() bool {
		info, err := c.Info(t.Context(), "replication").Result()
		return err == nil && strings.Contains(info, "master_link_status:up")
	})
}

// turn makes the replica the master, and the master its replica.
func (p *pair) turn(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	replicated(t, p.master.Client())
	require.NoError(t, p.replica.Client().ReplicaOf(ctx, "NO", "ONE").Err())
	host, port, err := net.SplitHostPort(p.replica.Addr())
	require.NoError(t, err)
	require.NoError(t, p.master.Client().ReplicaOf(ctx, host, port).Err())
	p.master, p.replica = p.replica, p.master
	address := p.master.Addr()
	p.address.Store(&address)
	p.inSync(t, p.replica)
}

// client goes to the master of the moment with each new connection.
func (p *pair) client(t *testing.T) *redis.Client { return p.clientOf(t, 10) }

func (p *pair) clientOf(t *testing.T, connections int) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: "pair", PoolSize: connections, Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", *p.address.Load())
	}})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// The subscribers of a replica hear what is published on its master, where they do not
// count. So whoever listens there is passed over, and must not take the message of a
// grant for one: the next in line has the lock.
func TestWhoListensAtAReplicaIsNotGrantedTheLock(t *testing.T) {
	t.Parallel()
	for name, acquire := range map[string]func(l *luatomic.Locker) (try, wait func(context.Context) (*luatomic.Lease, error)){
		"lock": func(l *luatomic.Locker) (try, wait func(context.Context) (*luatomic.Lease, error)) {
			return func(ctx context.Context) (*luatomic.Lease, error) { return l.Try(ctx, "x") },
				func(ctx context.Context) (*luatomic.Lease, error) { return l.Acquire(ctx, "x") }
		},
		"semaphore": func(l *luatomic.Locker) (try, wait func(context.Context) (*luatomic.Lease, error)) {
			s := l.Semaphore("x", 1)
			return func(ctx context.Context) (*luatomic.Lease, error) { return s.Try(ctx, 1) },
				func(ctx context.Context) (*luatomic.Lease, error) { return s.Acquire(ctx, 1) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			p := startPair(t)
			opts := &luatomic.LockerOptions{TTL: 8 * time.Second} // the two change places meanwhile
			holder := locker(t, p.client(t), opts)
			try, _ := acquire(holder)
			held, err := try(ctx)
			require.NoError(t, err)
			waiter := locker(t, p.client(t), opts)
			_, wait := acquire(waiter)
			got := make(chan acquired, 1)
			go func() {
				lease, err := wait(ctx)
				got <- acquired{lease, err, 0}
			}()
			luatomictest.Eventually(t, 20*time.Second, "one waits", func() bool {
				n, err := p.master.Client().PubSubNumPat(ctx).Result()
				subscribed := p.master.Client().PubSubChannels(ctx, "*").Val()
				return err == nil && n == 0 && len(subscribed) > 0 && waits(ctx, p.master.Client())
			})
			p.turn(t)

			other, _ := acquire(locker(t, p.client(t), opts))
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
				require.ErrorIs(t, err, luatomic.ErrHeld)
			}
			w := soon(t, 60*time.Second, "it comes to the waiter in the end", got)
			require.NoError(t, w.err)
			require.NoError(t, w.lease.Release(ctx))
		})
	}
}

// waits reports whether a queue has somebody.
func waits(ctx context.Context, c *redis.Client) bool {
	for _, key := range []string{"lockq:{x}", "semq:{x}"} {
		if c.ZCard(ctx, key).Val() > 0 {
			return true
		}
	}
	return false
}

// A pipeline that meets a server which has become a replica does not come back to it
// for ever: neither one that loads a script nor a batch.
func TestCallsAndBatchesLeaveAServerThatHasBecomeAReplica(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	p := startPair(t)
	l := locker(t, p.client(t), &luatomic.LockerOptions{TTL: time.Minute})
	leases := make([]*luatomic.Lease, 5)
	var wg sync.WaitGroup
	for i := range leases { // some connections at once
		wg.Go(func() { leases[i], _ = l.Try(ctx, fmt.Sprint("x", i)) })
	}
	wg.Wait()
	require.NotContains(t, leases, (*luatomic.Lease)(nil))
	p.turn(t)
	require.NoError(t, leases[0].Extend(ctx), "a batch of one, its script not loaded")
	require.NoError(t, leases[1].Release(ctx), "a call, its script not loaded")
	one := p.clientOf(t, 1)
	for range 3 {
		p.turn(t)
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
