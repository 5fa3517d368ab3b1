package sidekiq_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/compat/sidekiq/internal/script"
	"github.com/luatomic/luatomic/luatomictest"
)

// A take whose reply was lost is retried after another process has put back some of its jobs: the retry returns the
// jobs that are left in the hash, and overwrites none.
func TestATakeWritesOverNoJobInHand(t *testing.T) {
	t.Parallel()
	c, ctx := luatomictest.Client(t), t.Context()
	p := luatomictest.Namespace(t) + ":"
	require.NoError(t, handed(ctx, c, p))
	left := inFlightOf(p, "b", `{"jid":"left"}`)
	require.NoError(t, c.HSet(ctx, p+"working", "11", left, "last", 12).Err())
	params := takeParams(p)
	params.First, params.Want = 10, 3
	r, err := script.WorkerTake(ctx, c, params)
	require.NoError(t, err)
	require.Equal(t, left, c.HGet(ctx, p+"working", "11").Val())
	require.Equal(t, []script.WorkerTakeJob{{ID: 11, Queue: p + "queue:b", Payload: []byte(`{"jid":"left"}`)}}, r.Jobs)
	require.EqualValues(t, 3, c.LLen(ctx, p+"queue:a").Val(), "the others are for the next take")
	require.EqualValues(t, 12, r.Last)

	params.First = r.Last + 1
	r, err = script.WorkerTake(ctx, c, params)
	require.NoError(t, err)
	require.Len(t, r.Jobs, 3)
	require.EqualValues(t, 15, r.Last)
}

// A copy of a take that arrives after its jobs are finished takes no others: the process would not learn of them.
func TestALateCopyOfATakeTakesNothing(t *testing.T) {
	t.Parallel()
	c, ctx := luatomictest.Client(t), t.Context()
	p := luatomictest.Namespace(t) + ":"
	require.NoError(t, c.LPush(ctx, p+"queue:a", "A", "B", "C").Err())
	take := func(first, want int64, done ...int64) script.WorkerTakeResult {
		params := takeParams(p)
		params.First, params.Want, params.Dones = first, want, done
		r, err := script.WorkerTake(ctx, c, params)
		require.NoError(t, err)
		return r
	}
	require.Equal(t, "A", string(take(1, 1).Jobs[0].Payload))
	require.Equal(t, "B", string(take(2, 1, 1).Jobs[0].Payload))
	late := take(1, 1)
	require.Empty(t, late.Jobs)
	require.EqualValues(t, 2, late.Last)
	require.Equal(t, []string{"C"}, c.LRange(ctx, p+"queue:a", 0, -1).Val())
	require.Empty(t, take(2, 0, 2).Jobs)
	require.Empty(t, take(1, 500).Jobs, "nothing is in flight any more")
	require.Equal(t, "C", string(take(3, 1).Jobs[0].Payload))
}

// A copy of a take may arrive after another process has put the jobs of this one back. What it took would have the
// numbers of jobs that the process still works on: their ends would delete jobs that nobody performed.
func TestALateCopyOfATakeAfterARescueTakesNothing(t *testing.T) {
	t.Parallel()
	c, ctx := luatomictest.Client(t), t.Context()
	p := luatomictest.Namespace(t) + ":"
	require.NoError(t, c.LPush(ctx, p+"queue:a", "A", "B").Err())
	take := func(first, want int64, done ...int64) script.WorkerTakeResult {
		params := takeParams(p)
		params.First, params.Want, params.Dones = first, want, done
		r, err := script.WorkerTake(ctx, c, params)
		require.NoError(t, err)
		return r
	}
	require.Len(t, take(1, 2).Jobs, 2)
	require.NoError(t, c.ZAdd(ctx, p+"processes", redis.Z{Score: 1, Member: "new"}).Err())
	r, err := script.WorkerReturn(ctx, c, returnParams(p, "new", 2, 1))
	require.NoError(t, err)
	require.Equal(t, script.WorkerReturnResult{Returned: 2}, r)
	ttl := c.TTL(ctx, p+"working").Val()

	copied := take(1, 2)
	take(3, 0, 1) // the process has finished what it had before
	require.Equal(t, []string{"B", "A"}, c.LRange(ctx, p+"queue:a", 0, -1).Val())
	require.Empty(t, copied.Jobs)
	require.Positive(t, ttl, "nothing stays of a process that does not come back")

	require.Equal(t, "A", string(take(3, 1).Jobs[0].Payload))
	require.EqualValues(t, -1, c.TTL(ctx, p+"working").Val(), "a job in flight does not expire")
}

