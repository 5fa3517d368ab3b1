package queue_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/queue"
	"github.com/luatomic/luatomic/rpc"
)

func TestPushTakeAck(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	pushed, err := q.Push(ctx, queue.Job{ID: "a", Body: []byte("A")}, queue.Job{Body: []byte("B")})
	require.NoError(t, err)
	require.Equal(t, 2, pushed.Ready)
	require.Equal(t, "a", pushed.IDs[0])
	require.Len(t, pushed.IDs[1], 27, "a new id has a form of its own")

	taken, err := q.Take(ctx, 10)
	require.NoError(t, err)
	require.Len(t, taken.Deliveries, 2)
	first := taken.Deliveries[0]
	require.Equal(t, "a", first.ID)
	require.Equal(t, []byte("A"), first.Body)
	require.Equal(t, 1, first.Attempt)
	require.Equal(t, pushed.Now, first.EnqueuedAt, "one stamp for the batch, from the server")
	require.Equal(t, 30*time.Second, first.Deadline().Sub(taken.Now))

	require.NoError(t, q.Ack(ctx, taken.Deliveries...))
	left, err := c.Keys(ctx, lab.Key(q, "[^i]*")).Result()
	require.NoError(t, err)
	require.Equal(t, []string{lab.Key(q, "f")}, left, "a finished job leaves a mark, for its Receipt")
	require.LessOrEqual(t, c.TTL(ctx, lab.Key(q, "f")).Val(), 2*time.Hour+2*time.Second)
}

func TestBadNames(t *testing.T) {
	t.Parallel()
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1})
	defer c.Close()
	for name, rule := range map[string]string{
		"": "is empty", "a{b": "holds a brace", "}": "holds a brace", "a\x00b": "control character",
		strings.Repeat("n", 129): "has 129 bytes, at most 128",
	} {
		_, err := queue.New(c, name, nil)
		require.ErrorIs(t, err, lua.ErrBadName)
		require.ErrorContains(t, err, rule)
		_, err = lock.New(c, nil).Try(t.Context(), name)
		require.ErrorIs(t, err, lua.ErrBadName)
		_, err = rpc.New(c, name, nil)
		require.ErrorIs(t, err, lua.ErrBadName)
	}
	_, err := queue.New(c, "ok", &queue.Options{Prefix: "a{"})
	require.ErrorIs(t, err, lua.ErrBadName)
}
