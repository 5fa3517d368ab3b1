package queue_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

func pushShards(t *testing.T, s *queue.Shards, jobs ...queue.Job) queue.ShardsPushed {
	t.Helper()
	out, err := s.Push(t.Context(), jobs...)
	require.NoError(t, err)
	return out
}

func TestShardsPush(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, c := newShards(t, 4)
	jobs := []queue.Job{{ID: "a", Body: []byte("A")}, {Unique: "u"}, {ID: "later", Delay: time.Hour}, {ID: "a"},
		{ID: "x", Unique: "u"}, {}}
	out := pushShards(t, s, jobs...)
	require.Equal(t, []string{"a", out.IDs[1], "later", "a", "x", out.IDs[5]}, out.IDs)
	require.Len(t, out.IDs[1], 27, "a new id has a form of its own")
	require.Equal(t, 3, out.Ready)
	require.Equal(t, 1, out.Scheduled)
	require.ElementsMatch(t, []queue.Duplicate{{Position: 3, ID: "a"}, {Position: 4, ID: out.IDs[1]}}, out.Duplicates)
	require.False(t, out.Now.IsZero())
	require.Empty(t, jobs[1].ID, "the caller's jobs are unchanged")

	// A unique name is held across pushes, whatever the ids.
	for i := range 20 {
		again := pushShards(t, s, queue.Job{ID: fmt.Sprint("other", i), Unique: "u"})
		require.Equal(t, []queue.Duplicate{{ID: out.IDs[1]}}, again.Duplicates)
	}
	total, err := s.Stats(ctx)
	require.NoError(t, err)
	require.Equal(t, 3, total.Ready)

	repeat, err := s.PushOnce(ctx, out.Token, jobs...)
	require.NoError(t, err)
	require.Equal(t, out, repeat)
	nothing := pushShards(t, s)
	require.Empty(t, nothing.Parts)
	require.Equal(t, int64(0), c.Exists(ctx, lab.Key(s.Queues()[0], "w")).Val())
}

// Ids generated for the call are new and need no look-up. Ids of an old token need one, since the jobs may exist
// after the receipts have expired. The guard is newToken in Shards.add.
func TestShardsLookUpOnlyIDsThatMayExist(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := luatomictest.StartServer(t).Client()
	s, err := queue.NewShards(c, "q", 3, nil)
	require.NoError(t, err)
	looked := func() int64 {
		info, err := c.InfoMap(ctx, "commandstats").Result()
		require.NoError(t, err)
		if line, ok := info["Commandstats"]["cmdstat_hexists"]; ok {
			return lab.StatCalls(t, line)
		}
		return 0
	}
	out := pushShards(t, s, lab.Bodies(30)...)
	require.Zero(t, looked())
	for _, q := range s.Queues() {
		require.NoError(t, c.Del(ctx, lab.Key(q, "i:"+out.Token)).Err())
	}
	again, err := s.PushOnce(ctx, out.Token, lab.Bodies(30)...)
	require.NoError(t, err)
	require.Zero(t, again.Ready)
	require.Len(t, again.Duplicates, 30, "the ids are those of the token")
	require.Positive(t, looked())
	pushShards(t, s, queue.Job{ID: "mine"})
	mixed := pushShards(t, s, append(lab.Bodies(30), queue.Job{ID: "mine"})...)
	require.Equal(t, []queue.Duplicate{{Position: 30, ID: "mine"}}, mixed.Duplicates)
}

func TestShardsPushRefusesBeforeAnyIO(t *testing.T) {
	t.Parallel()
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer c.Close()
	s, err := queue.NewShards(c, "n", 4, nil)
	require.NoError(t, err)
	ok := func(n int) []queue.Job { return lab.Bodies(n) }
	for name, test := range map[string]struct {
		token string
		jobs  []queue.Job
		want  error
	}{
		"token":  {"a{", ok(1), lua.ErrBadName},
		"id":     {"t", append(ok(20), queue.Job{ID: "a\nb"}), lua.ErrBadName},
		"unique": {"t", append(ok(20), queue.Job{Unique: strings.Repeat("x", 129)}), lua.ErrBadName},
		"delay":  {"t", append(ok(20), queue.Job{Delay: -1}), lua.ErrOutOfRange},
		"jobs":   {"t", ok(queue.MaxBatch + 1), lua.ErrTooLarge},
		"bytes":  {"t", []queue.Job{{Body: make([]byte, 600_000)}, {Body: make([]byte, 600_000)}}, lua.ErrTooLarge},
	} {
		out, err := s.PushOnce(t.Context(), test.token, test.jobs...)
		require.ErrorIs(t, err, test.want, name)
		require.ErrorContains(t, err, `luatomic: push to shards of "n": `, name)
		require.Equal(t, queue.ShardsPushed{}, out)
	}
}
