package lock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	lockscript "github.com/luatomic/luatomic/gen/lock"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/luatomictest"
)

func TestMaxHoldEndsAKeptLease(t *testing.T) {
	lab.Long(t)
	t.Parallel()
	ctx := t.Context()
	l, name, _ := lab.NewLocker(t, &lock.Options{TTL: 6 * time.Second, MaxHold: 9 * time.Second})
	start := time.Now()
	err := l.Do(ctx, name, func(ctx context.Context, lease *lock.Lease) error {
		<-ctx.Done()
		require.ErrorIs(t, context.Cause(ctx), lock.ErrMaxHold)
		require.ErrorIs(t, lease.Extend(ctx), lock.ErrMaxHold)
		return nil
	})
	require.ErrorIs(t, err, lock.ErrMaxHold)
	require.ErrorIs(t, err, lock.ErrLost)
	require.GreaterOrEqual(t, time.Since(start), 8990*time.Millisecond)
	next, err := lab.Locker(t, luatomictest.Client(t), nil).Acquire(ctx, name)
	require.NoError(t, err, "the server does not hold it for longer either")
	require.NoError(t, next.Release(ctx))
}

// renewed returns when a lease of 8 s was renewed in its turn: the first renewal, which comes with the subscription,
// moves its first deadline by less.
func renewed(t *testing.T, lease *lock.Lease, first time.Time) {
	t.Helper()
	luatomictest.Eventually(t, 30*time.Second, "the lease is renewed in its turn", func() bool {
		return lease.Deadline().Sub(first) > 2*time.Second
	})
}

// The leases of AcquireAll in one slot have one token: each is renewed, and one that
// is stolen ends alone.
func TestLeasesOfOneTokenAreKeptOneByOne(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c, space := luatomictest.Client(t), luatomictest.Namespace(t)
	opts := &lock.Options{TTL: 8 * time.Second, Tag: space}
	l, other := lab.Locker(t, c, opts), lab.Locker(t, luatomictest.Client(t), opts)
	all, err := l.AcquireAll(ctx, "a", "b", "c")
	require.NoError(t, err)
	var first []time.Time
	var kept []context.Context
	for _, lease := range all {
		first, kept = append(first, lease.Deadline()), append(kept, lease.Keep(ctx))
	}
	for i, lease := range all {
		renewed(t, lease, first[i])
	}
	require.NoError(t, all.Err())
	_, err = other.Steal(ctx, "b")
	require.NoError(t, err)
	<-kept[1].Done()
	require.ErrorIs(t, all[1].Err(), lock.ErrLost)
	require.NoError(t, all[0].Err())
	require.NoError(t, all[2].Err())
	require.NoError(t, all[0].Extend(ctx))
	require.ErrorIs(t, all.Release(ctx), lock.ErrLost)
}

// The context of a second Keep is no later than that of the first, nor are children.
func TestEveryKeepSeesTheEnd(t *testing.T) {
	t.Parallel()
	c, proxy := proxied(t, luatomictest.URL(t))
	l := lab.Locker(t, c, &lock.Options{TTL: 3 * time.Second})
	lease, err := l.Try(t.Context(), luatomictest.Namespace(t))
	require.NoError(t, err)
	proxy.Blackhole(true)
	defer proxy.Blackhole(false)
	parent, cancel := context.WithCancel(t.Context())
	first, second, third := lease.Keep(t.Context()), lease.Keep(t.Context()), lease.Keep(parent)
	child, stop := context.WithCancel(first)
	defer stop()
	cancel()
	require.ErrorIs(t, third.Err(), context.Canceled)
	require.NoError(t, first.Err())
	require.NoError(t, second.Err(), "each ends with its own parent")
	pauseFor(time.Until(lease.Deadline()) - 5*time.Millisecond)
	for lease.Err() == nil {
		continue
	}
	require.Error(t, second.Err())
	require.Error(t, first.Err())
	<-child.Done()
	for _, ctx := range []context.Context{first, second, child} {
		require.ErrorIs(t, context.Cause(ctx), lock.ErrLost)
	}
	require.Error(t, lease.Keep(t.Context()).Err(), "a lease that is over is not kept")
}

// The server counts in milliseconds; the holder must not believe in more.
func TestDeadlineIsThatOfWholeMilliseconds(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	l, name, c := lab.NewLocker(t, &lock.Options{TTL: 100*time.Millisecond + 900*time.Microsecond})
	lease, err := l.Try(ctx, name)
	require.NoError(t, err)
	end := time.Now()
	require.LessOrEqual(t, c.PTTL(ctx, "lock:{"+name+"}").Val(), 1101*time.Millisecond,
		"lease, afterlife, and one for the clock")
	require.LessOrEqual(t, lease.Deadline().Sub(end), 100*time.Millisecond)
	l = l.With(lock.Options{TTL: time.Minute, Claim: time.Millisecond})
	holder, err := l.Try(ctx, name+"2")
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- l.Do(ctx, name+"2", func(context.Context, *lock.Lease) error { return nil }) }()
	lab.WaitFor(t, l, name+"2", 1)
	require.NoError(t, holder.Release(ctx))
	if err := lab.Soon(t, 30*time.Second, "with the shortest claim", done); err != nil {
		require.ErrorIs(t, err, lock.ErrLost, "a millisecond may be over before the first renewal")
	}
}

