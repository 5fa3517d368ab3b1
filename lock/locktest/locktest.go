// Package locktest is a Locker for tests of code that takes locks: in memory, with methods that do to its leases what
// other processes and outages do.
package locktest

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/internal/launch"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/luatomictest"
)

// patience bounds each exchange with the imitation.
const patience = 10 * time.Second

// Locks is a Locker for tests, with methods that do what other processes and outages do to its leases. It needs no
// server: it runs the real scripts on its own imitation of Redis, in memory. Pass the Locker in it to the code under
// test, as a *lock.Locker or as an interface that the code declares. Hold, Steal and Lose take the options of New:
// code that names its locks with a Tag of its own, by Locker.With, needs that Tag there.
type Locks struct {
	*lock.Locker

	t      testing.TB
	own    *redis.Client // of the Locker, through the proxy
	other  *lock.Locker  // another process
	client *redis.Client
	proxy  *luatomictest.LossyProxy
}

// New returns a Locker in memory that is closed when the test ends; nil options mean the defaults. On a 32-bit
// system the test fails, as with [luatomictest.Embedded].
func New(t testing.TB, opts *lock.Options) *Locks {
	t.Helper()
	return newLocks(t, opts)
}

func newLocks(t testing.TB, opts *lock.Options, dial ...func(*redis.Options)) *Locks {
	t.Helper()
	server, err := launch.StartEmbedded()
	if err != nil {
		t.Fatalf("locktest: %v", err)
	}
	t.Cleanup(server.Close)
	var own lock.Options
	if opts != nil {
		own = *opts
	}
	l := &Locks{t: t, client: newClient(t, server.URL(), nil), proxy: luatomictest.NewLossyProxy(t, server.URL())}
	onePool := func(o *redis.Options) { o.PipelinePoolSize = -1 } // for dropCut
	l.own = newClient(t, l.proxy.URL(), append(dial, onePool))
	l.Locker = lock.New(l.own, &own)
	own.Note, own.Observe = "another process", nil
	l.other = lock.New(l.client, &own)
	t.Cleanup(func() { _, _ = l.Locker.Close(), l.other.Close() })
	return l
}

// Hold acquires the lock, which must be free, for another process. The lease lasts for the TTL of the options. Release
// of the result ends it.
func (l *Locks) Hold(name string) *lock.Lease {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	lease, err := l.other.Try(ctx, name)
	if err != nil {
		l.t.Fatalf("locktest: %v", err)
	}
	return lease
}

// Steal takes the lock from its holder for another process. A lease that is kept ends immediately, with
// lock.ErrRevoked.
func (l *Locks) Steal(name string) *lock.Lease {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	lease, err := l.other.Steal(ctx, name)
	if err != nil {
		l.t.Fatalf("locktest: %v", err)
	}
	return lease
}

// Lose ends the lease of the lock at the server, as an eviction or a failover does, and cuts the connections. So a
// lease that is kept is renewed immediately, and ends with lock.ErrLost. A lease that is not kept ends with its next
// Extend or Release. Lose does nothing to a lock that nobody holds.
func (l *Locks) Lose(name string) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	info, err := l.other.Info(ctx, name)
	if err == nil && !info.Held {
		return
	}
	if err == nil {
		err = l.client.Del(ctx, info.Key).Err()
	}
	if err != nil {
		l.t.Fatalf("locktest: %v", err)
	}
	l.proxy.CutAll()
	l.dropCut(ctx)
}

// dropCut uses each idle connection of the Locker, so that the client drops those that were cut. A release on a cut
// connection would be repeated, and the repeat would find no lease, as if the first attempt had ended it.
func (l *Locks) dropCut(ctx context.Context) {
	idle := make([]*redis.Conn, l.own.PoolStats().IdleConns)
	for i := range idle {
		idle[i] = l.own.Conn()
		_ = idle[i].Ping(ctx).Err() // it fails on each that was cut
	}
	for _, conn := range idle {
		_ = conn.Close()
	}
}

func newClient(t testing.TB, url string, opts []func(*redis.Options)) *redis.Client {
	t.Helper()
	options, err := redis.ParseURL(url)
	if err != nil {
		t.Fatalf("locktest: %v", err)
	}
	for _, opt := range opts {
		opt(options)
	}
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	return client
}
