package lock_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
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

// A program that is interrupted while it waits, and ends, leaves nothing in the queue.
func TestCloseWaitsForWithdrawals(t *testing.T) {
	t.Parallel()
	name := luatomictest.Namespace(t)
	holder := lab.Locker(t, luatomictest.Client(t), nil)
	for kind, acquire := range map[string]func(ctx context.Context, l *lock.Locker) (*lock.Lease, error){
		"lock": func(ctx context.Context, l *lock.Locker) (*lock.Lease, error) { return l.Acquire(ctx, name) },
		"semaphore": func(ctx context.Context, l *lock.Locker) (*lock.Lease, error) {
			return l.Semaphore(name, 1).Acquire(ctx, 1)
		},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			_, err := acquire(t.Context(), holder)
			require.NoError(t, err)
			waiting := func() int {
				if kind == "lock" {
					return lab.Must(holder.Info(t.Context(), name)).Waiting
				}
				return lab.Must(holder.Semaphore(name, 1).Info(t.Context())).Waiting
			}
			c := luatomictest.Client(t)
			slow := func(run func() error) error {
				time.Sleep(100 * time.Millisecond) // longer than Acquire waits for its withdrawal
				return run()
			}
			c.AddHook(&lab.Around{Sha: lab.Digest(&lockscript.LeaveScript), Do: slow})
			c.AddHook(&lab.Around{Sha: lab.Digest(&lockscript.SemReleaseScript), Do: slow})
			closesInTime(t, func() *lock.Locker {
				l := lock.New(lua.Direct(c), nil)
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() {
					_, err := acquire(ctx, l)
					ended <- err
				}()
				luatomictest.Eventually(t, 20*time.Second, "it waits", func() bool { return waiting() == 1 })
				cancel()
				require.ErrorIs(t, lab.Soon(t, 20*time.Second, "the end of Acquire", ended), context.Canceled)
				return l
			}, waiting)
		})
	}
}

// closesInTime expects that nobody waits when Close has returned. On a busy machine a withdrawal may take longer than
// Close waits for it: then it is tried again.
func closesInTime(t *testing.T, prepare func() *lock.Locker, waiting func() int) {
	for range 20 {
		l := prepare()
		began := time.Now()
		require.NoError(t, l.Close())
		if time.Since(began) < 450*time.Millisecond {
			require.Zero(t, waiting())
			return
		}
		luatomictest.Eventually(t, 20*time.Second, "the withdrawal arrives", func() bool { return waiting() == 0 })
	}
	t.Fatal("Close took as long as it may each time")
}

// A grant that nobody waits for arrives before Close, which waits until the process has given it back.
func TestCloseWaitsForAGrantThatIsGivenBack(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	other, name, c := lab.NewLocker(t, nil)
	slow, giving := luatomictest.Client(t), make(chan struct{}, 100)
	slow.AddHook(&lab.Around{Sha: lab.Digest(&lockscript.LeaveScript), Do: func(run func() error) error {
		giving <- struct{}{}
		time.Sleep(30 * time.Millisecond) // so that a Close that does not wait is earlier
		return run()
	}})
	closesInTime(t, func() *lock.Locker {
		l := lock.New(lua.Direct(slow), nil)
		kept, err := l.Acquire(ctx, name+"-kept")
		require.NoError(t, err)
		kept.Keep(ctx)
		listening(t, name+"-kept")
		require.NoError(t, kept.Release(ctx))
		process, _, _ := strings.Cut(kept.Token(), ".")
		key, token := "lock:{"+name+"}", process+".left"
		require.NoError(t, c.Set(ctx, key, "2 1 2 - "+token+" 0 1000 ", time.Minute).Err())
		require.NoError(t, c.Publish(ctx, "lock:c:"+process, "g "+token+" 1 1 60000 "+key).Err())
		lab.Soon(t, 20*time.Second, "the process gives it back", giving)
		return l
	}, func() int {
		if lab.Must(other.Info(ctx, name)).Held {
			return 1
		}
		return 0
	})
}

