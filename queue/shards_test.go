package queue_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

func newShards(t *testing.T, n int) (*queue.Shards, *redis.Client) {
	t.Helper()
	c := luatomictest.Client(t)
	s, err := queue.NewShards(c, luatomictest.Namespace(t), n, nil)
	require.NoError(t, err)
	return s, c
}

// homes is the shard of each id.
func homes(out queue.ShardsPushed) map[string]int {
	at := make(map[string]int)
	for _, p := range out.Parts {
		for _, id := range p.IDs {
			at[id] = p.Shard
		}
	}
	return at
}

func TestNewShards(t *testing.T) {
	t.Parallel()
	c := luatomictest.Client(t)
	for _, n := range []int{0, -1, queue.MaxShards + 1} {
		_, err := queue.NewShards(c, "n", n, nil)
		require.ErrorIs(t, err, lua.ErrOutOfRange)
	}
	_, err := queue.NewShards(c, "a{b", 2, nil)
	require.ErrorIs(t, err, lua.ErrBadName)
	s, err := queue.NewShards(c, "n", 2, &queue.Options{Prefix: "app:"})
	require.NoError(t, err)
	require.Equal(t, "n.0", s.Queues()[0].Name())
	require.Equal(t, "n.1", s.Queues()[1].Name())
}

// The shard of a job is part of the data: these must never change.
func TestShardsRouteNeverChanges(t *testing.T) {
	t.Parallel()
	s, _ := newShards(t, 7)
	out := pushShards(t, s, queue.Job{ID: "a"}, queue.Job{ID: "b"}, queue.Job{ID: "user:1"}, queue.Job{ID: "user:2"},
		queue.Job{ID: "é"}, queue.Job{ID: "elsewhere", Unique: "a"})
	require.Equal(t, map[string]int{"a": 0, "b": 2, "user:1": 3, "user:2": 6, "é": 6, "elsewhere": 0}, homes(out))
}

// Ids of any pattern spread evenly, generated ones too.
func TestShardsSpread(t *testing.T) {
	t.Parallel()
	for _, pattern := range []string{"", "user:%d0", "%d", "order-%08d"} {
		s, _ := newShards(t, 8)
		jobs := make([]queue.Job, 1000)
		for i := range jobs {
			if jobs[i].Delay = time.Hour; pattern != "" {
				jobs[i].ID = fmt.Sprintf(pattern, 2*i)
			}
		}
		out := pushShards(t, s, jobs...)
		require.Len(t, out.Parts, 8)
		require.Equal(t, 1000, out.Scheduled)
		for _, p := range out.Parts {
			require.InDelta(t, 125, p.Scheduled, 65, "%q, shard %d", pattern, p.Shard)
		}
	}
}
