package main

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// Many queues on a server that is far away are shown: they are read abreast, and each answer has a time of its own.
func TestTopReadsQueuesAbreast(t *testing.T) {
	t.Parallel()
	const n = 40
	e, client := shared(t), redis.NewClient(luatomictest.Client(t).Options())
	defer client.Close()
	for i := range n {
		e.pushMany(fmt.Sprint("q", i), "job", 1, queue.Job{})
	}
	h := lab.NewTogether(8, "hmget")
	client.AddHook(h)
	r := newTopReader(client, e.prefix)
	r.read(t.Context())
	require.NoError(t, r.view.away)
	require.NoError(t, r.view.queues.err)
	require.Len(t, r.view.queues.rows, n)
	for _, row := range r.view.queues.rows {
		require.Equal(t, 1, row.Ready)
	}
	require.Greater(t, h.Deadlines(), 1, "times by which answers have to be there")
}
