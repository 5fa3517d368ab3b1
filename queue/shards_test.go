package queue_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/lab"
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

func pushShards(t *testing.T, s *queue.Shards, jobs ...queue.Job) queue.ShardsPushed {
	t.Helper()
	out, err := s.Push(t.Context(), jobs...)
	require.NoError(t, err)
	return out
}

// homes says for each id which shard it went to.
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

// Where a job goes is part of the data: these must never change.
func TestShardsRouteAsEver(t *testing.T) {
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

func TestShardsPush(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, c := newShards(t, 4)
	jobs := []queue.Job{{ID: "a", Body: []byte("A")}, {Unique: "u"}, {ID: "later", Delay: time.Hour}, {ID: "a"}, {ID: "x", Unique: "u"}, {}}
	out := pushShards(t, s, jobs...)
	require.Equal(t, []string{"a", out.IDs[1], "later", "a", "x", out.IDs[5]}, out.IDs)
	require.Len(t, out.IDs[1], 36, "a new id is a UUID")
	require.Equal(t, 3, out.Ready)
	require.Equal(t, 1, out.Scheduled)
	require.ElementsMatch(t, []queue.Duplicate{{Position: 3, ID: "a"}, {Position: 4, ID: out.IDs[1]}}, out.Duplicates)
	require.False(t, out.Now.IsZero())
	require.Empty(t, jobs[1].ID, "the jobs are the caller's")

	// A unique name holds from push to push, whatever the ids.
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

// Ids that are made for the call are new and not looked up; those of an old token are,
// since the jobs may be there when the receipts are gone. The guard is first in push.
func TestShardsLookUpOnlyWhatCanBeThere(t *testing.T) {
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
	mixed := pushShards(t, s, append(lab.Bodies(30), queue.Job{ID: out.IDs[0]})...)
	require.Equal(t, []queue.Duplicate{{Position: 30, ID: out.IDs[0]}}, mixed.Duplicates)
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

// One shard fails: the others have their jobs, the error names it, and the repeat adds
// what is missing and nothing else.
func TestShardsPushInPart(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, c := newShards(t, 4)
	broken := lab.Key(s.Queues()[2], "b")
	require.NoError(t, c.Set(ctx, broken, "x", 0).Err())
	jobs := lab.Bodies(100)
	out, err := s.Push(ctx, jobs...)
	require.ErrorIs(t, err, lua.ErrWrongType)
	require.ErrorContains(t, err, fmt.Sprintf("push to %q", s.Queues()[2].Name()))
	require.Len(t, out.Parts, 4)
	failed := out.Parts[2]
	require.ErrorIs(t, failed.Err, lua.ErrWrongType)
	require.Zero(t, failed.Ready)
	require.Equal(t, 100-len(failed.IDs), out.Ready)
	require.Len(t, out.IDs, 100)

	require.NoError(t, c.Del(ctx, broken).Err())
	again, err := s.PushOnce(ctx, out.Token, jobs...)
	require.NoError(t, err)
	require.Equal(t, 100, again.Ready, "those that were in answer as before")
	require.Equal(t, out.IDs, again.IDs)
	for i := range out.Parts {
		if i != 2 {
			require.Equal(t, out.Parts[i], again.Parts[i])
		}
	}
	total, err := s.Stats(ctx)
	require.NoError(t, err)
	require.Equal(t, 100, total.Ready, "nothing twice")
}

func TestShardsTakeIsFair(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, _ := newShards(t, 3)
	q := s.Queues()
	lab.Push(t, q[0], lab.Bodies(300)...)
	lab.Push(t, q[2], queue.Job{ID: "alone"})
	found := 0
	for round := range 3 {
		taken, err := s.Take(ctx, 10)
		require.NoError(t, err)
		require.Len(t, taken.Deliveries, 10)
		for _, d := range taken.Deliveries {
			if d.ID == "alone" {
				found++
			}
		}
		require.NoError(t, s.Ack(ctx, taken.Deliveries...), round)
	}
	require.Equal(t, 1, found, "within one round")
	taken, err := s.Take(ctx, 1000)
	require.NoError(t, err)
	require.Len(t, taken.Deliveries, 271, "all there is")
	require.False(t, taken.Now.IsZero())
	_, err = s.Take(ctx, 0)
	require.ErrorIs(t, err, lua.ErrOutOfRange)
}

// A shard that fails keeps nobody from the jobs of the others.
func TestShardsTakeInPart(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, c := newShards(t, 3)
	for _, q := range s.Queues() {
		lab.Push(t, q, queue.Job{}, queue.Job{Delay: time.Hour})
	}
	require.NoError(t, c.Del(ctx, lab.Key(s.Queues()[1], "b")).Err())
	require.NoError(t, c.Set(ctx, lab.Key(s.Queues()[1], "b"), "x", 0).Err())
	taken, err := s.Take(ctx, 10)
	require.ErrorIs(t, err, lua.ErrWrongType)
	require.ErrorContains(t, err, s.Queues()[1].Name())
	require.Len(t, taken.Deliveries, 2)
	require.False(t, taken.Paused)
	due, ok := taken.NextDue.Get()
	require.True(t, ok)
	require.WithinDuration(t, taken.Now.Add(time.Hour), due, time.Minute)

	// Ack: what is not the worker's any more is named, of whichever shard.
	for _, d := range taken.Deliveries {
		require.NoError(t, d.Return(ctx, time.Hour))
	}
	var lost *queue.LeaseLostError
	err = s.Ack(ctx, taken.Deliveries...)
	require.ErrorAs(t, err, &lost)
	require.Len(t, lost.IDs, 2)
	other, _ := lab.NewQueue(t, nil)
	lab.Push(t, other, queue.Job{ID: "foreign"})
	require.ErrorContains(t, s.Ack(ctx, lab.TakeOne(t, other)), `job "foreign" was not taken from these Shards`)
	require.NoError(t, s.Ack(ctx))
}

func TestShardsFromOutside(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, _ := newShards(t, 5)
	due := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	for i := range 10 {
		pushShards(t, s, queue.Job{ID: fmt.Sprint("ready", i)}, queue.Job{ID: fmt.Sprint("held", i), Unique: fmt.Sprint("u", i), At: due})
	}
	total, err := s.Stats(ctx)
	require.NoError(t, err)
	require.Equal(t, 10, total.Ready)
	require.Equal(t, 10, total.Scheduled)
	require.Len(t, total.Shards, 5)
	sum := 0
	for _, one := range total.Shards {
		sum += one.Ready + one.Scheduled
		require.False(t, one.Oldest.Or(total.Now).Before(total.Oldest.Or(time.Time{})))
	}
	require.Equal(t, 20, sum)
	require.Equal(t, due, total.NextDue.Or(time.Time{}))

	for i := range 10 { // wherever the unique name put them
		moved, err := s.Reschedule(ctx, fmt.Sprint("held", i), due.Add(time.Hour))
		require.NoError(t, err)
		require.True(t, moved.Found && moved.Moved)
		require.Equal(t, due.Add(time.Hour), moved.Due)
	}
	moved, err := s.Reschedule(ctx, "none", due)
	require.NoError(t, err)
	require.False(t, moved.Found)

	ids := []string{"none", "ready0", "held3", "held4", "ready9"}
	states, err := s.Cancel(ctx, ids...)
	require.NoError(t, err)
	require.Equal(t, []queue.State{queue.Absent, queue.Ready, queue.Scheduled, queue.Scheduled, queue.Ready}, states)
	require.Empty(t, pushShards(t, s, queue.Job{ID: "new", Unique: "u3", Delay: time.Hour}).Duplicates)

	require.NoError(t, s.Pause(ctx))
	taken, err := s.Take(ctx, 100)
	require.NoError(t, err)
	require.True(t, taken.Paused)
	require.Empty(t, taken.Deliveries)
	total, err = s.Stats(ctx)
	require.NoError(t, err)
	require.True(t, total.Paused)
	require.NoError(t, s.Resume(ctx))
	taken, err = s.Take(ctx, 100)
	require.NoError(t, err)
	require.Len(t, taken.Deliveries, 8)

	require.NoError(t, s.Queues()[0].SetLimit(ctx, 3))
	total, err = s.Stats(ctx)
	require.NoError(t, err)
	require.Zero(t, total.Limit, "one without a limit, all without")
	for _, q := range s.Queues() {
		require.NoError(t, q.SetLimit(ctx, 3))
	}
	total, err = s.Stats(ctx)
	require.NoError(t, err)
	require.Equal(t, 15, total.Limit)
}
