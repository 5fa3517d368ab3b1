package keeper

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestEveryContextOfALeaseEndsWithItsCause(t *testing.T) {
	t.Parallel()
	l, _, _ := held(t, Terms{TTL: time.Minute})
	first, cancel := context.WithCancel(t.Context())
	one := l.Keep(first)
	two := l.Keep(t.Context())
	cancel()
	<-one.Done()
	require.NoError(t, l.Err(), "the end of a context does not end the lease")
	require.NoError(t, two.Err())
	require.NoError(t, l.Release(t.Context()))
	<-two.Done()
	require.ErrorIs(t, context.Cause(two), errReleased)
	require.ErrorIs(t, context.Cause(l.Keep(t.Context())), errReleased, "one that comes later is over from the start")
}

func TestContextEndsAtTheDeadlineWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	l, f, _ := held(t, Terms{Name: "x", TTL: 6 * time.Second})
	f.answer(context.DeadlineExceeded, nil)
	kept := l.Keep(t.Context())
	select {
	case <-kept.Done():
	case <-time.After(30 * time.Second):
		t.Fatal("the context lives on")
	}
	require.False(t, time.Now().Before(l.Deadline()))
	require.EqualError(t, context.Cause(kept), `lost: "x" was not extended in time`)
	require.Positive(t, f.extensions())
}

func TestRenewalEndsWithTheContextsThatItIsFor(t *testing.T) {
	t.Parallel()
	l, f, k := held(t, Terms{TTL: time.Minute})
	renewed := func() bool {
		_, leases := renews(k, f.server)
		return leases == 1
	}
	ended := func() bool { return !renewed() }
	one, endOne := context.WithCancel(t.Context())
	two, endTwo := context.WithCancel(t.Context())
	l.KeepWhile(one)
	l.KeepWhile(two)
	require.True(t, renewed())
	endOne()
	require.Never(t, ended, 50*time.Millisecond, 5*time.Millisecond, "the other context lives")
	endTwo()
	require.Eventually(t, ended, 10*time.Second, time.Millisecond)
	require.NoError(t, l.Err(), "it runs out, and is not released")
	three, endThree := context.WithCancel(t.Context())
	kept := l.KeepWhile(three)
	require.True(t, renewed(), "a later call has it renewed again")
	endThree()
	<-kept.Done()
	require.Eventually(t, ended, 10*time.Second, time.Millisecond)
	require.NoError(t, l.Release(t.Context()))
	<-l.KeepWhile(t.Context()).Done()
}

// The function that runs under a lease may go on for a while after the end of its context.
func TestRunKeepsTheLeaseUntilItsFunctionReturns(t *testing.T) {
	t.Parallel()
	l, f, k := held(t, Terms{TTL: time.Minute})
	ctx, cancel := context.WithCancel(t.Context())
	require.NoError(t, l.Run(ctx, func(inner context.Context) error {
		other := l.KeepWhile(inner)
		cancel()
		<-other.Done()
		require.Never(t, func() bool { _, leases := renews(k, f.server); return leases == 0 },
			50*time.Millisecond, 5*time.Millisecond)
		return nil
	}))
}
