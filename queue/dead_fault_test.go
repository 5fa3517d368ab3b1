package queue_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// A requeue of the oldest whose reply is lost moves them once, and not the next ones too. The guard: the ids are
// read before.
func TestRequeueOfTheOldestAfterALostReply(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, direct := lab.NewQueue(t, nil)
	lab.Push(t, q, lab.Numbered(300, 0)...)
	taken, err := q.Take(ctx, 300)
	require.NoError(t, err)
	for i, d := range taken.Deliveries { // each died at another time
		require.NoError(t, direct.ZAdd(ctx, lab.Key(q, "d"), redis.Z{Score: float64(i + 1), Member: d.ID}).Err())
	}
	require.NoError(t, direct.Del(ctx, lab.Key(q, "l")).Err())
	_, err = q.Requeue(ctx, "none") // the server has the script now
	require.NoError(t, err)

	proxy := luatomictest.NewLossyProxy(t, luatomictest.URL(t))
	opts, err := redis.ParseURL(proxy.URL())
	require.NoError(t, err)
	c := redis.NewClient(opts)
	defer c.Close()
	lossy, err := queue.New(c, q.Name(), nil)
	require.NoError(t, err)
	sent := lab.Sent(&queuescript.RequeueScript)
	proxy.Drop(2, sent)
	n, err := lossy.Requeue(ctx)
	require.NoError(t, err)
	require.Equal(t, 200, n)
	require.Equal(t, 3, proxy.Executed(sent))
	after := stats(t, q)
	require.Equal(t, 200, after.Ready, "each once")
	require.Equal(t, 100, after.Dead)
	left, err := q.Peek(ctx, queue.Dead, 0, 1)
	require.NoError(t, err)
	require.Equal(t, "j200", left[0].ID, "the jobs that died first are requeued")

	n, err = lossy.Requeue(ctx)
	require.NoError(t, err)
	require.Equal(t, 100, n)
	n, err = lossy.Requeue(ctx)
	require.NoError(t, err)
	require.Zero(t, n)
}
