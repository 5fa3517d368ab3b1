package sidekiq_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/compat/sidekiq/internal/script"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
)

// rubyPoller does what Sidekiq's poller does, command by command: read one, remove it, push it if the removal found
// it.
func (f *fleet) rubyPoller(ctx context.Context) (pushed int) {
	for {
		due, err := f.client.Do(ctx, "ZRANGEBYSCORE", f.key("schedule"), "-inf", time.Now().Unix(),
			"LIMIT", 0, 1).StringSlice()
		if err != nil || len(due) == 0 {
			return pushed
		}
		if f.client.ZRem(ctx, f.key("schedule"), due[0]).Val() == 1 {
			f.client.LPush(ctx, f.key("queue:a"), due[0])
			pushed++
		}
	}
}

func TestCompetingPollersMoveEachJobOnce(t *testing.T) {
	t.Parallel()
	f := newFleet(t, sidekiq.Options{})
	const n = 5000
	batch := make([]redis.Z, n)
	for i := range batch {
		batch[i] = redis.Z{Score: float64(i), Member: job("a", fmt.Sprintf(`,"n":%d`, i))}
	}
	require.NoError(t, f.client.ZAdd(f.ctx, f.key("schedule"), batch...).Err())
	var wg sync.WaitGroup
	var ours, theirs atomic.Int64
	for range 2 {
		wg.Go(func() { theirs.Add(int64(f.rubyPoller(f.ctx))) })
		wg.Go(func() {
			for f.client.ZCard(f.ctx, f.key("schedule")).Val() > 0 {
				got, err := f.d.MoveDue(f.ctx, sidekiq.Schedule, 50)
				if err != nil {
					t.Error(err)
					return
				}
				ours.Add(int64(got.Moved))
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, n, ours.Load()+theirs.Load())
	require.Positive(t, ours.Load())
	seen := make(map[string]int)
	for _, p := range f.queue("a") {
		number, _, _ := strings.Cut(p[strings.Index(p, `"n":`)+4:], ",")
		seen[strings.TrimRight(number, "}")]++
	}
	require.Len(t, seen, n)
	require.EqualValues(t, n, f.client.LLen(f.ctx, f.key("queue:a")).Val())
}

func TestAPollerMovesWhatIsDueAndNotBefore(t *testing.T) {
	t.Parallel()
	f := newFleet(t, sidekiq.Options{ExactTimes: true})
	ctx, cancel := context.WithCancelCause(f.ctx)
	ended := make(chan error, 1)
	var moved atomic.Int64
	go func() {
		ended <- f.d.NewPoller(&sidekiq.PollerOptions{OnMove: func(set sidekiq.Set, m sidekiq.Moved) {
			moved.Add(int64(m.Moved))
		}}).Run(ctx)
	}()
	due := f.now().Add(300 * time.Millisecond) // or a little later
	_, err := f.d.PerformIn(f.ctx, 300*time.Millisecond, sidekiq.Job{Class: "W"})
	require.NoError(t, err)
	f.schedule(sidekiq.Retry, 1, job("default", ""))
	luatomictest.Eventually(t, 20*time.Second, "both jobs are moved", func() bool { return moved.Load() == 2 })
	require.False(t, f.now().Before(due))
	cause := errors.New("done")
	cancel(cause)
	require.ErrorIs(t, <-ended, cause)
}

func TestAPollerWithACadence(t *testing.T) {
	t.Parallel()
	f := newFleet(t, sidekiq.Options{})
	for i := range 3 {
		require.NoError(t, f.client.SAdd(f.ctx, f.key("processes"), i).Err())
	}
	ctx, cancel := context.WithCancel(f.ctx)
	moved, ended := make(chan time.Time, 1), make(chan error, 1)
	p := f.d.NewPoller(&sidekiq.PollerOptions{Cadence: 100 * time.Millisecond, Sets: []sidekiq.Set{sidekiq.Schedule},
		OnMove: func(sidekiq.Set, sidekiq.Moved) { moved <- time.Now() }})
	go func() { ended <- p.Run(ctx) }()
	last := time.Time{}
	for i := range 4 {
		f.schedule(sidekiq.Schedule, float64(i), job("a", fmt.Sprintf(`,"n":%d`, i)))
		at := <-moved
		if i > 1 { // after a round that moves all, the sleep is at least half of three cadences
			require.GreaterOrEqual(t, at.Sub(last), 149*time.Millisecond)
		}
		last = at
	}
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
}

func TestAPollerGoesOnAfterErrors(t *testing.T) {
	t.Parallel()
	f := newFleet(t, sidekiq.Options{})
	require.NoError(t, f.client.Set(f.ctx, f.key("schedule"), "x", 0).Err())
	f.schedule(sidekiq.Retry, 1, `bad`)
	ctx, cancel := context.WithCancel(f.ctx)
	failed, ended := make(chan sidekiq.Set, 100), make(chan error, 1)
	malformed := make(chan sidekiq.Moved, 10)
	p := f.d.NewPoller(&sidekiq.PollerOptions{
		OnError: func(set sidekiq.Set, err error) { failed <- set },
		OnMove:  func(set sidekiq.Set, m sidekiq.Moved) { malformed <- m },
	})
	go func() { ended <- p.Run(ctx) }()
	require.Equal(t, sidekiq.Schedule, <-failed)
	require.Equal(t, sidekiq.Schedule, <-failed)
	require.Len(t, (<-malformed).Malformed, 1)
	require.NoError(t, f.client.Del(f.ctx, f.key("schedule")).Err())
	f.schedule(sidekiq.Schedule, 1, job("a", ""))
	require.Equal(t, 1, (<-malformed).Moved)
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
}

// A queue that cannot be written to delays no other: the poller polls for the others as often as without it.
func TestAPollerGoesOnBesideAQueueThatRefuses(t *testing.T) {
	t.Parallel()
	f := newFleet(t, sidekiq.Options{})
	require.NoError(t, f.client.Set(f.ctx, f.key("queue:bad"), "x", 0).Err())
	f.schedule(sidekiq.Schedule, 1, job("bad", ""))
	ctx, cancel := context.WithCancel(f.ctx)
	refused, ended, moved := make(chan struct{}, 1000), make(chan error, 1), make(chan int, 100)
	p := f.d.NewPoller(&sidekiq.PollerOptions{Idle: 20 * time.Millisecond,
		OnError: func(_ sidekiq.Set, err error) {
			if errors.Is(err, sidekiq.ErrQueueRefused) {
				refused <- struct{}{}
			}
		},
		OnMove: func(_ sidekiq.Set, m sidekiq.Moved) { moved <- m.Moved }})
	go func() { ended <- p.Run(ctx) }()
	best := time.Hour
	for i := range 30 {
		start := time.Now()
		<-refused
		if i >= 10 { // a back-off would be at its end by now
			best = min(best, time.Since(start))
		}
	}
	require.Less(t, best, time.Second, "with back-off it is 3.2 s")
	f.schedule(sidekiq.Schedule, 2, job("good", ""))
	require.Equal(t, 1, <-moved)
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
}

// The end of its context is no failure of a poller, also where its time is over.
func TestThePollerReportsNoEnd(t *testing.T) {
	t.Parallel()
	f := newFleet(t, sidekiq.Options{})
	ctx, cancel := context.WithTimeout(f.ctx, 200*time.Millisecond)
	defer cancel()
	f.client.AddHook(&lab.Around{Sha: lab.Digest(&script.DueScript), Do: func(func() error) error {
		<-ctx.Done()
		return ctx.Err()
	}})
	var reported error
	p := f.d.NewPoller(&sidekiq.PollerOptions{OnError: func(_ sidekiq.Set, err error) { reported = err }})
	require.ErrorIs(t, p.Run(ctx), context.DeadlineExceeded)
	require.NoError(t, reported)
}

// Jobs of a queue that cannot be written to are read at each poll, to find those behind them. Where they are many, the
// server does not spend its time on that until an operator comes.
func TestAPollerRestsBesideManyJobsThatAreRefused(t *testing.T) {
	t.Parallel()
	f := newFleet(t, sidekiq.Options{})
	require.NoError(t, f.client.Set(f.ctx, f.key("queue:bad"), "x", 0).Err())
	stuck := make([]redis.Z, 11_000)
	for i := range stuck {
		stuck[i] = redis.Z{Score: float64(i), Member: job("bad", fmt.Sprintf(`,"n":%d`, i))}
	}
	require.NoError(t, f.client.ZAdd(f.ctx, f.key("schedule"), stuck...).Err())
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	var busy time.Duration
	for _, sha := range []string{lab.Digest(&script.DueScript), lab.Digest(&script.MoveScript)} {
		f.client.AddHook(&lab.Around{Sha: sha, Do: func(run func() error) error {
			began := time.Now()
			defer func() { busy += time.Since(began) }()
			return run()
		}})
	}
	rounds, start := 0, time.Now()
	p := f.d.NewPoller(&sidekiq.PollerOptions{Sets: []sidekiq.Set{sidekiq.Schedule}, OnError: func(sidekiq.Set, error) {
		if rounds++; rounds == 6 {
			cancel()
		}
	}})
	require.ErrorIs(t, p.Run(ctx), context.Canceled)
	require.Less(t, 3*busy, time.Since(start))
}

// However many jobs are refused, those behind them are moved, one call after the other.
func TestManyRefusedJobsHoldUpNoOthers(t *testing.T) {
	lab.Long(t)
	t.Parallel()
	f := newFleet(t, sidekiq.Options{})
	require.NoError(t, f.client.Set(f.ctx, f.key("queue:bad"), "x", 0).Err())
	stuck := make([]redis.Z, 22_000)
	for i := range stuck {
		stuck[i] = redis.Z{Score: float64(i), Member: job("bad", fmt.Sprintf(`,"n":%d`, i))}
	}
	require.NoError(t, f.client.ZAdd(f.ctx, f.key("schedule"), stuck...).Err())
	f.schedule(sidekiq.Schedule, 30_000, job("good", ""))
	ctx, cancel := context.WithTimeout(f.ctx, time.Minute)
	defer cancel()
	moved := 0
	p := f.d.NewPoller(&sidekiq.PollerOptions{OnMove: func(_ sidekiq.Set, m sidekiq.Moved) {
		if moved += m.Moved; moved == 1 {
			require.Len(t, f.queue("good"), 1)
			require.NoError(t, f.client.Del(ctx, f.key("queue:bad")).Err())
		} else if moved == 22_001 {
			cancel()
		}
	}})
	require.ErrorIs(t, p.Run(ctx), context.Canceled)
	require.Len(t, f.queue("bad"), 22_000)
}
