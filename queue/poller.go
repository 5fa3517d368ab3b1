package queue

import (
	"context"
	"sync"
	"time"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/internal/clock"
	"github.com/luatomic/luatomic/internal/notify"
	"github.com/luatomic/luatomic/lua"
)

// PollerOptions are the settings of a Poller. The zero value is ready to use.
type PollerOptions struct {
	// Idle is the longest sleep, by the clock of the process. The push of a job that is due before all others ends the
	// sleep of one poller or consumer immediately. Idle only bounds the delay after a lost notification, and the delay
	// of a job while the consumer that was notified of it is busy. Default 10 s, and at most 1 s while the subscription
	// is down.
	Idle time.Duration
	// OnPromote, if set, receives each result of a promote that moved a job.
	OnPromote func(q *Queue, p Promoted)
	// OnError, if set, receives the error of each failed call. The poller continues after a back-off of 50 ms to 5
	// s.
	OnError func(q *Queue, err error)
}

// Poller promotes the jobs of some queues when they are due.
type Poller struct {
	queues []*Queue
	opts   PollerOptions
}

// NewPoller returns a poller of the queues; nil options mean the defaults. Nothing is sent before Run.
func NewPoller(opts *PollerOptions, queues ...*Queue) *Poller {
	p := &Poller{queues: queues}
	if opts != nil {
		p.opts = *opts
	}
	p.opts.Idle = idleOrDefault(p.opts.Idle)
	return p
}

// Run promotes until ctx ends, and returns the cause of that end. It sleeps until the next job is due. A push or a
// reschedule of an earlier job ends the sleep. Pollers need no leader: any number may run on one queue. All queues of a
// client share one connection for their subscriptions. Each queue costs a goroutine.
func (p *Poller) Run(ctx context.Context) error {
	var loops sync.WaitGroup
	defer loops.Wait()
	for _, q := range p.queues {
		name, notifications, err := newSignal(q)
		if err != nil {
			return err
		}
		loops.Go(func() { p.poll(ctx, q, name, notifications) })
	}
	for ctx.Err() == nil {
		nameAll(ctx, p.queues)
		clock.Sleep(ctx, reportEvery)
	}
	return context.Cause(ctx)
}

func (p *Poller) poll(ctx context.Context, q *Queue, name string, notifications *notify.Signal) {
	notifications.Start(ctx)
	waiter := ""
	defer func() {
		notifications.Stop()
		q.stopWaiting(ctx, waiter)
	}()
	retry := clock.Backoff{First: 50 * time.Millisecond, Last: 5 * time.Second}
	step := maxStep
	for ctx.Err() == nil {
		waiter = nameIf(ctx, notifications, name)
		idle := longestSleep(p.opts.Idle, waiter)
		start := time.Now()
		out, err := q.promoteStep(ctx, step, waiter, idle)
		if err != nil {
			if ctx.Err() == nil {
				waiter = "" // an unreachable server must not delay a stop
			}
			if p.opts.OnError != nil && ctx.Err() == nil {
				p.opts.OnError(q, err)
			}
			clock.Sleep(ctx, retry.Next())
			continue
		}
		retry.Reset()
		if out.Moved > 0 && p.opts.OnPromote != nil {
			p.opts.OnPromote(q, out)
		}
		step = nextStep(step, out.Moved, time.Since(start))
		notifications.Wait(ctx, until(out.NextDue, out.Now, idle))
	}
}

// stepBudget is the longest time that a step should take.
const stepBudget = time.Millisecond

// nextStep halves the step when a full one exceeded the budget, so that the server answers others soon, and grows
// it slowly otherwise.
func nextStep(step, moved int, took time.Duration) int {
	switch {
	case moved < step:
		return step
	case took > stepBudget:
		return max(step/2, minStep)
	}
	return min(step+minStep, maxStep)
}

// until returns the time from now to at: 0 when at has passed, and most when the time is longer than that or at is
// absent. Both times are the server's, so the clock of the process need not agree.
func until(at lua.Opt[time.Time], now time.Time, most time.Duration) time.Duration {
	if t, ok := at.Get(); ok {
		return min(max(t.Sub(now), 0), most)
	}
	return most
}

// Promoted is the result of a promote.
type Promoted struct {
	// Moved counts the jobs that became ready.
	Moved int
	// Now is the server's time.
	Now time.Time
	// NextDue is when the next job is due. This time has passed if more jobs are due than one call moves.
	NextDue lua.Opt[time.Time]
}

// The number of jobs that one script moves. A step of a thousand jobs out of a million takes more than a millisecond.
const (
	minStep = 50
	maxStep = MaxBatch / 2
)

// Promote makes up to MaxBatch due jobs ready, the earliest first. It moves them in steps of 500, so that the server
// runs other commands in between. A job never moves before the server's clock has reached its due time. Any number of
// processes may promote: each job moves once. With an error, Moved counts the jobs of the steps before it.
//
// Each step is one script, atomic to other clients. A write refused half-way can deliver a job twice, never lose
// one. Keys: s, r, w. Cost: O(log n + k) for k jobs moved.
func (q *Queue) Promote(ctx context.Context) (Promoted, error) {
	moved := 0
	for {
		p, err := q.promoteStep(ctx, maxStep, "", 0)
		full := p.Moved == maxStep
		moved += p.Moved
		p.Moved = moved
		if err != nil || !full || moved == MaxBatch {
			return p, err
		}
	}
}

// promoteStep moves up to max jobs. Unless waiter is empty, the same script adds that name to the waiters for the time
// wait. With a max of 0 it removes the name, and another waiter looks for work.
func (q *Queue) promoteStep(ctx context.Context, max int, waiter string, wait time.Duration) (Promoted, error) {
	r, err := queuescript.Promote(ctx, q.client, queuescript.PromoteParams{
		Scheduled: q.keys.Scheduled, Ready: q.keys.Ready, Wake: q.keys.Wake,
		Max: int64(max), Waiter: waiter, Wait: wait,
	})
	if err != nil {
		return Promoted{}, q.wrap("promote on", err)
	}
	return Promoted{Moved: int(r.Moved), Now: time.UnixMicro(r.Now), NextDue: r.NextDue}, nil
}
