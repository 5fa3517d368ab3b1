package lab

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

func TakeOne(t *testing.T, q *queue.Queue) *queue.Delivery {
	t.Helper()
	taken, err := q.Take(t.Context(), 1)
	require.NoError(t, err)
	require.Len(t, taken.Deliveries, 1)
	return taken.Deliveries[0]
}

// Numbered returns n jobs with ids.
func Numbered(n int, delay time.Duration) []queue.Job {
	out := Bodies(n)
	for i := range out {
		out[i].ID, out[i].Delay = fmt.Sprint("j", i), delay
	}
	return out
}

func Push(t *testing.T, q *queue.Queue, jobs ...queue.Job) queue.Pushed {
	t.Helper()
	pushed, err := q.Push(t.Context(), jobs...)
	require.NoError(t, err)
	return pushed
}

// NewQueue returns a queue for the test.
func NewQueue(t testing.TB, opts *queue.Options) (*queue.Queue, *redis.Client) {
	t.Helper()
	client := luatomictest.Client(t)
	q, err := queue.New(client, luatomictest.Namespace(t), opts)
	require.NoError(t, err)
	return q, client
}

// Key returns the full name of one of the queue's keys.
func Key(q *queue.Queue, suffix string) string { return "{" + q.Name() + "}:" + suffix }

// Bodies returns n small jobs without ids.
func Bodies(n int) []queue.Job {
	jobs := make([]queue.Job, n)
	for i := range jobs {
		jobs[i].Body = fmt.Appendf(nil, "job %d", i)
	}
	return jobs
}

// Tagged returns n queues of one tag: a, b and so on.
func Tagged(t testing.TB, c lua.Client, tag string, n int) []*queue.Queue {
	t.Helper()
	out := make([]*queue.Queue, n)
	for i := range out {
		var err error
		out[i], err = queue.New(c, strings.Repeat(string(rune('a'+i%26)), 1+i/26), &queue.Options{Tag: tag})
		require.NoError(t, err)
	}
	return out
}
