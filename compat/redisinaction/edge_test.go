package redisinaction_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/redisinaction"
	"github.com/luatomic/luatomic/compat/redisinaction/internal/script"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// An item that cannot be moved to malformed: is retried with back-off, and the error names the cause.
func TestWorkerThatCannotPutAsideWaits(t *testing.T) {
	t.Parallel()
	c, r, prefix := own(t)
	ctx, cancel := context.WithCancel(bounded(t))
	require.NoError(t, r.Set(ctx, prefix+"malformed:", "no list", 0).Err())
	require.NoError(t, r.RPush(ctx, prefix+"queue:q", "no item").Err())
	var reports []time.Time
	w := newWorker(t, c, "w", func(item redisinaction.Item, err error) {
		require.ErrorIs(t, err, lua.ErrWrongType)
		require.NotErrorIs(t, err, redisinaction.ErrMalformed)
		require.Equal(t, "no item", string(item.Raw))
		if reports = append(reports, time.Now()); len(reports) == 4 {
			cancel()
		}
	}, "q")
	require.ErrorIs(t, w.Run(ctx, func(context.Context, redisinaction.Item) error { return nil }), context.Canceled)
	require.GreaterOrEqual(t, reports[3].Sub(reports[0]), 300*time.Millisecond, "50 + 100 + 200, less what timers lack")
	require.Equal(t, []string{"no item"}, r.LRange(context.Background(), prefix+"working:w", 0, -1).Val())
}

// calls counts the round trips of a client.
type calls struct{ n atomic.Int32 }

func (c *calls) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *calls) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (c *calls) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.n.Add(1)
		return next(ctx, cmd)
	}
}

// The cost of a poll is bounded however many items are due for a queue that refuses them.
func TestPollBehindAQueueThatTakesNone(t *testing.T) {
	t.Parallel()
	c, r, prefix := own(t)
	ctx := bounded(t)
	require.NoError(t, r.Set(ctx, prefix+"queue:bad", "no list", 0).Err())
	for range 30 {
		members := make([]redis.Z, 1000)
		for i := range members {
			members[i] = redis.Z{Score: 1, Member: fmt.Sprintf(`["%d %d", "bad", "name", []]`,
				time.Now().UnixNano(), i)}
		}
		require.NoError(t, r.ZAdd(ctx, prefix+"delayed:", members...).Err())
	}
	require.NoError(t, r.ZAdd(ctx, prefix+"delayed:", redis.Z{Score: 0.5, Member: item("good")}).Err())
	counted := &calls{}
	r.AddHook(counted)
	out, err := c.PollQueue(ctx)
	require.ErrorIs(t, err, redisinaction.ErrQueueRefused)
	require.Equal(t, 1, out.Moved)
	require.Less(t, counted.n.Load(), int32(60), "two for each 500 items, up to 10 000")
	next, ok := out.NextDue.Get()
	require.True(t, !ok || next.After(out.Now), "refused items do not make the next poll immediate")
}

// An item that has left the worker's list, by another call or for good, is not added to malformed:.
func TestQuarantineOfAnItemThatHasLeft(t *testing.T) {
	t.Parallel()
	c, ctx, p := luatomictest.Client(t), t.Context(), luatomictest.Namespace(t)
	require.NoError(t, c.RPush(ctx, p+"w", "other").Err())
	n, err := script.Quarantine(ctx, c, script.QuarantineParams{Working: p + "w", Malformed: p + "m",
		Body: []byte("a")})
	require.NoError(t, err)
	require.Zero(t, n)
	require.Zero(t, c.Exists(ctx, p+"m").Val())
	require.Equal(t, []string{"other"}, c.LRange(ctx, p+"w", 0, -1).Val())
}
