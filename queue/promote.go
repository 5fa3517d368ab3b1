package queue

import (
	"context"
	"time"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/lua"
)

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
