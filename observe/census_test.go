package observe_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/observe"
	"github.com/luatomic/luatomic/queue"
)

// Queues are read abreast: many of them on a server that is far away take a few round trips, and not two each.
func TestACensusReadsQueuesAbreast(t *testing.T) {
	t.Parallel()
	const n = 40
	c, prefix, r := luatomictest.Client(t), luatomictest.Namespace(t), newRecorder()
	for i := range n {
		q, err := queue.New(c, fmt.Sprint("q", i), &queue.Options{Prefix: prefix})
		require.NoError(t, err)
		_, err = q.Push(t.Context(), queue.Job{})
		require.NoError(t, err)
	}
	client := redis.NewClient(c.Options())
	defer client.Close()
	client.AddHook(lab.NewTogether(8, "hmget"))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	require.NoError(t, (&observe.Census{Client: client, Prefix: prefix}).Read(ctx, r))
	for i := range n {
		require.Equal(t, 1, r.count[fmt.Sprintf("luatomic.queue.jobs luatomic q%d  ready", i)])
	}
}