// The request of a take that the network held back may arrive after its process has ended.
func TestATakeAfterTheEndOfItsProcessTakesNothing(t *testing.T) {
	t.Parallel()
	c, ctx := luatomictest.Client(t), t.Context()
	p := luatomictest.Namespace(t) + ":"
	require.NoError(t, c.LPush(ctx, p+"queue:a", "A", "B").Err())
	params := takeParams(p)
	params.First, params.Want, params.Dones = 1, 1, nil
	_, err := script.WorkerTake(ctx, c, params)
	require.NoError(t, err)
	end := returnParams(p, "new", 1)
	end.Lapsed = false
	r, err := script.WorkerReturn(ctx, c, end)
	require.NoError(t, err)
	require.Equal(t, script.WorkerReturnResult{Returned: 1}, r)

	params.First, params.Want = 2, 500
	late, err := script.WorkerTake(ctx, c, params)
	require.NoError(t, err)
	require.Empty(t, late.Jobs)
	require.Equal(t, []string{"B", "A"}, c.LRange(ctx, p+"queue:a", 0, -1).Val())
	require.Zero(t, c.ZCard(ctx, p+"processes").Val())
	require.Positive(t, c.TTL(ctx, p+"working").Val())
}

// The copy of a take that found nothing may arrive when there are jobs: the process, which waits for them, would not
// learn of what it took.
func TestALateCopyOfATakeThatFoundNothingTakesNothing(t *testing.T) {
	t.Parallel()
	c, ctx := luatomictest.Client(t), t.Context()
	for _, queues := range []int{2, 0} { // none of a process that is quiet
		p := luatomictest.Namespace(t) + ":"
		params := takeParams(p)
		params.First, params.Dones = 1, nil
		late := params
		params.Queues = params.Queues[:queues]
		r, err := script.WorkerTake(ctx, c, params)
		require.NoError(t, err)
		require.Empty(t, r.Jobs)
		require.Positive(t, c.TTL(ctx, p+"working").Val(), "nothing stays of a process that had no job")

		require.NoError(t, c.LPush(ctx, p+"queue:a", "A", "B").Err())
		copied, err := script.WorkerTake(ctx, c, late)
		require.NoError(t, err)
		require.Empty(t, copied.Jobs)
		require.Equal(t, []string{"B", "A"}, c.LRange(ctx, p+"queue:a", 0, -1).Val())
		late.First = r.Last + 1
		r, err = script.WorkerTake(ctx, c, late)
		require.NoError(t, err)
		require.Len(t, r.Jobs, 2)
		require.EqualValues(t, -1, c.TTL(ctx, p+"working").Val(), "a job in flight does not expire")

		late.First, late.Want = r.Last+1, 1
		_, err = script.WorkerTake(ctx, c, late)
		require.NoError(t, err)
		require.EqualValues(t, -1, c.TTL(ctx, p+"working").Val(), "nor when a take finds nothing beside it")
	}
}

// A take that finds nothing leaves its number and nothing else, one that asks for nothing not even that: it is no sign
// of life, and 0 is not counted.
func TestATakeOfNothingChangesNothing(t *testing.T) {
	t.Parallel()
	c, ctx := luatomictest.Client(t), t.Context()
	for _, want := range []int64{0, 4} {
		p := luatomictest.Namespace(t) + ":"
		require.NoError(t, handed(ctx, c, p))
		params := takeParams(p)
		params.Want, params.Dones = want, []int64{99}
		if want > 0 {
			require.NoError(t, c.Del(ctx, params.Queues...).Err())
		}
		before := workState(ctx, c, p)
		r, err := script.WorkerTake(ctx, c, params)
		require.NoError(t, err)
		require.Empty(t, r.Jobs)
		if want > 0 {
			require.Equal(t, params.First, r.Last)
			before["working"] = append(before["working"], fmt.Sprint("last ", r.Last))
		}
		require.Equal(t, before, workState(ctx, c, p))
	}
}