// Close waits for Acquires, too, whose withdrawal has not begun: their context has just ended, or Close ends them.
func TestCloseWaitsForAcquiresThatItEnds(t *testing.T) {
	t.Parallel()
	for what, ctxEnds := range map[string]bool{"their context has just ended": true, "Close ends them": false} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			name := luatomictest.Namespace(t)
			holder := lab.Locker(t, luatomictest.Client(t), &lock.Options{TTL: time.Minute})
			held, err := holder.Try(t.Context(), name)
			require.NoError(t, err)
			c := luatomictest.Client(t)
			c.AddHook(&lab.Around{Sha: lab.Digest(&lockscript.LeaveScript), Do: func(run func() error) error {
				time.Sleep(30 * time.Millisecond) // so that a Close that does not wait is earlier
				return run()
			}})
			const waiters = 10
			ended := make(chan error, 20*waiters)
			closesInTime(t, func() *lock.Locker {
				l := lock.New(lua.Direct(c), nil)
				ctx, cancel := context.WithCancel(t.Context())
				t.Cleanup(cancel)
				for range waiters {
					go func() {
						_, err := l.Acquire(ctx, name)
						ended <- err
					}()
				}
				lab.WaitFor(t, holder, name, waiters)
				if ctxEnds {
					cancel()
				}
				return l
			}, func() int { return lab.Must(holder.Info(t.Context(), name)).Waiting })
			for range waiters {
				require.Error(t, lab.Soon(t, 20*time.Second, "the end of Acquire", ended))
			}
			require.NoError(t, held.Release(t.Context()))
		})
	}
}

func TestCloseDoesNotWaitForAServerThatHangs(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	_, err := lab.Locker(t, server.Client(), nil).Try(t.Context(), "x")
	require.NoError(t, err)
	l := lock.New(server.Client(func(o *redis.Options) { o.ReadTimeout = time.Minute }), nil)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := l.Acquire(ctx, "x")
		ended <- err
	}()
	lab.WaitFor(t, lab.Locker(t, server.Client(), nil), "x", 1)
	server.Pause()
	t.Cleanup(server.Resume)
	cancel()
	require.ErrorIs(t, lab.Soon(t, 20*time.Second, "the end of Acquire", ended), context.Canceled)
	began := time.Now()
	require.NoError(t, l.Close())
	require.Less(t, time.Since(began), 30*time.Second, "go-redis itself waits for a minute")
}

// Close ends an Acquire whose connection to subscribe is being dialed, too.
func TestCloseEndsAnAcquireThatDials(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	_, err := lab.Locker(t, server.Client(), nil).Try(t.Context(), "x")
	require.NoError(t, err)
	dials, hangs, end := atomic.Int64{}, make(chan struct{}, 100), make(chan struct{})
	c := server.Client(func(o *redis.Options) {
		o.PoolSize = 1
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if dials.Add(1) > 1 {
				hangs <- struct{}{}
				<-end
			}
			return net.Dial(network, addr)
		}
	})
	l := lock.New(lua.Direct(c), nil)
	got := lab.AcquireLater(t.Context(), l, "x")
	t.Cleanup(func() { close(end) })
	lab.Soon(t, 20*time.Second, "the connection to subscribe", hangs)
	require.NoError(t, l.Close())
	err = lab.Soon(t, 10*time.Second, "the end of Acquire", got).Err
	require.ErrorIs(t, err, lock.ErrClosed)
	require.ErrorIs(t, err, lock.ErrHeld)
}

