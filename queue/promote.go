package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/clock"
	"github.com/luatomic/luatomic/internal/notify"
	"github.com/luatomic/luatomic/lua"
)

// Promoted is the result of a promote.
type Promoted struct {
	// Moved jobs are ready now.
	Moved int
	// Now is the server's time.
	Now time.Time
	// NextDue is when the next job is due; it has passed when more were due than
	// one call moves.
	NextDue lua.Opt[time.Time]
}

// Promote moves up to MaxBatch jobs that are due to ready, earliest first, never
// before the server's clock has reached their time, in steps of 500, so that others
// are served in between. Any number of processes may promote: each job moves once.
// With an error, Moved counts those of the steps before.
//
// Keys: s, r, w. Cost: O(log n + k) for k jobs moved.
func (q *Queue) Promote(ctx context.Context) (Promoted, error) {
	moved := 0
	for {
		p, err := q.promote(ctx, maxChunk, "", 0)
		full := p.Moved == maxChunk
		moved += p.Moved
		p.Moved = moved
		if err != nil || !full || moved == MaxBatch {
			return p, err
		}
	}
}

// promote is Promote, and leaves the channel of a waiter.
func (q *Queue) promote(ctx context.Context, max int, waiter string, wait time.Duration) (Promoted, error) {
	r, err := gen.DelayedPromote(ctx, q.client, gen.DelayedPromoteParams{
		Scheduled: q.keys.Scheduled, Ready: q.keys.Ready, Wake: q.keys.Wake,
		Max: int64(max), Waiter: waiter, Wait: wait,
	})
	if err != nil {
		return Promoted{}, fmt.Errorf("luatomic: promote on %q: %w", q.name, err)
	}
	return Promoted{Moved: int(r.Moved), Now: time.UnixMicro(r.Now), NextDue: r.NextDue}, nil
}

// PollerOptions are the settings of a Poller. The zero value is ready to use.
type PollerOptions struct {
	// Idle is the longest sleep. A job that is scheduled before all others ends the
	// sleep at once; this is for words that get lost. Default 10 s, and 1 s while
	// the subscription that hears them is down.
	Idle time.Duration
	// OnPromote, if set, sees each result that moved something.
	OnPromote func(q *Queue, p Promoted)
	// OnError, if set, sees each failed call. The poller goes on, with back-off.
	OnError func(q *Queue, err error)
}

// Poller promotes the jobs of some queues when they are due.
type Poller struct {
	queues []*Queue
	opts   PollerOptions
}

// NewPoller returns a poller of the queues; nil options mean the defaults.
func NewPoller(opts *PollerOptions, queues ...*Queue) *Poller {
	p := &Poller{queues: queues}
	if opts != nil {
		p.opts = *opts
	}
	if p.opts.Idle <= 0 {
		p.opts.Idle = longIdle
	}
	p.opts.Idle = max(p.opts.Idle, time.Millisecond) // the server's clock has no shorter wait
	return p
}

// Run promotes until ctx ends, and returns the cause of that end. It sleeps until
// the next job is due, and is told when an earlier one comes. Pollers need no
// leader: any number may run on one queue. Each queue costs a connection that
// listens.
func (p *Poller) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, q := range p.queues {
		word, err := q.newListener()
		if err != nil {
			return err
		}
		wg.Go(func() { word.Run(ctx, q.client) })
		wg.Go(func() { p.poll(ctx, q, word) })
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

// How many jobs one script moves, and the time that it should take at most. A thousand
// of a million take more than a millisecond.
const (
	minChunk = 50
	maxChunk = MaxBatch / 2
	budget   = time.Millisecond
)

func (p *Poller) poll(ctx context.Context, q *Queue, word *notify.Listener) {
	retry := clock.Backoff{First: 50 * time.Millisecond, Last: 5 * time.Second}
	chunk := maxChunk
	for ctx.Err() == nil {
		idle := p.opts.Idle
		if word.Channel() == "" {
			idle = min(idle, shortIdle)
		}
		start := time.Now()
		out, err := q.promote(ctx, chunk, word.Channel(), idle)
		if err != nil {
			if p.opts.OnError != nil && !errors.Is(err, context.Canceled) {
				p.opts.OnError(q, err)
			}
			clock.Sleep(ctx, retry.Next())
			continue
		}
		retry.Reset()
		if out.Moved > 0 && p.opts.OnPromote != nil {
			p.opts.OnPromote(q, out)
		}
		chunk = nextChunk(chunk, out.Moved, time.Since(start))
		word.Wait(ctx, until(out.NextDue, out.Now, idle))
	}
}

// nextChunk halves the chunk when a full one took longer than the budget, so that
// the server stays quick for others, and grows it again bit by bit.
func nextChunk(chunk, moved int, took time.Duration) int {
	switch {
	case moved < chunk:
		return chunk
	case took > budget:
		return max(chunk/2, minChunk)
	}
	return min(chunk+minChunk, maxChunk)
}

// until is the time from now to at, 0 when it has passed, most when at is later
// than that or absent. Both are the server's, so clocks need not agree.
func until(at lua.Opt[time.Time], now time.Time, most time.Duration) time.Duration {
	if t, ok := at.Get(); ok {
		return min(max(t.Sub(now), 0), most)
	}
	return most
}
