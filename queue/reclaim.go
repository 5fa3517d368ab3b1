package queue

import (
	"context"
	"time"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/lua"
)

// Reclaimed is the result of a reclaim.
type Reclaimed struct {
	// Returned jobs are ready again, or scheduled if their lease has ended twice in a row. Buried jobs have failed
	// Options.MaxFailures times and are dead. Cancelled jobs are deleted.
	Returned, Buried, Cancelled int
	// Now is the server's time, NextLapse when the next lease ends.
	Now       time.Time
	NextLapse lua.Opt[time.Time]
}

// poisonBackoff is the delay of a job whose worker has died twice in a row: the job may be what kills its workers. Each
// further death doubles the delay, to an hour at most.
const poisonBackoff = time.Second

// maxReclaim keeps the script under 2 ms: it handles the jobs one by one.
const maxReclaim = 200

// Reclaim moves up to 200 jobs whose lease has ended, because their worker died or stalled, to the head of the ready
// list. Each counts one failure. A job whose lease has ended twice in a row waits: one second, then twice as long each
// time, at most an hour. Consume reclaims by itself. A program that only takes must call Reclaim when Taken.NextLapse
// has passed. For each job that Reclaim moves to the dead set, Options.Observe gets an Event before Reclaim returns. If
// a reply was lost, the jobs of that reply are neither counted nor observed.
//
// One script, atomic to other clients. A write refused half-way can deliver a job twice, never lose one. Keys: l,
// r, s, b, n, d, u, ux, c, w, o, f. Cost: O(log n) for each job.
func (q *Queue) Reclaim(ctx context.Context) (Reclaimed, error) {
	p := q.reclaimParams()
	p.Max, p.MaxFailures, p.Backoff = maxReclaim, int64(max(q.opts.MaxFailures, 0)), poisonBackoff
	r, err := queuescript.Reclaim(ctx, q.client, p)
	if err != nil {
		return Reclaimed{}, q.wrap("reclaim on", err)
	}
	q.observeDeaths(r.Deaths)
	return Reclaimed{
		Returned: int(r.Returned), Buried: len(r.Deaths), Cancelled: int(r.Cancelled),
		Now: time.UnixMicro(r.Now), NextLapse: micros(r.NextLapse),
	}, nil
}

// lapsed is the error of a job that is dead because the lease of its last delivery has ended.
type lapsed struct{}

func (lapsed) Error() string {
	return "luatomic: the lease ended, and the job may fail no more: its worker died or stalled; find out why, then " +
		"requeue it"
}

func (lapsed) Is(target error) bool { return target == ErrLeaseLost }

// observeDeaths reports the ends of deliveries whose consumers did not report them.
func (q *Queue) observeDeaths(deaths []queuescript.ReclaimDeath) {
	if q.opts.Observe == nil {
		return
	}
	for _, d := range deaths {
		job := decodeDetails(d.Options)
		q.opts.Observe(Event{
			Queue: q.name, Tag: q.opts.Tag, ID: d.ID, Kind: job.Kind, Attempt: int(d.Failures), Headers: job.Headers,
			Outcome: OutcomeDead, Err: lapsed{},
		})
	}
}
