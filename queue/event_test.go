package queue_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/queue"
)

// observed collects events by job.
type observed struct {
	mu     sync.Mutex
	events map[string][]queue.Event
}

func (o *observed) add(e queue.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.events == nil {
		o.events = make(map[string][]queue.Event)
	}
	o.events[e.ID] = append(o.events[e.ID], e)
}

func (o *observed) outcomes(id string) (out []queue.Outcome) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range o.events[id] {
		out = append(out, e.Outcome)
	}
	return out
}

// Each delivery ends in one event, with its times, its headers and what followed. OnError names the job, the attempt
// and what follows.
func TestObserveSeesEachDeliveryOnce(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	var seen observed
	q, _ := lab.NewQueue(t, &queue.Options{MaxFailures: 2, Observe: seen.add, Tag: "shop"})
	failure := errors.New("smtp: 421")
	headers := map[string]string{"trace": "1"}
	lab.Push(t, q, queue.Job{ID: "fine", Kind: "k", Headers: headers}, queue.Job{ID: "fails", Kind: "k"},
		queue.Job{ID: "snoozes"},
		queue.Job{ID: "lost"}, queue.Job{ID: "expired", ExpiresAt: time.Now().Add(-time.Hour)})
	time.Sleep(20 * time.Millisecond)
	var mu sync.Mutex
	var reported []*queue.JobError
	_, err := q.Consume(ctx, &queue.ConsumeOptions{Drain: true,
		Backoff: func(int) time.Duration { return 30 * time.Millisecond },
		OnError: func(err error) {
			var of *queue.JobError
			if errors.As(err, &of) && of.ID == "fails" {
				mu.Lock()
				defer mu.Unlock()
				reported = append(reported, of)
			}
		}},
		func(ctx context.Context, d *queue.Delivery) error {
			switch {
			case d.ID == "fails":
				return failure
			case d.ID == "snoozes" && len(seen.outcomes("snoozes")) == 0 &&
				d.EnqueuedAt.Before(time.Now().Add(-15*time.Millisecond)):
				return queue.Snooze(10 * time.Millisecond)
			case d.ID == "lost" && d.Attempt == 1:
				require.NoError(t, d.Nack(ctx, 0, "by hand"))
				return errors.New("late")
			}
			time.Sleep(5 * time.Millisecond)
			return nil
		})
	require.NoError(t, err)
	require.Equal(t, []queue.Outcome{queue.OutcomeAcked}, seen.outcomes("fine"))
	require.Equal(t, []queue.Outcome{queue.OutcomeRetried, queue.OutcomeDead}, seen.outcomes("fails"))
	// The job was returned before its handler ended, so the next delivery can end first.
	require.ElementsMatch(t, []queue.Outcome{queue.OutcomeRetried, queue.OutcomeAcked}, seen.outcomes("lost"))
	require.Equal(t, []queue.Outcome{queue.OutcomeExpired}, seen.outcomes("expired"))
	require.Equal(t, queue.OutcomeRetried, seen.outcomes("snoozes")[0])
	fine := seen.events["fine"][0]
	require.Equal(t, queue.Event{Queue: q.Name(), Tag: "shop", ID: "fine", Kind: "k", Attempt: 1, Headers: headers,
		Wait: fine.Wait, Run: fine.Run, Outcome: queue.OutcomeAcked}, fine)
	require.GreaterOrEqual(t, fine.Wait, 20*time.Millisecond)
	require.Less(t, fine.Wait, time.Minute)
	require.GreaterOrEqual(t, fine.Run, 5*time.Millisecond)
	require.Equal(t, 30*time.Millisecond, seen.events["fails"][0].Retry)
	require.ErrorIs(t, seen.events["fails"][1].Err, failure)

	require.Len(t, reported, 2)
	require.EqualError(t, reported[0], `luatomic: queue "`+q.Name()+
		`": job "fails" of kind "k", attempt 1: smtp: 421; it is delivered again in 30ms`)
	require.EqualError(t, reported[1], `luatomic: queue "`+q.Name()+
		`": job "fails" of kind "k", attempt 2: smtp: 421; it is dead`)
	require.ErrorIs(t, reported[0], failure)
	require.Equal(t, "shop", reported[0].Tag)
}

