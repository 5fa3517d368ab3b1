package lease

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
	l, f, _ := held(t, Terms{Name: "x", TTL: 30 * time.Millisecond})
	f.answer(context.DeadlineExceeded, nil)
	kept := l.Keep(t.Context())
	select {
	case <-kept.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("the context lives on")
	}
	require.False(t, time.Now().Before(l.Deadline()))
	require.EqualError(t, context.Cause(kept), `lost: "x" was not extended in time`)
	require.Positive(t, f.extensions())
}
