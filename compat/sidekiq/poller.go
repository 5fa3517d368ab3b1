package sidekiq

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/luatomic/luatomic/internal/clock"
	"github.com/luatomic/luatomic/lua"
)

// PollerOptions are the settings of a Poller. The zero value is ready to use.
type PollerOptions struct {
	// Sets to move from. Default Retry and Schedule.
	Sets []Set
	// Cadence, when it is set, polls as Sidekiq does: each of n processes at a random time about every n times
	// Cadence, so that the fleet polls once every Cadence. Sidekiq's own is 5 s. Default 0: the poller sleeps until
	// the next job is due.
	Cadence time.Duration
	// Idle is the longest sleep without a Cadence. A Sidekiq client sends no notification when it adds a job that is
	// due before all others, so such a job can be late by Idle. Default 500 ms.
	Idle time.Duration
	// OnMove, if set, sees each result that moved something or found malformed members.
	OnMove func(set Set, m Moved)
	// OnError, if set, sees each failed call. The poller goes on, with back-off.
	OnError func(set Set, err error)
}

// Poller moves jobs to their queues when they are due.
type Poller struct {
	dialect *Dialect
	opts    PollerOptions
}

// NewPoller returns a poller; nil options mean the defaults.
func (d *Dialect) NewPoller(opts *PollerOptions) *Poller {
	p := &Poller{dialect: d}
	if opts != nil {
		p.opts = *opts
	}
	if len(p.opts.Sets) == 0 {
		p.opts.Sets = []Set{Retry, Schedule}
	}
	if p.opts.Idle <= 0 {
		p.opts.Idle = 500 * time.Millisecond
	}
	return p
}

// Run moves due jobs until ctx ends, and returns the cause of that end. Any number of pollers may run, and Ruby's own
// beside them: each job is moved once. After a full batch the poller moves again without delay. Cost while nothing is
// due: one read for each set every Idle, or at the Cadence. Each time, the poller reads the jobs of refused queues
// again, at most 10 000, and then sleeps four times as long as that took, at most 5 s. If there are more, the next time
// goes on behind these, so that they hold up no others.
func (p *Poller) Run(ctx context.Context) error {
	var failures int
	first := make(map[Set]int) // for each set, how many refused jobs the next call passes over
	for ctx.Err() == nil {
		sleep, futile, ok := p.round(ctx, first)
		switch {
		case !ok:
			failures = min(failures+1, 6)
			sleep = 50 * time.Millisecond << failures
		case p.opts.Cadence > 0 && sleep > 0:
			failures = 0
			sleep = p.randomDelay(ctx)
		default:
			failures = 0
		}
		clock.Sleep(ctx, max(sleep, clock.RestAfter(futile)))
	}
	return context.Cause(ctx)
}

// round moves once from each set and returns how long nothing is due, and how long it took to read jobs that are
// refused; ok is false when a call failed.
func (p *Poller) round(ctx context.Context, first map[Set]int) (sleep, futile time.Duration, ok bool) {
	sleep, ok = p.opts.Idle, true
	for _, set := range p.opts.Sets {
		began := time.Now()
		m, next, err := p.dialect.moveFrom(ctx, set, first[set], MaxBatch)
		first[set] = next
		took := time.Since(began)
		if p.opts.OnMove != nil && (m.Moved > 0 || len(m.Malformed) > 0) {
			p.opts.OnMove(set, m)
		}
		if err != nil {
			// A refused queue does not delay the jobs of the others.
			ok = ok && errors.Is(err, ErrQueueRefused)
			if p.opts.OnError != nil && ctx.Err() == nil {
				p.opts.OnError(set, err)
			}
			if !errors.Is(err, ErrQueueRefused) {
				continue
			}
		}
		wait := until(m.NextDue, m.Now, p.opts.Idle)
		if err != nil { // refused jobs stay due
			wait = max(wait, min(p.opts.Idle, 20*time.Millisecond))
			if m.Moved < MaxBatch {
				futile += took
			}
		}
		sleep = min(sleep, wait)
	}
	return sleep, futile, ok
}

// until returns the time from now to next, both by the server's clock, and at most most.
func until(next lua.Opt[time.Time], now time.Time, most time.Duration) time.Duration {
	if at, there := next.Get(); there {
		return min(max(at.Sub(now), 0), most)
	}
	return most
}

// randomDelay returns a sleep by which all listed processes together poll once every Cadence: a random time from half
// to one and a half of this process' share, in a large fleet from zero to twice the share.
func (p *Poller) randomDelay(ctx context.Context) time.Duration {
	processes, err := p.dialect.client.SCard(ctx, p.dialect.key("processes")).Result()
	if err != nil || processes < 1 {
		processes = 1
	}
	share := float64(p.opts.Cadence) * float64(processes)
	if processes < 10 {
		return time.Duration(share * (0.5 + rand.Float64()))
	}
	return time.Duration(share * rand.Float64())
}