// A repeat has the jobs of the first call also when its queues are empty by then.
func TestARepeatedTakeHasTheSameJobs(t *testing.T) {
	t.Parallel()
	c, ctx := luatomictest.Client(t), t.Context()
	p := luatomictest.Namespace(t) + ":"
	require.NoError(t, handed(ctx, c, p))
	params := takeParams(p)
	first, err := script.WorkerTake(ctx, c, params)
	require.NoError(t, err)
	require.Len(t, first.Jobs, 4, "all that are in the queues")
	before := workState(ctx, c, p)
	again, err := script.WorkerTake(ctx, c, params)
	require.NoError(t, err)
	require.Equal(t, first.Jobs, again.Jobs)
	require.Equal(t, before, workState(ctx, c, p))
}

// The name of a queue is written once for each of its jobs, so it is not long.
func TestATakeRefusesALongQueue(t *testing.T) {
	t.Parallel()
	c, ctx := luatomictest.Client(t), t.Context()
	p := luatomictest.Namespace(t) + ":"
	long := p + strings.Repeat("q", 1001-len(p))
	require.NoError(t, c.LPush(ctx, long, "x").Err())
	params := takeParams(p)
	params.Queues, params.Dones = []string{long}, nil
	before := workState(ctx, c, p)
	_, err := script.WorkerTake(ctx, c, params)
	require.ErrorContains(t, err, "queue: at most 1000 bytes")
	require.Equal(t, before, workState(ctx, c, p))

	require.NoError(t, c.Rename(ctx, long, long[:1000]).Err())
	params.Queues = []string{long[:1000]}
	r, err := script.WorkerTake(ctx, c, params)
	require.NoError(t, err)
	require.Len(t, r.Jobs, 1)
}

// The jobs of a process whose lease is not there any more are put back as those of one whose lease is over.
func TestAReturnForAForgottenProcess(t *testing.T) {
	t.Parallel()
	c, ctx := luatomictest.Client(t), t.Context()
	p := luatomictest.Namespace(t) + ":"
	require.NoError(t, handed(ctx, c, p))
	r, err := script.WorkerReturn(ctx, c, returnParams(p, "forgotten", 1))
	require.NoError(t, err)
	require.Equal(t, script.WorkerReturnResult{Returned: 1, Left: 2}, r)
}

// A handler that ends its goroutine, as require does in a test, has failed; its slot is free again.
func TestHandlersThatEndTheirGoroutine(t *testing.T) {
	t.Parallel()
	s := newSite(t, sidekiq.V7)
	s.enqueue("default", payload("default", "a", ""), payload("default", "b", ""))
	opts := &sidekiq.WorkOptions{Concurrency: 1, Grace: 50 * time.Millisecond}
	end := s.work(s.d, opts, func(_ context.Context, j *sidekiq.Delivery) error {
		if j.JID == "a" {
			runtime.Goexit()
		}
		return nil
	})
	s.eventually("both are done", func() bool { return s.count("stat:processed") == 2 })
	require.Equal(t, sidekiq.Worked{Done: 1, Retried: 1}, end())
	require.Contains(t, s.members("retry")[0].Member, `"jid":"a"`)
}

// Without a handler each job would fail, and be dead after its retries.
func TestAWorkerWithoutAHandlerTakesNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t, sidekiq.V7)
	s.enqueue("default", payload("default", "a", ""))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err := s.d.Work(ctx, nil, nil)
	require.ErrorContains(t, err, "no handler")
	require.Len(t, s.list("default"), 1)
}