// Close ends an Acquire wherever the server stops: at a request of its own too, whose answer does not come.
func TestCloseEndsAnAcquireWhoseRequestHasNoAnswer(t *testing.T) {
	t.Parallel()
	others := lock.Options{Tag: "t"}
	for what, acquire := range map[string]struct {
		script *lua.Script
		n      int // the request
		call   func(ctx context.Context, l *lock.Locker) error
	}{
		"for a lock": {&lockscript.TryScript, 1, func(ctx context.Context, l *lock.Locker) error {
			return l.Do(ctx, "free", func(context.Context, *lock.Lease) error {
				return errors.New("it ran after Close")
			})
		}},
		"for a lock of another holder": {&lockscript.ForceScript, 1, func(ctx context.Context, l *lock.Locker) error {
			_, err := l.Steal(ctx, "x")
			return err
		}},
		"for a permit": {&lockscript.SemAcquireScript, 1, func(ctx context.Context, l *lock.Locker) error {
			_, err := l.RW("free").RAcquire(ctx)
			return err
		}},
		"to join the queue of a lock": {&lockscript.AcquireScript, 1, func(ctx context.Context, l *lock.Locker) error {
			_, err := l.Acquire(ctx, "x")
			return err
		}},
		"to join the queue of a semaphore": {&lockscript.SemAcquireScript, 2, func(ctx context.Context,
			l *lock.Locker) error {
			_, err := l.Semaphore("s", 1).Acquire(ctx, 1)
			return err
		}},
		"for many locks": {&lockscript.AcquireAllScript, 1, func(ctx context.Context, l *lock.Locker) error {
			_, err := l.With(others).AcquireAll(ctx, "x", "y")
			return err
		}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			h := newHang(t)
			_, err := h.other.Try(t.Context(), "x")
			require.NoError(t, err)
			_, err = h.other.Semaphore("s", 1).Acquire(t.Context(), 1)
			require.NoError(t, err)
			l := lock.New(h.client(t), nil)
			h.at(acquire.n, lab.Sent(acquire.script))
			ended := make(chan error, 1)
			go func() { ended <- acquire.call(context.Background(), l) }()
			lab.Soon(t, 20*time.Second, "the request", h.paused)
			began := time.Now()
			require.NoError(t, l.Close())
			require.ErrorIs(t, lab.Soon(t, 20*time.Second, "the end of Acquire", ended), lock.ErrClosed)
			require.Less(t, time.Since(began), 20*time.Second, "go-redis itself waits for a minute")
		})
	}
}

// A lock that the server grants while the Locker is closed is given back: nothing would renew its lease.
func TestALockThatIsGrantedAfterCloseIsGivenBack(t *testing.T) {
	t.Parallel()
	for what, acquire := range map[string]func(ctx context.Context, l *lock.Locker, name string) error{
		"Try": func(ctx context.Context, l *lock.Locker, name string) error { _, err := l.Try(ctx, name); return err },
		"Do": func(ctx context.Context, l *lock.Locker, name string) error {
			return l.Do(ctx, name, func(context.Context, *lock.Lease) error { return errors.New("it ran after Close") })
		},
		"AcquireAll": func(ctx context.Context, l *lock.Locker, name string) error {
			_, err := l.AcquireAll(ctx, name)
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			c, name := luatomictest.Client(t), luatomictest.Namespace(t)
			l := lock.New(lua.Direct(c), nil)
			c.AddHook(&lab.Around{Sha: lab.Digest(&lockscript.TryScript), Do: func(run func() error) error {
				defer func() { _ = l.Close() }()
				return run()
			}})
			require.ErrorIs(t, acquire(t.Context(), l, name), lock.ErrClosed)
			info, err := l.Info(t.Context(), name)
			require.NoError(t, err)
			require.False(t, info.Held)
		})
	}
}

// An Acquire that Close ends leaves with it, although the server does not answer its withdrawal.
func TestCloseEndsAnAcquireOnAServerThatHangs(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	watch := lab.Locker(t, server.Client(), nil)
	_, err := watch.Try(t.Context(), "x")
	require.NoError(t, err)
	l := lock.New(server.Client(), nil)
	got := lab.AcquireLater(t.Context(), l, "x")
	lab.WaitFor(t, watch, "x", 1)
	server.Pause()
	t.Cleanup(server.Resume)
	require.NoError(t, l.Close())
	require.ErrorIs(t, lab.Soon(t, 3*time.Second, "the end of Acquire", got).Err, lock.ErrClosed)
}
