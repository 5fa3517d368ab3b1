package main

import (
	"fmt"
	"time"

	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/internal/testkit/drill/history"
)

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
