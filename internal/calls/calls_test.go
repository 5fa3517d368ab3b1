package calls_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/calls"
)

func ended(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestCloseRefusesCallsAndKnowsTheLast(t *testing.T) {
	t.Parallel()
	g := calls.New()
	require.True(t, ended(calls.New().Close()), "nothing is under way")
	require.True(t, g.Begin())
	require.False(t, g.Add())
	require.False(t, ended(g.Closed()))
	none := g.Close()
	require.True(t, ended(g.Closed()))
	require.False(t, g.Begin())
	require.True(t, g.Add(), "counted after Close, too")
	for range 3 {
		require.False(t, ended(none))
		require.False(t, ended(g.Close()))
		g.End()
	}
	require.True(t, ended(none))
	require.True(t, g.Add())
	require.True(t, ended(none), "what begins later does not count")
	g.End()
	require.True(t, ended(g.Close()))
}

func TestABoundContextEndsWithClose(t *testing.T) {
	t.Parallel()
	closed := errors.New("closed")
	g := calls.New()
	own, cancel := context.WithCancel(t.Context())
	ended, free := g.Bind(own, closed)
	defer free()
	cancel()
	require.ErrorIs(t, context.Cause(ended), context.Canceled)
	open, free := g.Bind(context.Background(), closed)
	defer free()
	require.NoError(t, open.Err())
	g.Close()
	<-open.Done()
	require.Equal(t, closed, context.Cause(open))
	require.NotEqual(t, closed, context.Cause(ended))
	late, free := g.Bind(context.Background(), closed)
	defer free()
	<-late.Done()
	require.Equal(t, closed, context.Cause(late))
}

// Calls begin and end, also from zero, while Close waits.
func TestCallsMayBeginWhileCloseWaits(t *testing.T) {
	t.Parallel()
	g := calls.New()
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for g.Begin() {
				g.Add()
				g.End()
				g.End()
			}
			g.Add()
			g.End()
		})
	}
	<-g.Close()
	callers.Wait()
	require.False(t, g.Begin())
}
