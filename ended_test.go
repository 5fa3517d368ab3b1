package luatomic_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/actionhero"
	"github.com/luatomic/luatomic/compat/plainlock"
	"github.com/luatomic/luatomic/compat/redisinaction"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/lock/quorum"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

// waits has the calls that wait, each for what another holds or for what nobody does. Each returns the wait.
var waits = map[string]func(t *testing.T, c *redis.Client, name string) func(context.Context) error{
	"lock: Acquire": func(t *testing.T, c *redis.Client, name string) func(context.Context) error {
		return second(lab.Locker(t, c, nil).Acquire, name)
	},
	"lock: AcquireAll": func(t *testing.T, c *redis.Client, name string) func(context.Context) error {
		return second(func(ctx context.Context, name string) (lock.Leases, error) {
			return lab.Locker(t, c, nil).AcquireAll(ctx, name, name+"2")
		}, name)
	},
	"lock: Campaign": func(t *testing.T, c *redis.Client, name string) func(context.Context) error {
		return second(lab.Locker(t, c, nil).Election(name).Campaign, "v")
	},
	"lock: Acquire of a permit": func(t *testing.T, c *redis.Client, name string) func(context.Context) error {
		return second(lab.Locker(t, c, nil).Semaphore(name, 1).Acquire, 1)
	},
	"quorum: Acquire": func(t *testing.T, c *redis.Client, name string) func(context.Context) error {
		q := quorum.New([]redis.UniversalClient{c}, &quorum.Options{TTL: time.Minute, NodeTimeout: 10 * time.Second})
		t.Cleanup(func() { _ = q.Close() })
		return second(q.Acquire, name)
	},
	"plainlock: Acquire": func(t *testing.T, c *redis.Client, name string) func(context.Context) error {
		l := plainlock.New(c, &plainlock.Options{TTL: time.Minute})
		t.Cleanup(func() { _ = l.Close() })
		return second(l.Acquire, name)
	},
	"redisinaction: AcquireLock": func(_ *testing.T, c *redis.Client, name string) func(context.Context) error {
		book := redisinaction.New(c, &redisinaction.Options{Prefix: name})
		return second(func(ctx context.Context, name string) (string, error) {
			return book.AcquireLock(ctx, name, &redisinaction.LockOptions{TTL: time.Minute, Wait: -1})
		}, "x")
	},
}

// second returns the call that waits for what a first one holds.
func second[T, A any](call func(context.Context, A) (T, error), arg A) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := call(ctx, arg)
		return err
	}
}

var errWhy = errors.New("the client has left")

// The error of a wait whose context has ended is both the end and its cause.
func TestTheErrorOfAWaitMatchesTheEndOfItsContextAndTheCause(t *testing.T) {
	t.Parallel()
	forever := map[string]func(t *testing.T, c *redis.Client, name string) func(context.Context) error{
		"redisinaction: Take": func(_ *testing.T, c *redis.Client, name string) func(context.Context) error {
			book := redisinaction.New(c, &redisinaction.Options{Prefix: name})
			w := lab.Must(book.NewWorker("w", []string{"q"}, nil))
			return func(ctx context.Context) error {
				_, err := w.Take(ctx)
				return err
			}
		},
		"actionhero: CheckLock": func(t *testing.T, c *redis.Client, name string) func(context.Context) error {
			opts := actionhero.CacheOptions{LockPrefix: name, LockName: "holder"}
			require.True(t, lab.Must(actionhero.NewCache(c, &opts).Lock(t.Context(), "x", time.Minute)))
			opts.LockName = "other"
			return func(ctx context.Context) error {
				_, err := actionhero.NewCache(c, &opts).CheckLock(ctx, "x", time.Hour)
				return err
			}
		},
		"actionhero: Ready": func(_ *testing.T, c *redis.Client, _ string) func(context.Context) error {
			return actionhero.NewNode(c, nil).Ready
		},
		"rpc: Call": func(t *testing.T, c *redis.Client, name string) func(context.Context) error {
			node := lab.Serving(t, lab.Echo, c, name, nil, func(context.Context, string) (string, error) {
				<-t.Context().Done() // beyond the end of the call, which the handler's answer would else race with
				return "", context.Canceled
			})
			return func(ctx context.Context) error {
				_, err := lab.Echo.Call(ctx, node, "x", &rpc.CallOptions{Node: node.Node()})
				return err
			}
		},
	}
	for what, prepare := range waits {
		forever[what] = func(t *testing.T, c *redis.Client, name string) func(context.Context) error {
			require.NoError(t, prepare(t, luatomictest.Client(t), name)(t.Context()))
			return prepare(t, c, name)
		}
	}
	for what, prepare := range forever {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			wait := prepare(t, luatomictest.Client(t), luatomictest.Namespace(t))
			ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errWhy)
			defer cancel()
			err := wait(ctx)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorIs(t, err, errWhy)
		})
	}
}

// hanging refuses the first call of a script, as a server does whose replicas are away, and then hangs until released.
type hanging struct {
	calls    atomic.Int32
	asked    chan struct{}
	released chan struct{}
}

type noReplicas struct{}

func (noReplicas) Error() string { return "NOREPLICAS Not enough good replicas to write." }
func (noReplicas) RedisError()   {}

func (h *hanging) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *hanging) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() != "evalsha" {
			return next(ctx, cmd)
		}
		err := h.refuse()
		cmd.SetErr(err)
		return err
	}
}

func (h *hanging) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error {
		err := h.refuse()
		for _, cmd := range cmds {
			cmd.SetErr(err)
		}
		return err
	}
}

func (h *hanging) refuse() error {
	if h.calls.Add(1) > 1 {
		select {
		case h.asked <- struct{}{}:
		default:
		}
		<-h.released
	}
	return noReplicas{}
}

// The context of an acquire ends while the server refuses its attempts, and hangs at the last one. The error names the
// reason of the server, also where the caller does not wait for that attempt.
func TestTheEndOfAContextHidesNoReason(t *testing.T) {
	t.Parallel()
	for what, prepare := range waits {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			c := luatomictest.Client(t)
			server := &hanging{asked: make(chan struct{}, 1), released: make(chan struct{})}
			c.AddHook(server)
			release := sync.OnceFunc(func() { close(server.released) })
			acquire := prepare(t, c, luatomictest.Namespace(t))
			t.Cleanup(release)
			ctx, cancel := context.WithCancelCause(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- acquire(ctx) }()
			lab.Soon(t, 20*time.Second, "the second attempt", server.asked)
			cancel(errWhy)
			if what != "plainlock: Acquire" && what != "quorum: Acquire" { // these two return before their attempt does
				release()
			}
			err := lab.Soon(t, 30*time.Second, "the end", ended)
			require.ErrorContains(t, err, "NOREPLICAS")
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorIs(t, err, errWhy)
		})
	}
}
