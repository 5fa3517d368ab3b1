package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/luatomic/luatomic"
	"github.com/luatomic/luatomic/lua"
)

const ttl = 10 * time.Second

// pair acquires a free lock of that name and releases it.
type pair func(ctx context.Context, name string) error

// directPair is luatomic's pair without shared round trips: each call has a connection to itself.
func directPair(c redis.UniversalClient) pair { return oursPair(lua.Direct(c)) }

// sharingRows compare calls that share round trips with the same calls on a connection each. A call whose context can
// end is made by another goroutine, so that its caller can leave; one whose context cannot is not.
func sharingRows() []row {
	var all []row
	for _, kind := range []struct {
		name, what string
		endless    bool
	}{
		{"sharing", "lock pairs with a context that can end", false},
		{"sharing-endless", "lock pairs with context.Background", true},
	} {
		for _, n := range []int{1, 4, 16, 64} {
			r := row{fmt.Sprintf("%s/callers=%d", kind.name, n), kind.what, "per_s", []entrant{
				{"luatomic", ours, "calls under way at once share round trips",
					lockPairs(n, false, bare(oursPair, kind.endless))},
				{"lua.Direct", raw, "each call by itself, on a connection of the pool",
					lockPairs(n, false, bare(directPair, kind.endless))},
			}}
			if n == 1 {
				r.main = "p50_us"
			}
			all = append(all, r)
		}
	}
	return all
}

// bare makes pairs with a context that never ends.
func bare(open func(redis.UniversalClient) pair, endless bool) func(redis.UniversalClient) pair {
	if !endless {
		return open
	}
	return func(c redis.UniversalClient) pair {
		p := open(c)
		return func(_ context.Context, name string) error { return p(context.Background(), name) }
	}
}

// pairs are the libraries that take any go-redis client.
var pairs = []struct {
	name string
	kind kind
	note string
	open func(c redis.UniversalClient) pair
}{
	{"luatomic", ours, "fence, queue of waiters, answer to a repeat", oursPair},
	{"SET NX + DEL", raw, "deletes a lock that another holds", rawPair},
	{"redislock", peer, "no fence; waits by polling", redislockPair},
	{"redsync", peer, "no fence; waits by polling", redsyncPair},
}

func oursPair(c redis.UniversalClient) pair {
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

// rueidisLocker is a locker of rueidis, which shares one connection by itself.
func (b *bench) rueidisLocker() (rueidislock.Locker, error) {
	options, err := redis.ParseURL(b.url)
	if err != nil {
		return nil, err
	}
	client := rueidis.ClientOption{InitAddress: []string{options.Addr}, Username: options.Username,
		Password: options.Password}
	if options.Network == "unix" {
		client.DialCtxFn = func(ctx context.Context, _ string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return d.DialContext(ctx, "unix", options.Addr)
		}
	}
	l, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: client, KeyMajority: 1, KeyPrefix: b.space, KeyValidity: ttl,
	})
	if err == nil {
		b.close(l.Close)
	}
	return l, err
}

func (b *bench) rueidisPair() (pair, error) {
	l, err := b.rueidisLocker()
	return func(ctx context.Context, name string) error {
		_, release, err := l.WithContext(ctx, name) // its release goes on behind the call that makes it
		if err == nil {
			release()
		}
		return err
	}, err
}

func lockRows() []row {
	var all []row
	for _, n := range []int{1, 4, 16, 64, 256} {
		plain := row{fmt.Sprintf("lock/goroutines=%d", n), "acquire and release, a free lock for each goroutine",
			"per_s", nil}
		piped := row{fmt.Sprintf("lock-piped/goroutines=%d", n), "the same through go-redis' AutoPipeline",
			"per_s", nil}
		if n == 1 {
			plain.main = "p50_us"
		}
		for _, p := range pairs {
			plain.entrants = append(plain.entrants, entrant{p.name, p.kind, p.note, lockPairs(n, false, p.open)})
			piped.entrants = append(piped.entrants, entrant{p.name, p.kind, p.note, lockPairs(n, true, p.open)})
		}
		entrant := entrant{"rueidislock", peer, "no fence; one pipelined connection by itself",
			func(b *bench) (work, error) {
				p, err := b.rueidisPair()
				if err != nil {
					return nil, err
				}
				return b.pairs(n, p)
			}}
		plain.entrants = append(plain.entrants, entrant)
		all = append(all, plain)
		if n > 1 {
			piped.entrants = append(piped.entrants, entrant)
			all = append(all, piped)
		}
	}
	return all
}

func lockPairs(goroutines int, piped bool, open func(redis.UniversalClient) pair) func(*bench) (work, error) {
	return func(b *bench) (work, error) {
		c := b.client(goroutines)
		if !piped {
			return b.pairs(goroutines, open(c))
		}
		ap, err := c.AutoPipeline()
		if err != nil {
			return nil, err
		}
		b.close(func() { _ = ap.Close() })
		return b.pairs(goroutines, open(ap))
	}
}

func (b *bench) pairs(goroutines int, p pair) (work, error) {
	names := make([]string, goroutines)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%d", b.space, i)
	}
	if goroutines == 1 {
		return b.alone(1, func(ctx context.Context) error { return p(ctx, names[0]) })
	}
	return b.together(goroutines, 1, func(ctx context.Context, i int) error { return p(ctx, names[i]) })
}
