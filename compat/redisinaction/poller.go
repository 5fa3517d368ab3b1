package redisinaction

import (
	"context"
	"errors"
	"time"
)

// PollerOptions are the settings of a Poller. The zero value is ready to use.
type PollerOptions struct {
	// Idle is the longest sleep: what is added with a shorter delay can be so late,
	// since nobody tells. Default 100 ms, at least 1 ms.
	Idle time.Duration
	// OnPoll, if set, sees each result that moved something.
	OnPoll func(Polled)
	// OnError, if set, sees each failed poll. ErrForeignScore and ErrQueueRefused,
	// which stay until somebody acts, come once a minute.
	OnError func(error)
}

// Poller moves what is due, as the book's poll_queue does.
type Poller struct {
	client *Client
	opts   PollerOptions
}

const (
	firstSleep  = 10 * time.Millisecond // that of the book's poller
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

// Run polls until ctx ends, and returns the cause of that end. After something moved it
// looks again in 10 ms or when the next item is due, and in ever longer intervals, up to
// Idle, while nothing is due. After an error it waits 50 ms to 5 s.
func (p *Poller) Run(ctx context.Context) error {
	sleep := firstSleep
	var retry backoff
	var reported time.Time
	for ctx.Err() == nil {
		out, err := p.client.PollQueue(ctx)
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
			pause(ctx, retry.next())
			continue
		}
		retry = 0
		if sleep *= 2; out.Moved > 0 {
			sleep = firstSleep
		}
		sleep = min(sleep, p.opts.Idle)
		pause(ctx, out.until(sleep))
	}
	return context.Cause(ctx)
}

// backoff is the last wait after an error; 0 after a success.
type backoff time.Duration

func (b *backoff) next() time.Duration {
	*b = min(max(2**b, backoff(50*time.Millisecond)), backoff(5*time.Second))
	return time.Duration(*b)
}

// until is the time to the next item, most at most.
func (p *Polled) until(most time.Duration) time.Duration {
	if next, ok := p.NextDue.Get(); ok {
		return min(max(next.Sub(p.Now), 0), most)
	}
	return most
}

// pause sleeps, or returns as soon as ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
