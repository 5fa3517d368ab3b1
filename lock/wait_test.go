package lock_test

import (
	"context"
	"errors"
	"strings"
	"sync"
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

func TestLockIsHandedOverInOrderOfArrival(t *testing.T) {
	t.Parallel()
	l, name, _ := lab.NewLocker(t, &lock.Options{TTL: time.Minute})
	other := lab.Locker(t, luatomictest.Client(t), &lock.Options{TTL: time.Minute})
	lease, err := l.Try(t.Context(), name)
	require.NoError(t, err)
	const waiters = 20
	got := make(chan lab.Acquired, waiters)
	for i := range waiters {
		from := []*lock.Locker{l, other}[i%2]
		go func() {
			lease, err := from.Acquire(t.Context(), name)
			got <- lab.Acquired{Lease: lease, Err: err, Id: i}
		}()
		lab.WaitFor(t, l, name, i+1)
	}
	for i := range waiters {
		require.NoError(t, lease.Release(t.Context()))
		next := <-got
		require.NoError(t, next.Err)
		require.Equal(t, i, next.Id, "the order of grants is the order of arrival")
		require.Greater(t, next.Lease.Fence(), lease.Fence())
		require.NoError(t, next.Lease.Err())
		lease = next.Lease
	}
	require.NoError(t, lease.Release(t.Context()))
}

// answered returns when the replies to all that was sent have passed the proxy: until
// then a call that was executed is not counted.
func answered(t testing.TB, proxy *luatomictest.LossyProxy) {
	t.Helper()
	luatomictest.Eventually(t, 20*time.Second, "all is answered", func() bool {
		stats := proxy.Stats()
		return stats.Executed == stats.Requests
	})
}

// What a hand-over costs: one call for each, whatever the number of waiters, and
// waiting sends nothing.
func TestHandOverIsOneCall(t *testing.T) {
	t.Parallel()
	proxy := luatomictest.NewLossyProxy(t, luatomictest.URL(t))
	opts, err := redis.ParseURL(proxy.URL())
	require.NoError(t, err)
	opts.PoolSize = 50
	c := redis.NewClient(opts)
	defer c.Close()
	l, name := lab.Locker(t, c, &lock.Options{TTL: time.Minute}), luatomictest.Namespace(t)
	lease, err := l.Try(t.Context(), name)
	require.NoError(t, err)
	const waiters = 50
	var wg sync.WaitGroup
	for range waiters {
		wg.Go(func() {
			lease, err := l.Acquire(t.Context(), name)
			if err == nil {
				err = lease.Release(t.Context())
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	lab.WaitFor(t, l, name, waiters)
	answered(t, proxy)
	// which confirms, if it is first
	evalsha, extend := luatomictest.Command("EVALSHA"), lab.Sent(&lockscript.ExtendScript)
	sent := func(args []string) bool { return evalsha(args) && !extend(args) }
	before := proxy.Executed(sent)
	require.NoError(t, lease.Release(t.Context()))
	wg.Wait()
	calls := proxy.Executed(sent) - before
	require.LessOrEqual(t, calls, waiters+1+waiters/10, "one call for each hand-over")
}

func TestBlockedAcquireEndsWithItsContextAndLeavesTheQueue(t *testing.T) {
	t.Parallel()
	l, name, _ := lab.NewLocker(t, &lock.Options{TTL: time.Minute})
	lease, err := l.Try(t.Context(), name)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan error, 1)
	go func() {
		_, err := l.Acquire(ctx, name)
		got <- err
	}()
	lab.WaitFor(t, l, name, 1)
	cancel()
	require.ErrorIs(t, <-got, context.Canceled)
	lab.WaitFor(t, l, name, 0)
	require.NoError(t, lease.Release(t.Context()))
	next, err := l.Try(t.Context(), name)
	require.NoError(t, err, "nobody was granted it")
	require.NoError(t, next.Release(t.Context()))
}

func TestCloseEndsTheWaiters(t *testing.T) {
	t.Parallel()
	l, name, _ := lab.NewLocker(t, nil)
	other := lab.Locker(t, luatomictest.Client(t), &lock.Options{TTL: time.Minute})
	lease, err := other.Try(t.Context(), name)
	require.NoError(t, err)
	got := make(chan error, 1)
	go func() {
		_, err := l.Acquire(t.Context(), name)
		got <- err
	}()
	lab.WaitFor(t, other, name, 1)
	require.NoError(t, l.Close())
	ended := <-got
	require.ErrorIs(t, ended, lock.ErrClosed)
	require.ErrorIs(t, ended, lock.ErrHeld)
	lab.WaitFor(t, other, name, 0)
	require.NoError(t, lease.Release(t.Context()))
}

// A lease could not be renewed after Close, nor be waited for: every acquire says so, also of a lock that is free.
func TestEveryAcquireAfterCloseIsErrClosed(t *testing.T) {
	t.Parallel()
	l, name, c := lab.NewLocker(t, nil)
	lease, err := l.Try(t.Context(), name)
	require.NoError(t, err)
	require.NoError(t, l.Close())
	require.NoError(t, lease.Extend(t.Context()))
	require.NoError(t, lease.Release(t.Context()), "what is held can be given back")
	trips := &lab.RoundTrips{}
	c.AddHook(trips)
	none := func(context.Context, *lock.Lease) error { panic("it runs") }
	for what, call := range map[string]func(context.Context) error{
		"Try":        func(ctx context.Context) error { _, err := l.Try(ctx, name); return err },
		"Acquire":    func(ctx context.Context) error { _, err := l.Acquire(ctx, name); return err },
		"Steal":      func(ctx context.Context) error { _, err := l.Steal(ctx, name); return err },
		"AcquireAll": func(ctx context.Context) error { _, err := l.AcquireAll(ctx, name); return err },
		"Do":         func(ctx context.Context) error { return l.Do(ctx, name, none) },
		"TryDo":      func(ctx context.Context) error { return l.TryDo(ctx, name, none) },
		"semaphore":  func(ctx context.Context) error { return l.Semaphore(name, 1).Do(ctx, 1, none) },
		"reader":     func(ctx context.Context) error { return l.RW(name).RDo(ctx, none) },
		"Campaign":   func(ctx context.Context) error { _, err := l.Election(name).Campaign(ctx, "me"); return err },
		"Lead":       func(ctx context.Context) error { return l.Election(name).Lead(ctx, "me", nil) },
		"of With": func(ctx context.Context) error {
			_, err := l.With(lock.Options{TTL: time.Minute}).Try(ctx, name)
			return err
		},
	} {
		require.ErrorIs(t, call(t.Context()), lock.ErrClosed, what)
	}
	require.Zero(t, trips.Load())
}

// The second waiter of a process does not ask who holds the lock: the first one knows.
func TestEveryWaiterOfAProcessKnowsTheHolder(t *testing.T) {
	t.Parallel()
	queued := make(chan lock.Event, 3)
	l, name, _ := lab.NewLocker(t, &lock.Options{TTL: time.Minute, Observe: func(e lock.Event) {
		if e.Kind == lock.EventQueued {
			queued <- e
		}
	}})
	other := lab.Locker(t, luatomictest.Client(t), &lock.Options{TTL: time.Minute, Note: "worker-7"})
	lease, err := other.Try(t.Context(), name)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var waiters []<-chan lab.Acquired
	for i := range 3 {
		waiters = append(waiters, lab.AcquireLater(ctx, l, name))
		event := lab.Soon(t, 20*time.Second, "the reply that it is queued", queued)
		require.Equal(t, i+1, event.Waiting)
	}
	cancel()
	for i, waiter := range waiters {
		ended := lab.Soon(t, 20*time.Second, "the end of Acquire", waiter)
		var held *lock.HeldError
		require.ErrorAs(t, ended.Err, &held)
		require.Equal(t, "worker-7", held.Holder, i)
		require.InDelta(t, time.Minute.Seconds(), held.Remaining.Seconds(), 20, i)
	}
	require.NoError(t, lease.Release(t.Context()))
	require.EqualError(t, &lock.HeldError{Name: "x"}, `luatomic: lock is held: "x"`)
}

// The message that the lock has another holder does not name it: the next waiter of the process asks.
func TestAWaiterAfterAHandOverKnowsTheHolder(t *testing.T) {
	t.Parallel()
	l, name, c := lab.NewLocker(t, &lock.Options{TTL: time.Minute, Note: "first"})
	second := lab.Locker(t, c, &lock.Options{TTL: time.Minute, Note: "second"})
	third := lab.Locker(t, c, &lock.Options{TTL: time.Minute})
	first := lab.Must(l.Try(t.Context(), name))
	granted := lab.AcquireLater(t.Context(), second, name)
	lab.WaitFor(t, l, name, 1)
	last := lab.AcquireLater(t.Context(), third, name)
	lab.WaitFor(t, l, name, 2)
	require.NoError(t, first.Release(t.Context()))
	lease := lab.Soon(t, 20*time.Second, "the hand-over", granted).Lease
	within := time.Now().Add(5 * time.Second) // after 10 s the process asks for the clock
	luatomictest.Eventually(t, 20*time.Second, "an error that names the holder", func() bool {
		require.True(t, time.Now().Before(within), "it does not ask")
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := third.Acquire(ctx, name)
		held := (*lock.HeldError)(nil)
		return errors.As(err, &held) && held.Holder == "second"
	})
	require.NoError(t, lease.Release(t.Context()))
	require.NoError(t, lab.Soon(t, 20*time.Second, "the last hand-over", last).Lease.Release(t.Context()))
}

// Where the user may not subscribe, a waiter polls.
func TestAcquirePollsWhereItMayNotSubscribe(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	rights := []any{"ACL", "SETUSER", "unsubscribed", "on", ">pw", "~*", "&*", "+@all", "-subscribe"}
	require.NoError(t, server.Client().Do(t.Context(), rights...).Err())
	c := server.Client(func(o *redis.Options) { o.Username, o.Password = "unsubscribed", "pw" })
	l := lab.Locker(t, c, &lock.Options{TTL: time.Minute, Poll: 5 * time.Millisecond})
	lease, err := l.Try(t.Context(), "x")
	require.NoError(t, err)
	got := make(chan lab.Acquired, 1)
	go func() {
		lease, err := l.Acquire(t.Context(), "x")
		got <- lab.Acquired{Lease: lease, Err: err, Id: 0}
	}()
	short, cancel := context.WithTimeout(t.Context(), 5*time.Second) // for some attempts, however slow the machine
	defer cancel()
	_, err = l.Acquire(short, "x")
	require.ErrorIs(t, err, lock.ErrHeld)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, lease.Release(t.Context()))
	next := <-got
	require.NoError(t, next.Err)
	require.NoError(t, next.Lease.Release(t.Context()))
	info, err := l.Info(t.Context(), "x")
	require.NoError(t, err)
	require.Zero(t, info.Waiting, "a waiter that cannot be notified has no entry in the queue")
}

// go-redis knows that a context is over, and not why: the cause is added, at the first
// attempt and at one after the lock was found held.
func TestAnAcquireThatEndsDuringAnAttemptSaysWhy(t *testing.T) {
	lab.Long(t)
	t.Parallel()
	other, name, _ := lab.NewLocker(t, &lock.Options{TTL: 8 * time.Second})
	tooLate := errors.New("too late")
	// Between these two it enters the queue; the last is made when the lease is over.
	for _, attempt := range []string{"evalsha1", "evalsha3"} {
		c := luatomictest.Client(t)
		l := lab.Locker(t, c, &lock.Options{TTL: time.Minute})
		ctx, cancel := context.WithCancelCause(t.Context())
		left := make(chan struct{})
		hook := &lab.Step{At: map[string]func(){attempt: func() {
			cancel(tooLate)
			<-left // else the answer may come first, and counts
		}}}
		c.AddHook(hook)
		lease, err := other.Try(t.Context(), name)
		require.NoError(t, err)
		_, err = l.Acquire(ctx, name)
		close(left)
		require.ErrorIs(t, err, context.Canceled, attempt)
		require.ErrorIs(t, err, tooLate, attempt)
		lab.WaitFor(t, other, name, 0)
		_ = lease.Release(t.Context())
	}
}

// Nothing was sent, so nothing is given back.
func TestAcquireOnAnEndedContextSendsNothing(t *testing.T) {
	t.Parallel()
	c, proxy := proxied(t, luatomictest.URL(t))
	l, name := lab.Locker(t, c, nil), luatomictest.Namespace(t)
	require.NoError(t, c.Ping(t.Context()).Err())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := l.Try(ctx, name)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, lua.ErrNotExecuted)
	require.Zero(t, proxy.Executed(luatomictest.Command("EVALSHA")))
}

// laggard holds back the answer to one call of a script, as a goroutine that gets no
// time would.
type laggard struct {
	sha   string
	armed atomic.Bool
	let   chan struct{}
}

func (*laggard) DialHook(next redis.DialHook) redis.DialHook { return next }

func (g *laggard) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		held := strings.Contains(cmd.String(), g.sha) && g.armed.CompareAndSwap(true, false)
		err := next(ctx, cmd)
		if held {
			<-g.let
		}
		return err
	}
}

