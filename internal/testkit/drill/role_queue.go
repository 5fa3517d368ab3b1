package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/luatomic/luatomic/internal/testkit/drill/history"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/queue"
)

// backlog is how many jobs a queue of a drill may hold.
const backlog = 300

func newQueue(client lua.Client, observe func(queue.Event)) (*queue.Queue, error) {
	return queue.New(client, "drill", &queue.Options{Lease: lease, MaxFailures: 4, Dead: queue.DeadLimits{Jobs: -1},
		Observe: observe})
}

// produce pushes jobs, a third of them with a delay, each under an id of its own.
func (r *role) produce() error {
	q, err := newQueue(r.client, nil)
	if err != nil {
		return err
	}
	ctx, cancel := r.within(2 * time.Second)
	_ = q.SetLimit(ctx, backlog)
	cancel()
	for n := 0; r.ctx.Err() == nil; {
		jobs := make([]queue.Job, 1+r.draw(4)*r.draw(2))
		for i := range jobs {
			jobs[i].ID = fmt.Sprintf("%s-%d", r.Name, n)
			if r.draw(3) == 0 {
				jobs[i].Delay = time.Duration(1+r.draw(300)) * time.Millisecond
			}
			n++
			r.log.Add(history.Record{Kind: history.Push, Of: history.Job + jobs[i].ID, N: jobs[i].Delay.Milliseconds()})
		}
		end := r.push(q, jobs)
		for _, j := range jobs {
			r.log.Add(history.Record{Kind: history.Pushed, Of: history.Job + j.ID, Text: end})
		}
		if end == history.OK {
			r.sleep(time.Duration(r.draw(4)) * time.Millisecond)
		} else {
			r.sleep(20 * time.Millisecond)
		}
	}
	return nil
}

func (r *role) push(q *queue.Queue, jobs []queue.Job) string {
	ctx, cancel := r.within(3 * time.Second)
	defer cancel()
	pushed, err := q.Push(ctx, jobs...)
	switch {
	case errors.Is(err, queue.ErrFull):
		return history.Not
	case err == nil && len(pushed.Duplicates) > 0:
		return fmt.Sprintf("%d duplicates of new ids", len(pushed.Duplicates))
	}
	return endOf(err)
}

// consume runs handlers that work for some milliseconds, fail, give up, snooze, or work for longer than a lease.
func (r *role) consume() error {
	q, err := newQueue(r.client, func(e queue.Event) {
		if e.Outcome == queue.OutcomeAcked {
			r.log.Add(history.Record{Kind: history.Acked, Of: history.Job + e.ID})
		}
	})
	if err != nil {
		return err
	}
	_, err = q.Consume(r.ctx, &queue.ConsumeOptions{Concurrency: 16, Idle: 500 * time.Millisecond,
		Grace: 300 * time.Millisecond, Backoff: func(int) time.Duration { return 50 * time.Millisecond }}, r.handle)
	return err
}

func (r *role) handle(ctx context.Context, d *queue.Delivery) error {
	s, lasts := r.log.Span(history.Job+d.ID), func() bool { return ctx.Err() == nil }
	s.Add(history.Start, int64(d.Attempt), lasts)
	work := time.Duration(r.draw(6)) * time.Millisecond
	switch {
	case r.draw(60) == 0:
		work = lease + lease/2
	case d.Attempt > 1: // the worker before may still believe that it has the job
		work += time.Duration(r.draw(int(lease / 4)))
	}
	for end := time.Now().Add(work); time.Now().Before(end); {
		if !sleep(ctx, min(time.Until(end), lease/10)) {
			s.Add(history.Live, 0, lasts)
			return context.Cause(ctx)
		}
		s.Add(history.Live, 0, lasts)
	}
	switch r.draw(25) {
	case 0, 1:
		return errors.New("fails")
	case 2:
		return queue.Discard(errors.New("gives up"))
	case 3:
		return queue.Snooze(20 * time.Millisecond)
	}
	s.Add(history.Done, 0, lasts)
	return nil
}

// take settles deliveries by hand, also those whose lease is over: the server refuses them.
func (r *role) take() error {
	q, err := newQueue(r.client, nil)
	if err != nil {
		return err
	}
	for r.ctx.Err() == nil {
		ctx, cancel := r.within(lease)
		ends := time.Now().Add(lease - lease/100) // by the clock of the process: the lease begins later
		taken, err := q.Take(ctx, 1+r.draw(3))
		cancel()
		if err != nil || len(taken.Deliveries) == 0 {
			r.sleep(time.Duration(20+r.draw(50)) * time.Millisecond)
		}
		for _, d := range taken.Deliveries {
			r.settle(d, ends)
		}
		ctx, cancel = r.within(lease)
		_, _ = q.Reclaim(ctx)
		cancel()
	}
	return nil
}

func (r *role) settle(d *queue.Delivery, ends time.Time) {
	s, lasts := r.log.Span(history.Job+d.ID), func() bool { return time.Now().Before(ends) }
	s.Add(history.Start, int64(d.Attempt), lasts)
	work := time.Duration(r.draw(6)) * time.Millisecond
	if r.draw(30) == 0 {
		work = lease + time.Duration(r.draw(int(lease/2)))
	}
	r.sleep(work)
	ctx, cancel := r.within(2 * time.Second)
	defer cancel()
	if r.draw(10) == 0 {
		sent := time.Now()
		if s.Add(history.Live, 0, lasts); d.Extend(ctx, lease) == nil {
			ends = sent.Add(lease - lease/100)
		}
	}
	switch r.draw(20) {
	case 0:
		_ = d.Nack(ctx, 0, "fails")
	case 1:
		_ = d.Return(ctx, 0)
	case 2:
		_ = d.Bury(ctx, "gives up")
	default:
		s.Add(history.Done, 0, lasts)
		if d.Ack(ctx) == nil {
			r.log.Add(history.Record{Kind: history.Acked, Of: history.Job + d.ID})
		}
	}
}

func (r *role) poll() error {
	q, err := newQueue(r.client, nil)
	if err != nil {
		return err
	}
	return queue.NewPoller(&queue.PollerOptions{Idle: time.Second}, q).Run(r.ctx)
}