// The death of a job whose worker died is reported where it is reclaimed: by a consumer, or by a program by hand.
func TestObserveHearsTheDeathOfAJobWhoseWorkerDied(t *testing.T) {
	t.Parallel()
	reclaims := map[string]func(context.Context, *queue.Queue) error{
		"by hand": func(ctx context.Context, q *queue.Queue) error { _, err := q.Reclaim(ctx); return err },
		"in a consumer": func(ctx context.Context, q *queue.Queue) error {
			_, err := q.Consume(ctx, &queue.ConsumeOptions{Drain: true},
				func(context.Context, *queue.Delivery) error { return errors.New("not called") })
			return err
		},
	}
	for name, reclaim := range reclaims {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			var seen observed
			q, c := lab.NewQueue(t, &queue.Options{MaxFailures: 1, Observe: seen.add})
			headers := map[string]string{"trace": "1"}
			lab.Push(t, q, queue.Job{ID: "own", Kind: "k", Headers: headers, MaxFailures: 3}, queue.Job{ID: "plain"})
			require.NoError(t, c.HSet(ctx, lab.Key(q, "n"), "own", 2).Err())
			taken, err := q.Take(ctx, 2)
			require.NoError(t, err)
			require.Len(t, taken.Deliveries, 2)
			for _, d := range taken.Deliveries {
				require.NoError(t, c.ZAdd(ctx, lab.Key(q, "l"), redis.Z{Score: lab.Past, Member: d.ID}).Err())
			}
			require.NoError(t, reclaim(ctx, q))
			for id, want := range map[string]queue.Event{
				"own":   {Kind: "k", Attempt: 3, Headers: headers},
				"plain": {Attempt: 1},
			} {
				require.Len(t, seen.events[id], 1)
				got := seen.events[id][0]
				require.ErrorIs(t, got.Err, queue.ErrLeaseLost)
				want.Queue, want.ID, want.Outcome, want.Err = q.Name(), id, queue.OutcomeDead, got.Err
				require.Equal(t, want, got)
			}
		})
	}
}

// The dead set has a bound without any setting, and none where the setting says so.
func TestDeadSetIsBoundedByDefault(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for jobs, want := range map[int]int64{0: 10_000, -1: 10_002} {
		q, c := lab.NewQueue(t, &queue.Options{Dead: queue.DeadLimits{Jobs: jobs}, MaxFailures: 1})
		var dead []any
		for i := range 10_001 {
			dead = append(dead, "d"+string(rune('0'+i%10))+time.Duration(i).String(), "body")
		}
		require.NoError(t, c.HSet(ctx, lab.Key(q, "b"), dead...).Err())
		require.NoError(t, c.Eval(ctx, `for i = 1, #ARGV, 2 do redis.call('ZADD', KEYS[1], 1, ARGV[i]) end return 1`,
			[]string{lab.Key(q, "d")}, dead...).Err())
		require.NoError(t, c.HSet(ctx, lab.Key(q, "c"), "dead_bytes", 4*10_001).Err())
		lab.Push(t, q, queue.Job{ID: "fails"})
		_, err := q.Consume(ctx, &queue.ConsumeOptions{Drain: true},
			func(context.Context, *queue.Delivery) error { return errors.New("no") })
		require.NoError(t, err)
		require.Equal(t, want, c.ZCard(ctx, lab.Key(q, "d")).Val())
		last := c.ZRange(ctx, lab.Key(q, "d"), -1, -1).Val()
		require.Equal(t, []string{"fails"}, last, "the latest stays")
	}
}
