package lock_test

import (
	"context"
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

// hang is a server that stops when the n-th request that matches arrives.
type hang struct {
	server *luatomictest.Server
	proxy  *luatomictest.LossyProxy
	other  *lock.Locker  // of another process, that does not pass the proxy
	paused chan struct{} // closed when the server has stopped
}

func newHang(t *testing.T) *hang {
	t.Helper()
	server := luatomictest.StartServer(t)
	t.Cleanup(server.Resume)
	return &hang{
		server: server, proxy: luatomictest.NewLossyProxy(t, server.URL()),
		other:  lab.Locker(t, server.Client(), &lock.Options{TTL: time.Minute}),
		paused: make(chan struct{}),
	}
}

// pause stops the server.
func (h *hang) pause() {
	h.server.Pause()
	close(h.paused)
}

// client waits for an answer for a minute: go-redis does not heed the deadline of a context.
func (h *hang) client(t *testing.T) *redis.Client {
	t.Helper()
	opts, err := redis.ParseURL(h.proxy.URL())
	require.NoError(t, err)
	opts.ReadTimeout = time.Minute
	c := redis.NewClient(opts)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// at has the server stop at the n-th request that matches.
func (h *hang) at(n int, match func(args []string) bool) {
	var once sync.Once
	h.proxy.DropRequest(1, func(args []string) bool {
		if match(args) {
			if n--; n == 0 {
				once.Do(h.pause)
			}
		}
		return false
	})
}

// The server stops at any request of a call that is not a release: the call returns at the end of its context all the
// same.
func TestACallReturnsAtTheEndOfItsContextWhereverTheServerStops(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	published, released := luatomictest.Command("PUBLISH"), lab.Sent(&lockscript.ReleaseScript)
	options := &lock.Options{TTL: time.Minute}
	replicated := &lock.Options{TTL: time.Minute, Replicas: 1, ReplicaTimeout: 10 * time.Millisecond}
	for what, prepare := range map[string]func(*testing.T, *hang) func(context.Context) error{
		"Lead of a candidate that is not elected": func(t *testing.T, h *hang) func(context.Context) error {
			_, err := h.other.Try(ctx, "x")
			require.NoError(t, err)
			e := lab.Locker(t, h.client(t), nil).Election("x")
			return func(ctx context.Context) error {
				go func() {
					lab.WaitFor(t, h.other, "x", 1)
					h.pause()
				}()
				return e.Lead(ctx, "me", nil)
			}
		},
		"Campaign": func(t *testing.T, h *hang) func(context.Context) error {
			h.at(1, published)
			e := lab.Locker(t, h.client(t), nil).Election("x")
			return func(ctx context.Context) error { _, err := e.Campaign(ctx, "me"); return err }
		},
		"Proclaim": func(t *testing.T, h *hang) func(context.Context) error {
			h.at(2, published)
			lead, err := lab.Locker(t, h.client(t), options).Election("x").Campaign(ctx, "me")
			require.NoError(t, err)
			return func(ctx context.Context) error { return lead.Proclaim(ctx, "still me") }
		},
		"Resign": func(t *testing.T, h *hang) func(context.Context) error {
			h.at(2, published)
			lead, err := lab.Locker(t, h.client(t), options).Election("x").Campaign(ctx, "me")
			require.NoError(t, err)
			return lead.Resign
		},
		"ForceRelease": func(t *testing.T, h *hang) func(context.Context) error {
			h.at(1, published)
			ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": h.proxy.Addr()},
				ReadTimeout: time.Minute})
			t.Cleanup(func() { _ = ring.Close() })
			_, err := h.other.Try(ctx, "x")
			require.NoError(t, err)
			l := lab.Locker(t, ring, nil)
			return func(ctx context.Context) error { _, err := l.ForceRelease(ctx, "x", 0); return err }
		},
		"AcquireAll that gives back a lock": func(t *testing.T, h *hang) func(context.Context) error {
			h.at(1, released)
			_, err := h.other.Try(ctx, "a")
			require.NoError(t, err)
			l := lab.Locker(t, h.client(t), options)
			return func(ctx context.Context) error { _, err := l.AcquireAll(ctx, "a", "b"); return err }
		},
		"AcquireAll that gives back the lock it waited for": func(t *testing.T, h *hang) func(context.Context) error {
			other := h.other.With(lock.Options{Tag: "t"})
			a, err := other.Try(ctx, "a")
			require.NoError(t, err)
			_, err = other.Try(ctx, "b")
			require.NoError(t, err)
			h.at(1, released)
			l := lab.Locker(t, h.client(t), options).With(lock.Options{Tag: "t"})
			return func(ctx context.Context) error {
				go func() {
					lab.WaitFor(t, other, "a", 1)
					_ = a.Release(context.WithoutCancel(ctx))
				}()
				_, err := l.AcquireAll(ctx, "a", "b")
				return err
			}
		},
		"AcquireAll": func(t *testing.T, h *hang) func(context.Context) error {
			h.at(1, lab.Sent(&lockscript.TryScript))
			l := lab.Locker(t, h.client(t), options)
			return func(ctx context.Context) error { _, err := l.AcquireAll(ctx, "a", "b"); return err }
		},
		"Extend": func(t *testing.T, h *hang) func(context.Context) error {
			h.at(1, lab.Sent(&lockscript.ExtendScript))
			lease, err := lab.Locker(t, h.client(t), options).Try(ctx, "x")
			require.NoError(t, err)
			return lease.Extend
		},
		"Acquire with Replicas": func(t *testing.T, h *hang) func(context.Context) error {
			h.at(1, lab.Sent(&lockscript.AcquireScript))
			l := lab.Locker(t, h.client(t), replicated)
			return func(ctx context.Context) error { _, err := l.Acquire(ctx, "x"); return err }
		},
		"Steal with Replicas": func(t *testing.T, h *hang) func(context.Context) error {
			h.at(1, lab.Sent(&lockscript.ExtendScript))
			l := lab.Locker(t, h.client(t), replicated)
			return func(ctx context.Context) error { _, err := l.Steal(ctx, "x"); return err }
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			h := newHang(t)
			call := prepare(t, h)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			returned := make(chan error, 1)
			go func() { returned <- call(ctx) }()
			lab.Soon(t, 30*time.Second, "the request at which the server stops", h.paused)
			cancel()
			end := time.Now()
			lab.Soon(t, 30*time.Second, "the return", returned)
			t.Logf("%v after the end of the context", time.Since(end))
			require.Less(t, time.Since(end), 20*time.Second, "go-redis itself waits for a minute")
		})
	}
}

// A release whose context has ended tries for 10 s, and ends with the attempt that is under way then.
func TestReleaseEndsOnAServerThatHangs(t *testing.T) {
	lab.Long(t)
	t.Parallel()
	server := luatomictest.StartServer(t)
	t.Cleanup(server.Resume)
	c := server.Client(func(o *redis.Options) { o.ReadTimeout = time.Second })
	lease, err := lab.Locker(t, c, nil).Try(t.Context(), "x")
	require.NoError(t, err)
	server.Pause()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	began, released := time.Now(), make(chan error, 1)
	go func() { released <- lease.Release(ctx) }()
	require.ErrorIs(t, lab.Soon(t, 30*time.Second, "the end of Release", released), lua.ErrOutcomeUnknown)
	require.GreaterOrEqual(t, time.Since(began), 8*time.Second, "it has tried")
	require.Less(t, time.Since(began), 14*time.Second)
}
