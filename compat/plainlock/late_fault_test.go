package plainlock_test

import (
	"bytes"
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/plainlock"
	"github.com/luatomic/luatomic/compat/plainlock/internal/script"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// lateConn delivers the first request that acquires, once it is armed, after the first that releases.
type lateConn struct {
	net.Conn
	armed    *atomic.Bool
	releases *atomic.Int32
	released chan struct{}
	once     *sync.Once
}

func (c *lateConn) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte(script.AcquireScript.SHA)) && c.armed.CompareAndSwap(true, false) {
		late := bytes.Clone(b)
		go func() {
			<-c.released
			time.Sleep(100 * time.Millisecond) // it is on its way, on another connection
			_, _ = c.Conn.Write(late)
		}()
		return len(b), nil
	}
	if bytes.Contains(b, []byte(script.ReleaseScript.SHA)) {
		c.releases.Add(1)
		c.once.Do(func() { close(c.released) })
	}
	return c.Conn.Write(b)
}

// The caller gives up, its release finds nothing, and then the server gets the request. The lock is released again.
func TestALateRequestKeepsNoLock(t *testing.T) {
	t.Parallel()
	ctx, direct, prefix := bounded(t), luatomictest.Client(t), luatomictest.Namespace(t)
	var armed atomic.Bool
	var releases atomic.Int32
	var once sync.Once
	released := make(chan struct{})
	o, err := redis.ParseURL(luatomictest.URL(t))
	require.NoError(t, err)
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return &lateConn{conn, &armed, &releases, released, &once}, err
	}
	c := redis.NewClient(o)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, lua.Preload(ctx, c, &script.AcquireScript, &script.ReleaseScript))
	l := open(t, c, plainlock.Options{Prefix: prefix, TTL: time.Hour})
	armed.Store(true)
	short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	_, err = l.Try(short, "x")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	luatomictest.Eventually(t, 30*time.Second, "it is released again", func() bool { return releases.Load() > 1 })
	luatomictest.Eventually(t, 30*time.Second, "the lock is free", func() bool {
		return direct.Exists(ctx, prefix+"x").Val() == 0
	})
}

// A request whose connection breaks is sent again. Its first copy arrives when its caller has been refused, has
// released the lock, or has lost it and found out by a release or an extension: nobody holds it for long.
func TestACopyOfARequestKeepsNoLock(t *testing.T) {
	t.Parallel()
	for _, when := range []string{"refused", "released", "gone", "noticed"} {
		refused := when == "refused"
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			ctx, near, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
			opts := &plainlock.Options{TTL: time.Hour}
			other := plainlock.New(near, opts)
			t.Cleanup(func() { _ = other.Close() })
			far, h := lab.HoldUp(t, &script.AcquireScript, 500*time.Millisecond)
			l := plainlock.New(far, opts)
			t.Cleanup(func() { _ = l.Close() })
			by := l
			if refused {
				by = other
			}
			held, err := by.Try(ctx, name)
			require.NoError(t, err)
			if refused {
				_, err := l.Try(ctx, name)
				var held *plainlock.HeldError
				require.ErrorAs(t, err, &held)
			}
			switch when {
			case "gone":
				require.NoError(t, near.Del(ctx, held.Key()).Err())
				require.ErrorIs(t, held.Release(ctx), plainlock.ErrLost)
			case "noticed":
				require.NoError(t, near.Del(ctx, held.Key()).Err())
				require.ErrorIs(t, held.Extend(ctx), plainlock.ErrLost)
			default:
				require.NoError(t, held.Release(ctx))
			}
			<-h.Arrived
			soon, cancel := context.WithTimeout(ctx, 30*time.Second)
			defer cancel()
			next, err := other.Acquire(soon, name)
			require.NoError(t, err)
			require.NoError(t, next.Release(ctx))
		})
	}
}

// The first attempt has the lock, too late: an outage was longer than the TTL. The second one is not sent.
func TestAnAcquireThatIsCutOffBetweenItsAttemptsHoldsNothing(t *testing.T) {
	t.Parallel()
	c, direct, prefix := luatomictest.Client(t), luatomictest.Client(t), luatomictest.Namespace(t)
	require.NoError(t, lua.Preload(t.Context(), c, &script.AcquireScript))
	l := open(t, c, plainlock.Options{Prefix: prefix, TTL: 3 * time.Second})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	attempts := 0
	c.AddHook(&lab.Around{Sha: lab.Digest(&script.AcquireScript), Do: func(run func() error) error {
		if attempts++; attempts == 1 {
			time.Sleep(3100 * time.Millisecond)
			return run()
		}
		cancel()
		return context.Canceled
	}})
	_, err := l.Try(ctx, "x")
	require.Error(t, err)
	luatomictest.Eventually(t, 2*time.Second, "nobody has it", func() bool {
		return direct.Exists(t.Context(), prefix+"x").Val() == 0
	})
}