func (*laggard) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A waiter is notified when to make an attempt, and an older reply to another one of its
// process comes after that: the attempt is not postponed.
func TestOlderReplyDoesNotPostponeARecheck(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), luatomictest.Client(t)
	late := &laggard{sha: lab.Digest(&lockscript.SemAcquireScript), let: make(chan struct{})}
	c.AddHook(late)
	lua.Direct(c) // the hook sees no shared round trip
	queued := make(chan struct{}, 2)
	s, l, name, _ := newSemaphore(t, 2, &lock.Options{TTL: time.Minute})
	mine := lab.Locker(t, c, &lock.Options{TTL: time.Minute, Observe: func(e lock.Event) {
		if e.Kind == lock.EventQueued {
			queued <- struct{}{}
		}
	}})
	held, err := s.Try(ctx, 1)
	require.NoError(t, err)
	_, err = l.With(lock.Options{TTL: 4 * time.Second}).Semaphore(name, 2).Try(ctx, 1) // and dies
	require.NoError(t, err)
	both := acquiring(ctx, mine.Semaphore(name, 2), 2)
	lab.Soon(t, 20*time.Second, "the first waits", queued)
	late.armed.Store(true)
	one := acquiring(ctx, mine.Semaphore(name, 2), 1)
	waitForPermits(t, s, 2)

	other, err := mine.Try(ctx, name)
	require.NoError(t, err)
	kept := other.Keep(ctx)
	require.NoError(t, held.Release(ctx)) // the first makes an attempt when the dead one's lease is over
	_, err = l.Steal(ctx, name)
	require.NoError(t, err)
	<-kept.Done()
	require.ErrorIs(t, context.Cause(kept), lock.ErrRevoked, "what was published before was received, too")
	close(late.let)
	next := lab.Soon(t, 15*time.Second, "both permits", both) // half of the time between two attempts
	require.NoError(t, next.Err)
	require.NoError(t, next.Lease.Release(ctx))
	require.NoError(t, permit(t, one).Release(ctx))
}
