package redisinaction

import (
	"context"
	"errors"
	"time"

	"github.com/luatomic/luatomic/internal/clock"
)

// PollerOptions are the settings of a Poller. The zero value is ready to use.
type PollerOptions struct {
	// Idle is the longest sleep. No notification announces a new item, so one with a shorter delay can be late by
	// Idle. Default 100 ms, at least 1 ms.
	Idle time.Duration
	// OnPoll, if set, gets each result that moved something.
	OnPoll func(Polled)
	// OnError, if set, gets each failed poll. ErrForeignScore and ErrQueueRefused, which last until an operator acts,
	// come once a minute.
	OnError func(error)
}

// Poller moves due items, as the book's poll_queue does.
type Poller struct {
	client *Client
	opts   PollerOptions
}

const (
	firstSleep  = 10 * time.Millisecond // the sleep of the book's poller
	defaultIdle = 100 * time.Millisecond
	reportEvery = time.Minute
)

// NewPoller returns a poller; nil options mean the defaults.
func (c *Client) NewPoller(opts *PollerOptions) *Poller {
	p := &Poller{client: c}
	if opts != nil {
		p.opts = *opts
	}
	if p.opts.Idle <= 0 {
		p.opts.Idle = defaultIdle
	}
	p.opts.Idle = max(p.opts.Idle, time.Millisecond)
	return p
}

// Run polls until ctx ends, and returns the cause of that end. After a move it polls again in 10 ms or when the next
// item is due. While nothing is due, it polls in growing intervals up to Idle. After an error it waits 50 ms to 5 s.
// Each poll reads refused items again, at most 10 000, and then sleeps four times as long as that took, at most 5 s. If
// there are more, the next poll goes on behind these, so that they hold up no others.
func (p *Poller) Run(ctx context.Context) error {
	sleep := firstSleep
	retry := newBackoff()
	var reported time.Time
	var first int64 // how many refused items the next poll passes over
	for ctx.Err() == nil {
		began := time.Now()
		out, next, err := p.client.pollFrom(ctx, first)
		first = next
		took := time.Since(began)
		stays := errors.Is(err, ErrForeignScore) || errors.Is(err, ErrQueueRefused)
		if out.Moved+len(out.Malformed) > 0 && p.opts.OnPoll != nil {
			p.opts.OnPoll(out)
		}
		if err != nil && ctx.Err() == nil && p.opts.OnError != nil && (!stays || time.Since(reported) > reportEvery) {
			p.opts.OnError(err)
			if stays {
				reported = time.Now()
			}
		}
		if err != nil && !stays {
			clock.Sleep(ctx, retry.Next())
			continue
		}
		retry.Reset()
		if sleep *= 2; out.Moved > 0 {
			sleep = firstSleep
		}
		sleep = min(sleep, p.opts.Idle)
		var rest time.Duration
		if errors.Is(err, ErrQueueRefused) && out.Moved < MaxBatch {
			rest = clock.RestAfter(took)
		}
		clock.Sleep(ctx, max(out.until(sleep), rest))
	}
	return context.Cause(ctx)
}

// until returns the time to the next item, at most most.
func (p *Polled) until(most time.Duration) time.Duration {
	if next, ok := p.NextDue.Get(); ok {
		return min(max(next.Sub(p.Now), 0), most)
	}
	return most
}

// newBackoff returns the delays between attempts after an error.
func newBackoff() clock.Backoff {
	return clock.Backoff{First: 50 * time.Millisecond, Last: 5 * time.Second}
}
