package luatomic_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/actionhero"
	"github.com/luatomic/luatomic/compat/plainlock"
	"github.com/luatomic/luatomic/compat/redisinaction"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lock/quorum"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
	"github.com/luatomic/luatomic/rpc"
)

// held is something that a process has at the server and gives up.
type held struct {
	giveUp func(context.Context) error
	has    func() bool // whether the server says that the process has it
}

// ended is a context that ended before the call, such as that of a request whose client has left.
func ended(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// refusing is a client's hook: while on, the server refuses all commands, and executes none.
type refusing struct{ on atomic.Bool }

type noPermission struct{}

func (noPermission) Error() string { return "NOPERM this user has no permissions" }
func (noPermission) RedisError()   {}

func (r *refusing) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *refusing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if r.on.Load() {
			cmd.SetErr(noPermission{})
			return noPermission{}
		}
		return next(ctx, cmd)
	}
}

func (r *refusing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if !r.on.Load() {
			return next(ctx, cmds)
		}
		for _, cmd := range cmds {
			cmd.SetErr(noPermission{})
		}
		return noPermission{}
	}
}

// givenUp has, for each call of each package that gives something up, what takes it.
var givenUp = map[string]func(t *testing.T, c *redis.Client, name string) held{
	"lock: Lease.Release": func(t *testing.T, c *redis.Client, name string) held {
		return ofLock(t, name, lab.Must(lab.Locker(t, c, nil).Try(t.Context(), name)).Release)
	},
	"lock: Leadership.Resign": func(t *testing.T, c *redis.Client, name string) held {
		return ofLock(t, name, lab.Must(lab.Locker(t, c, nil).Election(name).Campaign(t.Context(), "v")).Resign)
	},
	"lock: Leases.Release": func(t *testing.T, c *redis.Client, name string) held {
		return ofLock(t, name, lab.Must(lab.Locker(t, c, nil).AcquireAll(t.Context(), name, name+"2")).Release)
	},
	"lock: Lease.Release of a permit": func(t *testing.T, c *redis.Client, name string) held {
		lease := lab.Must(lab.Locker(t, c, nil).Semaphore(name, 2).Try(t.Context(), 1))
		return held{lease.Release, func() bool {
			info := lab.Must(lab.Locker(t, luatomictest.Client(t), nil).Semaphore(name, 2).Info(t.Context()))
			return info.Used > 0
		}}
	},
	"lock: Lease.Release of a writer": func(t *testing.T, c *redis.Client, name string) held {
		lease := lab.Must(lab.Locker(t, c, nil).RW(name).Try(t.Context()))
		return held{lease.Release, func() bool {
			return lab.Must(lab.Locker(t, luatomictest.Client(t), nil).RW(name).Info(t.Context())).Writing
		}}
	},
	"quorum: Lease.Release": func(t *testing.T, c *redis.Client, name string) held {
		q := quorum.New([]redis.UniversalClient{c}, nil)
		t.Cleanup(func() { _ = q.Close() })
		return ofLock(t, name, lab.Must(q.Try(t.Context(), name)).Release)
	},
	"rpc: Bus.Unbind": func(t *testing.T, c *redis.Client, name string) held {
		node := lab.Serving(t, lab.Echo, c, name, &rpc.Options{Lease: 3 * time.Second}, lab.Upper)
		require.NoError(t, node.Bind(t.Context(), "user"))
		return held{func(ctx context.Context) error {
			_, err := node.Unbind(ctx, "user")
			return err
		}, keyExists(t, "rpc:{"+name+"}:k:user")}
	},
	"rpc: Method.Unserve": func(t *testing.T, c *redis.Client, name string) held {
		node := lab.Serving(t, lab.Echo, c, name, &rpc.Options{Lease: 3 * time.Second}, lab.Upper)
		return held{func(ctx context.Context) error { return lab.Echo.Unserve(ctx, node) }, func() bool {
			c := luatomictest.Client(t)
			return c.ZScore(t.Context(), "rpc:{"+name+"}:methods", "echo\x00"+node.Node()).Err() == nil
		}}
	},
	"queue: Delivery.Return": ofJob(func(ctx context.Context, d *queue.Delivery) error { return d.Return(ctx, 0) }),
	"queue: Delivery.Nack": ofJob(func(ctx context.Context, d *queue.Delivery) error {
		return d.Nack(ctx, time.Hour, "why")
	}),
	"queue: Delivery.Bury": ofJob(func(ctx context.Context, d *queue.Delivery) error { return d.Bury(ctx, "why") }),
	"queue: Delivery.Ack":  ofJob(func(ctx context.Context, d *queue.Delivery) error { return d.Ack(ctx) }),
	"plainlock: Lock.Release": func(t *testing.T, c *redis.Client, name string) held {
		l := plainlock.New(c, nil)
		t.Cleanup(func() { _ = l.Close() })
		return held{lab.Must(l.Try(t.Context(), name)).Release, keyExists(t, name)}
	},
	"redisinaction: Client.ReleaseLock": func(t *testing.T, c *redis.Client, name string) held {
		book := redisinaction.New(c, &redisinaction.Options{Prefix: name})
		id := lab.Must(book.AcquireLock(t.Context(), "x", nil))
		return held{func(ctx context.Context) error { return book.ReleaseLock(ctx, "x", id) },
			keyExists(t, name+"lock:x")}
	},
	"actionhero: Cache.Unlock": func(t *testing.T, c *redis.Client, name string) held {
		cache := actionhero.NewCache(c, &actionhero.CacheOptions{LockPrefix: name})
		require.True(t, lab.Must(cache.Lock(t.Context(), "x", time.Minute)))
		return held{func(ctx context.Context) error {
			_, err := cache.Unlock(ctx, "x")
			return err
		}, keyExists(t, name+"x")}
	},
}

