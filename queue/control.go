package queue

import (
	"context"
	"fmt"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/lua"
)

// Pause stops the queue from giving out jobs, for every consumer. Pushes, promotes and the work on leased jobs
// continue. After a lost reply Pause, Resume and SetLimit repeat themselves for at most 50 s. A copy of a request that
// arrives after a later call changes nothing. One script. Keys: c, w, i. Cost: O(1).
func (q *Queue) Pause(ctx context.Context) error { return q.set(ctx, queuescript.ControlPauseOn, -1) }

// Resume ends a pause and notifies one waiting consumer. One script. Keys: c, w, i. Cost: O(1).
func (q *Queue) Resume(ctx context.Context) error { return q.set(ctx, queuescript.ControlPauseOff, -1) }

// SetLimit sets the limit for the number of jobs that are ready, scheduled or leased. It holds for every producer: a
// push that would exceed it fails with ErrFull. Zero removes the limit. A limit below zero or of 2^53 and more is
// lua.ErrOutOfRange. Existing jobs stay. One script. Keys: c, w, i. Cost: O(1).
func (q *Queue) SetLimit(ctx context.Context, jobs int) error {
	if jobs < 0 {
		return q.wrap("set the limit of", &lua.RangeError{Field: "jobs", Value: fmt.Sprint(jobs), Min: "0"})
	}
	return q.set(ctx, queuescript.ControlPauseKeep, int64(jobs))
}

func (q *Queue) set(ctx context.Context, pause queuescript.ControlPause, limit int64) error {
	p := queuescript.ControlParams{Control: q.keys.Control, Wake: q.keys.Wake, Pause: pause, Limit: limit}
	err := q.once(ctx, func(ctx context.Context, receipt string) error {
		p.Receipt = receipt
		_, err := queuescript.Control(ctx, q.client, p)
		return err
	})
	if err != nil {
		return q.wrap("change the settings of", err)
	}
	return nil
}
