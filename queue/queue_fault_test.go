package queue_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// A job that is left out takes no unique name with it.
func TestDuplicateLeavesNoUniqueHold(t *testing.T) {
	t.Parallel()
	q, c := lab.NewQueue(t, nil)
	lab.Push(t, q, queue.Job{ID: "a"})
	require.Len(t, lab.Push(t, q, queue.Job{ID: "a", Unique: "u"}).Duplicates, 1)
	require.Zero(t, c.Exists(t.Context(), lab.Key(q, "u"), lab.Key(q, "ux")).Val())
	require.Empty(t, lab.Push(t, q, queue.Job{ID: "b", Unique: "u"}).Duplicates)
}

// Equal bodies are different jobs.
func TestIdenticalJobsStayApart(t *testing.T) {
	t.Parallel()
	q, _ := lab.NewQueue(t, nil)
	same := queue.Job{Body: []byte("same"), Delay: time.Millisecond}
	require.Equal(t, 3, lab.Push(t, q, same, same, same).Scheduled)
	out, err := q.Consume(t.Context(), &queue.ConsumeOptions{Drain: true}, func(context.Context, *queue.Delivery) error { return nil })
	require.NoError(t, err)
	require.Equal(t, 3, out.Acked)
}

// A job is cancelled, or rescheduled, while pollers move it: it is never both moved
// and changed, and never lost.
func TestCancelAndRescheduleWhileMoving(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, _ := lab.NewQueue(t, nil)
	const n = 300
	jobs := lab.Bodies(n)
	for i := range jobs {
		jobs[i].ID, jobs[i].Delay = fmt.Sprint("j", i), time.Duration(1+i%20)*time.Millisecond
	}
	lab.Push(t, q, jobs...)
	stop, cancel := context.WithCancel(ctx)
	var background sync.WaitGroup
	for range 2 {
		background.Go(func() { _ = queue.NewPoller(nil, q).Run(stop) })
	}
	cancelled, put := make(map[string]bool), make(map[string]bool)
	far := time.Now().Add(time.Hour)
	for i, j := range jobs {
		if i%2 == 0 {
			state, err := q.Cancel(ctx, j.ID)
			require.NoError(t, err)
			require.Contains(t, []queue.State{queue.Scheduled, queue.Ready}, state[0])
			cancelled[j.ID] = true
			continue
		}
		out, err := q.Reschedule(ctx, j.ID, far)
		require.NoError(t, err)
		put[j.ID] = out.Moved
	}
	luatomictest.Eventually(t, 30*time.Second, "the rest is ready", func() bool {
		s := stats(t, q)
		next, ok := s.NextDue.Get()
		return !ok || next.After(s.Now.Add(time.Minute))
	})
	cancel()
	background.Wait()
	got := make(map[string]bool)
	for {
		taken, err := q.Take(ctx, 100)
		require.NoError(t, err)
		if len(taken.Deliveries)+taken.Dropped == 0 {
			break
		}
		for _, d := range taken.Deliveries {
			require.False(t, got[d.ID], "delivered twice")
			got[d.ID] = true
		}
	}
	for _, j := range jobs {
		require.Equal(t, !cancelled[j.ID] && !put[j.ID], got[j.ID], j.ID)
	}
	scheduled := 0
	for _, moved := range put {
		if moved {
			scheduled++
		}
	}
	require.Equal(t, scheduled, stats(t, q).Scheduled)
}

// Very many jobs are due at once: each script is short, and others are served
// meanwhile. A million in the drill, a tenth of that else.
func TestManyDueAtOnceDoNotBlockTheServer(t *testing.T) {
	n := 100_000
	if os.Getenv("LUATOMIC_DRILL") != "" {
		n = 1_000_000
	}
	ctx := t.Context()
	c := luatomictest.StartServer(t).Client()
	q, err := queue.New(c, "q", nil)
	require.NoError(t, err)
	load := redis.NewScript(`for i = ARGV[1], ARGV[2] do redis.call('ZADD', KEYS[1], 1, 'job-' .. i) end return 1`)
	for i := 0; i < n; i += 10_000 {
		require.NoError(t, load.Run(ctx, c, []string{"{q}:s"}, i, i+9_999).Err())
	}
	require.NoError(t, c.ConfigSet(ctx, "slowlog-log-slower-than", "2000").Err())
	require.NoError(t, c.Do(ctx, "SLOWLOG", "RESET").Err())

	before := lab.Calls(t, c)["evalsha"]
	stop, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = queue.NewPoller(nil, q).Run(stop)
	}()
	var pings []time.Duration
	for start := time.Now(); len(pings) == 0 || c.ZCard(ctx, "{q}:s").Val() > 0; {
		require.Less(t, time.Since(start), 5*time.Minute)
		begin := time.Now()
		require.NoError(t, c.Ping(ctx).Err())
		pings = append(pings, time.Since(begin))
	}
	cancel()
	<-done
	require.Equal(t, int64(n), c.LLen(ctx, "{q}:r").Val())
	require.GreaterOrEqual(t, lab.Calls(t, c)["evalsha"]-before, n/queue.MaxBatch, "no step moves more than that")
	slices.Sort(pings)
	t.Logf("%d due: %d pings meanwhile, p50 %v, p99.9 %v, the longest %v", n, len(pings),
		pings[len(pings)/2], pings[len(pings)*999/1000], pings[len(pings)-1])
	slow := 0
	for _, entry := range lab.Must(c.SlowLogGet(ctx, 128).Result()) {
		if entry.Args[0] == "evalsha" && entry.Duration > 50*time.Millisecond {
			slow++
		}
	}
	// A step takes under a millisecond. On a busy machine the odd one is interrupted.
	require.LessOrEqual(t, slow, n/queue.MaxBatch/10, "scripts over 50 ms")
	require.Less(t, pings[len(pings)/2], 200*time.Millisecond, "half of the pings")
}

// F6: what is not ours at the head of the list, however it came there, does not keep
// jobs from their workers.
func TestForeignEntriesDoNotBlockTheHead(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	require.NoError(t, c.RPush(ctx, lab.Key(q, "r"), "no colon", "", ":", "x:y", "17:").Err())
	lab.Push(t, q, queue.Job{ID: "j"})
	_, err := q.Peek(ctx, queue.Ready, 0, 10)
	require.NoError(t, err)
	taken, err := q.Take(ctx, 10)
	require.NoError(t, err)
	require.Equal(t, 5, taken.Dropped)
	require.Equal(t, "j", taken.Deliveries[0].ID)
}

func TestDeliveriesOfAnotherQueueAreRefused(t *testing.T) {
	t.Parallel()
	q, _ := lab.NewQueue(t, nil)
	other, _ := lab.NewQueue(t, nil)
	lab.Push(t, q, queue.Job{})
	d := lab.TakeOne(t, q)
	require.ErrorContains(t, other.Ack(t.Context(), d), "is from queue")
	require.ErrorContains(t, other.Nack(t.Context(), 0, "", d), "is from queue")
	require.ErrorContains(t, other.Extend(t.Context(), time.Hour, d), "is from queue")
	require.NoError(t, q.Ack(t.Context(), d))
}
