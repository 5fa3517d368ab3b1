package queue

import (
	"context"
	"errors"
	"slices"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/lua"
)

// BuryJobs moves jobs that no worker has to the dead set, with the first KiB of the reason. It returns the state that
// each job had before. Scheduled and ready jobs are buried: no failure is counted, and their unique names are released.
// A Leased job stays with its worker, which can Bury its delivery. A Dead job stays as it is. An Absent job is not in
// the queue. Requeue makes buried jobs ready again.
//
// Then BuryJobs trims the dead set to Options.Dead. It deletes up to 200 jobs more than have died, so a set far above
// its bounds shrinks call by call. Trim shrinks it in one call.
//
// BuryJobs does not search the list for a ready job: the entry stays until a Take reaches it, and Stats.Ready counts
// it. A Requeue before that returns the job to its former place. After a lost reply BuryJobs repeats itself, with the
// same answer: each script for at most 50 s.
//
// BuryJobs runs one script for up to 200 ids, atomic to other clients, and one for each 200 jobs to trim. A write
// refused half-way can deliver a dead job, never lose one. An id that no call can name is as in Cancel. Keys: s, b, l,
// n, d, u, ux, c, i. Cost: O(log n) for each.
func (q *Queue) BuryJobs(ctx context.Context, reason string, ids ...string) ([]State, error) {
	return q.BuryJobsIn(ctx, []State{Scheduled, Ready}, reason, ids...)
}

// BuryJobsIn is BuryJobs for jobs in one of the states in, which can be Scheduled and Ready. A job in another state
// stays as it is, and its state is returned.
func (q *Queue) BuryJobsIn(ctx context.Context, in []State, reason string, ids ...string) ([]State, error) {
	p := q.buryParams()
	p.Only, p.Reason = verdictsOf(in), reason[:min(len(reason), maxReason)]
	script := func(ctx context.Context, ids []string, receipt string) ([]int64, error) {
		p.IDs, p.Receipt = ids, receipt
		return queuescript.Bury(ctx, q.client, p)
	}
	was, err := q.endJobs(ctx, "bury in", ids, script)
	deaths := 0
	for _, state := range was {
		if (state == Scheduled || state == Ready) && slices.Contains(in, state) {
			deaths++
		}
	}
	if deaths == 0 || err != nil && !errors.Is(err, lua.ErrTooLarge) {
		return was, err
	}
	return was, errors.Join(err, q.trimAfter(ctx, deaths, q.opts.Dead.named()))
}