func keyExists(t *testing.T, key string) func() bool {
	c := luatomictest.Client(t)
	return func() bool { return lab.Must(c.Exists(context.Background(), key).Result()) > 0 }
}

func ofLock(t *testing.T, name string, release func(context.Context) error) held {
	l := lab.Locker(t, luatomictest.Client(t), nil)
	return held{release, func() bool { return lab.Must(l.Info(t.Context(), name)).Held }}
}

func ofJob(
	giveUp func(context.Context, *queue.Delivery) error,
) func(t *testing.T, c *redis.Client, name string) held {
	return func(t *testing.T, c *redis.Client, name string) held {
		q := lab.Must(queue.New(c, name, nil))
		lab.Push(t, q, queue.Job{ID: "x"})
		d := lab.TakeOne(t, q)
		own := lab.Must(queue.New(luatomictest.Client(t), name, nil))
		return held{func(ctx context.Context) error { return giveUp(ctx, d) }, func() bool {
			return lab.Must(own.Find(t.Context(), "x"))[0].State == queue.Leased
		}}
	}
}

// A deferred call has the context of a request that is over. What it gives up is free when it returns.
func TestWhatGivesSomethingUpWorksOnAnEndedContext(t *testing.T) {
	t.Parallel()
	for what, take := range givenUp {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			h := take(t, luatomictest.Client(t), luatomictest.Namespace(t))
			require.True(t, h.has())
			require.NoError(t, h.giveUp(ended(t)))
			require.False(t, h.has())
		})
	}
}

// The server executes nothing of the call that gives something up. The process still knows what it has to give up: the
// next call does so.
func TestWhatGivesSomethingUpForgetsNothingThatTheServerHas(t *testing.T) {
	t.Parallel()
	for what, take := range givenUp {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			c, server := luatomictest.Client(t), &refusing{}
			h := take(t, c, luatomictest.Namespace(t))
			c.AddHook(server)
			server.on.Store(true)
			require.ErrorContains(t, h.giveUp(ended(t)), "NOPERM")
			require.True(t, h.has())
			server.on.Store(false)
			require.NoError(t, h.giveUp(ended(t)))
			require.False(t, h.has())
		})
	}
}

// Nobody calls again. The heartbeats of the node know what the server still has.
func TestANodeGivesUpLaterWhatTheServerRefused(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"rpc: Bus.Unbind", "rpc: Method.Unserve"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			c, server := luatomictest.Client(t), &refusing{}
			h := givenUp[what](t, c, luatomictest.Namespace(t))
			c.AddHook(server)
			server.on.Store(true)
			require.ErrorContains(t, h.giveUp(ended(t)), "the next heartbeat")
			server.on.Store(false)
			luatomictest.Eventually(t, 20*time.Second, "it is given up", func() bool { return !h.has() })
		})
	}
}
