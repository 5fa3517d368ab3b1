package main

import (
	"fmt"
	"time"

	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/internal/testkit/drill/history"
	"github.com/luatomic/luatomic/queue"
)

// operate cancels jobs in every state, requeues the dead, and pauses and resumes the queue.
func (r *role) operate() error {
	q, err := newQueue(r.client, nil)
	if err != nil {
		return err
	}
	for r.sleep(time.Duration(20+r.draw(60)) * time.Millisecond) {
		switch r.draw(8) {
		case 0:
			r.pause(q)
		case 1, 2, 3:
			r.revive(q)
		default:
			r.cancel(q, []queue.State{queue.Ready, queue.Scheduled, queue.Leased, queue.Dead}[r.draw(4)])
		}
	}
	return nil
}

func (r *role) pause(q *queue.Queue) {
	ctx, cancel := r.within(2 * time.Second)
	defer cancel()
	r.log.Add(history.Record{Kind: history.Fault, Text: "pause"})
	_ = q.Pause(ctx)
	r.sleep(time.Duration(r.draw(200)) * time.Millisecond)
	for q.Resume(ctx) != nil && ctx.Err() == nil {
		sleep(ctx, 10*time.Millisecond)
	}
}

// revive requeues dead jobs.
func (r *role) revive(q *queue.Queue) {
	ctx, cancel := r.within(2 * time.Second)
	defer cancel()
	dead, err := q.Peek(ctx, queue.Dead, 0, 20)
	if err != nil || len(dead) == 0 {
		return
	}
	ids := make([]string, len(dead))
	for i, j := range dead {
		ids[i] = j.ID
	}
	_, _ = q.Requeue(ctx, ids...)
}

// cancel cancels a job in that state, as far as it still is when the call arrives.
func (r *role) cancel(q *queue.Queue, state queue.State) {
	ctx, cancel := r.within(2 * time.Second)
	defer cancel()
	jobs, err := q.Peek(ctx, state, r.draw(5), 1)
	if err != nil || len(jobs) == 0 {
		return
	}
	of := history.Job + jobs[0].ID
	r.log.Add(history.Record{Kind: history.Cancel, Of: of})
	was, err := q.Cancel(ctx, jobs[0].ID)
	end := endOf(err)
	if err == nil {
		end = string(was[0])
	}
	r.log.Add(history.Record{Kind: history.Cancelled, Of: of, Text: end})
}

// jidQueue is the queue of Sidekiq's jobs.
const jidQueue = "drill"

// schedule pushes jobs of Sidekiq for later.
func (r *role) schedule() error {
	d, err := sidekiq.New(r.client, nil)
	if err != nil {
		return err
	}
	for n := 0; r.sleep(time.Duration(5+r.draw(10)) * time.Millisecond); n++ {
		job := sidekiq.Job{Class: "Drill", Queue: jidQueue, JID: fmt.Sprintf("%s-%d", r.Name, n),
			In: time.Duration(1+r.draw(1000)) * time.Millisecond}
		r.log.Add(history.Record{Kind: history.Schedule, Of: history.JID + job.JID})
		ctx, cancel := r.within(3 * time.Second)
		_, err := d.Push(ctx, job)
		cancel()
		r.log.Add(history.Record{Kind: history.Scheduled, Of: history.JID + job.JID, Text: endOf(err)})
	}
	return nil
}

// move moves what is due to its queue, beside other processes that do the same.
func (r *role) move() error {
	d, err := sidekiq.New(r.client, nil)
	if err != nil {
		return err
	}
	return d.NewPoller(&sidekiq.PollerOptions{Idle: 100 * time.Millisecond}).Run(r.ctx)
}
