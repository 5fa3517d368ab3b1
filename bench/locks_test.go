package bench_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic"
	"github.com/luatomic/luatomic/luatomictest"
)

const ttl = 10 * time.Second

// pair acquires a free lock of that name and releases it.
type pair func(ctx context.Context, name string) error

// lockers are the libraries, by name.
var lockers = []struct {
	name string
	open func(c redis.UniversalClient) pair
}{
	{"luatomic", luatomicPair},
	{"redislock", redislockPair},
	{"redsync", redsyncPair},
	{"raw-setnx-del", rawPair},
}

func luatomicPair(c redis.UniversalClient) pair {
	l := luatomic.NewLocker(c, &luatomic.LockerOptions{TTL: ttl})
	return func(ctx context.Context, name string) error {
		lease, err := l.Try(ctx, name)
		if err != nil {
			return err
		}
		return lease.Release(ctx)
	}
}

func redislockPair(c redis.UniversalClient) pair {
	l := redislock.New(c)
	return func(ctx context.Context, name string) error {
		lock, err := l.Obtain(ctx, name, ttl, nil)
		if err != nil {
			return err
		}
		return lock.Release(ctx)
	}
}

func redsyncPair(c redis.UniversalClient) pair {
	rs := redsync.New(goredis.NewPool(c))
	return func(ctx context.Context, name string) error {
		m := rs.NewMutex(name, redsync.WithExpiry(ttl))
		if err := m.TryLockContext(ctx); err != nil {
			return err
		}
		_, err := m.UnlockContext(ctx)
		return err
	}
}

// rawPair deletes the key without a check of its holder.
func rawPair(c redis.UniversalClient) pair {
	return func(ctx context.Context, name string) error {
		token, err := uuid.NewRandom()
		if err != nil {
			return err
		}
		if err := c.SetArgs(ctx, name, token.String(), redis.SetArgs{Mode: "NX", TTL: ttl}).Err(); err != nil {
			return err
		}
		return c.Del(ctx, name).Err()
	}
}

// BenchmarkLockPair acquires and releases a free lock.
func BenchmarkLockPair(b *testing.B) {
	ping(b)
	for _, l := range lockers {
		b.Run("goroutines=1/"+l.name, func(b *testing.B) {
			c, name := server(b), luatomictest.Namespace(b)
			p, trips := l.open(c), roundTrips(b, c, l.open, name)
			b.ReportAllocs()
			for b.Loop() {
				if err := p(b.Context(), name); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(trips, "trips/pair")
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pairs/s")
		})
	}
	const many = 64
	pingAtOnce(b, many)
	for _, l := range lockers {
		b.Run(fmt.Sprintf("goroutines=%d/%s", many, l.name), func(b *testing.B) {
			c := server(b)
			locksAtOnce(b, c, many, l.open(c))
		})
		b.Run(fmt.Sprintf("goroutines=%d/%s-autopipeline", many, l.name), func(b *testing.B) {
			c := server(b)
			ap, err := c.AutoPipeline()
			require.NoError(b, err)
			b.Cleanup(func() { require.NoError(b, ap.Close()) })
			locksAtOnce(b, c, many, l.open(ap))
		})
	}
}

// locksAtOnce gives each goroutine a lock of its own.
func locksAtOnce(b *testing.B, c *redis.Client, goroutines int, p pair) {
	space, names := luatomictest.Namespace(b), make([]string, goroutines)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%d", space, i)
	}
	before := spent(b, c)
	b.ReportAllocs()
	b.ResetTimer()
	inParallel(b, goroutines, func(ctx context.Context, id int) error { return p(ctx, names[id]) })
	per(b, b.N, "pairs/s")
	reportCPU(b, spent(b, c).since(before), b.N, "pair")
}

// roundTrips counts what a pair sends once its scripts are known to the server.
func roundTrips(b *testing.B, c *redis.Client, open func(redis.UniversalClient) pair, name string) float64 {
	const pairs = 10
	counted := another(b, c)
	var trips tripCounter
	p := open(counted)
	require.NoError(b, p(b.Context(), name))
	counted.AddHook(&trips)
	for range pairs {
		require.NoError(b, p(b.Context(), name))
	}
	return float64(trips.n.Load()) / pairs
}
