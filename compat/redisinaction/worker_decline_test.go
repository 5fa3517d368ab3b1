package redisinaction_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/redisinaction"
)

// An item that this worker cannot run stays whole for another one, in either form, and holds up no other.
func TestADeclinedItemGoesToTheEndOfItsQueue(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	c, r, prefix := own(t)
	unknown := []string{`["id",  "q", "unknown", []]`, `["unknown", [2]]`}
	require.NoError(t, r.RPush(ctx, prefix+"queue:q", unknown[0], unknown[1], `["id2", "q", "known", []]`).Err())
	running, stop := context.WithCancel(ctx)
	reports := make(chan error, 100)
	w := newWorker(t, c, "w", func(_ redisinaction.Item, err error) { reports <- err }, "q")
	err := w.Run(running, func(_ context.Context, item redisinaction.Item) error {
		if item.Name != "known" {
			return redisinaction.Decline(errors.New("no such function"))
		}
		stop()
		return nil
	})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, unknown, r.LRange(ctx, prefix+"queue:q", 0, -1).Val())
	require.Empty(t, r.LRange(ctx, prefix+"working:w", 0, -1).Val())
	require.Len(t, reports, 1, "of the first item; the second is the second of its kind")
	err = <-reports
	require.ErrorIs(t, err, redisinaction.ErrDeclined)
	require.ErrorContains(t, err, "another worker of its queue may run it then (1 so far)")
}

// An item that nobody runs is kept, and ends in malformed:.
func TestAnItemDeclinedForTooLongIsMalformed(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	c, r, prefix := own(t)
	const item = `["id",  "q", "unknown", []]`
	require.NoError(t, r.RPush(ctx, prefix+"queue:q", item).Err())
	running, stop := context.WithCancel(ctx)
	var last error
	w, err := c.NewWorker("w", []string{"q"}, &redisinaction.WorkerOptions{Declined: time.Nanosecond,
		OnError: func(_ redisinaction.Item, err error) { last = err }})
	require.NoError(t, err)
	runs := 0
	err = w.Run(running, func(_ context.Context, item redisinaction.Item) error {
		if item.Name == "stop" {
			stop()
			return nil
		}
		if runs++; runs == 2 {
			require.NoError(t, r.RPush(ctx, prefix+"queue:q", `["stop", []]`).Err())
		}
		return redisinaction.Decline(fmt.Errorf("no function %q", item.Name))
	})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 2, runs)
	require.ErrorContains(t, last, "it goes to malformed:")
	require.Equal(t, []string{item}, r.LRange(ctx, prefix+"malformed:", 0, -1).Val())
	require.Empty(t, r.LRange(ctx, prefix+"queue:q", 0, -1).Val())
}

// An item that comes again early is waited for: the worker does not spin.
func TestAnItemThatComesAgainEarlyIsWaitedFor(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	c, r, prefix := own(t)
	require.NoError(t, r.RPush(ctx, prefix+"queue:q", `["unknown", []]`).Err())
	running, stop := context.WithCancel(ctx)
	var times []time.Time
	err := newWorker(t, c, "w", nil, "q").Run(running, func(context.Context, redisinaction.Item) error {
		if times = append(times, time.Now()); len(times) == 4 {
			stop()
		}
		return redisinaction.Decline(errors.New("no such function"))
	})
	require.ErrorIs(t, err, context.Canceled)
	require.GreaterOrEqual(t, times[2].Sub(times[0]), 900*time.Millisecond)
	require.Len(t, append(r.LRange(ctx, prefix+"queue:q", 0, -1).Val(),
		r.LRange(ctx, prefix+"working:w", 0, -1).Val()...), 1)
}