// A late release or extend, which asks for the string to stay for its own time, does
// not shorten the life of another's: the guard is the PEXPIREAT of both scripts.
func TestLateCallsLeaveTheStringItsTime(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	l, name, c := lab.NewLocker(t, &lock.Options{TTL: time.Hour})
	lease, err := l.Try(ctx, name)
	require.NoError(t, err)
	_, err = lockscript.Release(ctx, c, lockscript.ReleaseParams{
		Lock: lease.Key(), Queue: "lockq:{" + name + "}", Owner: "late",
	})
	require.NoError(t, err)
	require.Greater(t, c.PTTL(ctx, lease.Key()).Val(), 59*time.Minute)
	_, err = lockscript.Extend(ctx, c, lockscript.ExtendParams{
		Lock: lease.Key(), Owner: "late", TTL: time.Second,
	})
	require.NoError(t, err)
	require.Greater(t, c.PTTL(ctx, lease.Key()).Val(), 59*time.Minute)
}

// A later Keep ends with its own parent and with the lease, and not with the first
// one's parent.
func TestKeepOutlivesTheFirstOne(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	l, name, _ := lab.NewLocker(t, &lock.Options{TTL: time.Minute})
	lease, err := l.Try(ctx, name)
	require.NoError(t, err)
	parent, cancel := context.WithCancel(ctx)
	before, first := lease.Keep(parent), lease.Keep(ctx)
	cancel()
	<-before.Done()
	after := lease.Keep(ctx)
	for range 10 {
		require.NoError(t, lease.Extend(ctx))
	}
	for _, kept := range []context.Context{first, after} {
		require.NoError(t, kept.Err())
	}
	require.NoError(t, lease.Release(ctx))
	for _, kept := range []context.Context{first, after} {
		<-kept.Done()
		require.ErrorIs(t, context.Cause(kept), lock.ErrReleased)
	}
	require.ErrorIs(t, context.Cause(before), context.Canceled)
}

// A lease that was noticed to be over stays so, although a renewal was on its way and
// the server had it longer.
func TestExtendOfALeaseThatEndsMeanwhileSaysSo(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), luatomictest.Client(t)
	l := lab.Locker(t, c, &lock.Options{TTL: 300 * time.Millisecond})
	lease, err := l.Try(ctx, luatomictest.Namespace(t))
	require.NoError(t, err)
	kept := lease.Keep(ctx)
	c.AddHook(&lab.Around{Sha: lab.Digest(&lockscript.ExtendScript), Do: func(run func() error) error {
		err := run()
		<-kept.Done()
		return err
	}})
	require.ErrorIs(t, lease.Extend(ctx), lock.ErrLost)
	require.ErrorIs(t, lease.Err(), lock.ErrLost)
}

// A release of the lock inside Do, or of the leadership inside Lead, is no loss.
func TestReleaseInsideDoIsNoLoss(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	l, name, _ := lab.NewLocker(t, &lock.Options{TTL: time.Minute})
	require.NoError(t, l.Do(ctx, name, func(ctx context.Context, lease *lock.Lease) error {
		require.NoError(t, lease.Release(ctx))
		<-ctx.Done()
		return nil
	}))
	require.NoError(t, l.Election(name).Lead(ctx, "v", func(ctx context.Context, lead *lock.Leadership) error {
		return lead.Resign(ctx)
	}))
	err := l.Do(ctx, name, func(ctx context.Context, lease *lock.Lease) error {
		_, err := l.ForceRelease(ctx, name, lease.Fence())
		return err
	})
	require.ErrorIs(t, err, lock.ErrLost)
}

// A lease whose context has ended and that was not released runs out: it is no lock for ever.
func TestKeepEndsWithItsContext(t *testing.T) {
	lab.Long(t)
	t.Parallel()
	ctx := t.Context()
	l, name, _ := lab.NewLocker(t, &lock.Options{TTL: 8 * time.Second})
	lease, err := l.Try(ctx, name)
	require.NoError(t, err)
	request, end := context.WithCancel(ctx)
	kept := lease.Keep(request)
	renewed(t, lease, lease.Deadline())
	require.NoError(t, kept.Err(), "it is renewed while the context lives")
	end()
	next, err := l.Acquire(ctx, name)
	require.NoError(t, err)
	require.ErrorIs(t, lease.Err(), lock.ErrLost)
	require.Greater(t, next.Fence(), lease.Fence())
	require.NoError(t, next.Release(ctx))
}
