package queue_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/queue"
)

func TestShardsStatsCancelReschedulePause(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, _ := newShards(t, 5)
	due := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	for i := range 10 {
		pushShards(t, s, queue.Job{ID: fmt.Sprint("ready", i)},
			queue.Job{ID: fmt.Sprint("held", i), Unique: fmt.Sprint("u", i), At: due})
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

	for i := range 10 { // in the shards of their unique names
		moved, err := s.Reschedule(ctx, fmt.Sprint("held", i), due.Add(time.Hour))
		require.NoError(t, err)
		require.True(t, moved.Found)
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

func TestShardsBuryJobs(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, _ := newShards(t, 5)
	for i := range 10 {
		pushShards(t, s, queue.Job{ID: fmt.Sprint("ready", i)},
			queue.Job{ID: fmt.Sprint("held", i), Unique: fmt.Sprint("u", i), Delay: time.Hour})
	}
	states, err := s.BuryJobs(ctx, "bad batch", "none", "ready0", "held3", "held4", "ready9")
	require.NoError(t, err)
	require.Equal(t, []queue.State{queue.Absent, queue.Ready, queue.Scheduled, queue.Scheduled, queue.Ready}, states)
	var buried []string
	for _, q := range s.Queues() {
		peeked, err := q.Peek(ctx, queue.Dead, 0, 100)
		require.NoError(t, err)
		for _, p := range peeked {
			require.Equal(t, "bad batch", p.Reason)
			buried = append(buried, p.ID)
		}
	}
	require.ElementsMatch(t, []string{"ready0", "held3", "held4", "ready9"}, buried)
	taken, err := s.Take(ctx, 100)
	require.NoError(t, err)
	require.Len(t, taken.Deliveries, 8, "the others are ready")
}

// A job in another state than those named stays as it is, in whichever shard it is.
func TestShardsChangeJobsInTheStatesNamed(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, _ := newShards(t, 5)
	ids := []string{"none"}
	for i := range 10 {
		ready, held := fmt.Sprint("ready", i), fmt.Sprint("held", i)
		pushShards(t, s, queue.Job{ID: ready}, queue.Job{ID: held, Unique: fmt.Sprint("u", i), Delay: time.Hour})
		ids = append(ids, ready, held)
	}
	states := []queue.State{queue.Absent}
	for range 10 {
		states = append(states, queue.Ready, queue.Scheduled)
	}
	got, err := s.CancelIn(ctx, []queue.State{queue.Ready}, ids...)
	require.NoError(t, err)
	require.Equal(t, states, got)
	for i := 1; i < len(states); i += 2 {
		states[i] = queue.Absent
	}
	got, err = s.BuryJobsIn(ctx, []queue.State{queue.Ready}, "why", ids...)
	require.NoError(t, err)
	require.Equal(t, states, got, "the ready ones are cancelled, and no other")
	got, err = s.BuryJobsIn(ctx, []queue.State{queue.Scheduled}, "why", ids...)
	require.NoError(t, err)
	require.Equal(t, states, got, "the scheduled ones were left")
	total, err := s.Stats(ctx)
	require.NoError(t, err)
	require.Equal(t, []int{0, 10}, []int{total.Scheduled, total.Dead})
}

// A shard that fails has not said whether it has the job: a job of the same id in another shard is left alone.
func TestShardsEndNoOtherJobForAShardThatFails(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, c := newShards(t, 2)
	pushShards(t, s, queue.Job{ID: "twice"})
	total, err := s.Stats(ctx)
	require.NoError(t, err)
	home := s.Queues()[total.Shards[1].Ready]
	for i := 0; total.Ready < 2; i++ { // until the other shard has a job of this id
		pushShards(t, s, queue.Job{ID: "twice", Unique: fmt.Sprint("u", i)})
		total, err = s.Stats(ctx)
		require.NoError(t, err)
		require.Less(t, i, 64)
	}
	require.NoError(t, c.Del(ctx, lab.Key(home, "b")).Err())
	require.NoError(t, c.Set(ctx, lab.Key(home, "b"), "x", 0).Err())
	for what, end := range map[string]func() ([]queue.State, error){
		"cancel": func() ([]queue.State, error) { return s.Cancel(ctx, "twice") },
		"bury":   func() ([]queue.State, error) { return s.BuryJobs(ctx, "why", "twice") },
	} {
		states, err := end()
		require.ErrorIs(t, err, lua.ErrWrongType, what)
		require.Equal(t, []queue.State{queue.Absent}, states, what)
	}
}
