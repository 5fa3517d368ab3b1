package queue

import (
	"context"
	"time"

	queuescript "github.com/luatomic/luatomic/gen/queue"
)

// allBare reports whether the jobs are only bodies, and also small enough a batch for the long script. The long script
// takes them when the queue has a limit, and the errors for too large a batch are its errors.
func (q *Queue) allBare(jobs []Job) bool {
	size := 0
	for i := range jobs {
		if !jobs[i].bare() {
			return false
		}
		size += encodedSize(&jobs[i])
	}
	return len(jobs) == 1 || len(jobs) > 1 && len(jobs) <= MaxBatch && size <= q.batchBytes()
}

// pushBare adds ready jobs with new ids. If the queue has a limit, pushBare adds none and limited is true.
func (q *Queue) pushBare(ctx context.Context, jobs []Job) (out Pushed, limited bool, err error) {
	ids := make([]string, len(jobs))
	for i := range jobs {
		if ids[i], err = idOf(&jobs[i]); err != nil {
			return Pushed{}, false, q.wrap("push to", err)
		}
	}
	ctx, cancel := withinReceipt(ctx, ownReceipt)
	defer cancel()
	var now time.Time
	if len(jobs) == 1 {
		limited, now, err = q.sendOne(ctx, ids[0], jobs[0].Body)
	} else {
		limited, now, err = q.sendBare(ctx, ids, jobs)
	}
	if err != nil {
		return Pushed{}, false, q.wrap("push to", err)
	}
	if limited {
		q.limited.set(time.Now())
		return Pushed{}, true, nil
	}
	register(ctx, q)
	return Pushed{IDs: ids, Ready: len(ids), Now: now}, false, nil
}

func (q *Queue) sendBare(ctx context.Context, ids []string, jobs []Job) (limited bool, now time.Time, err error) {
	p := q.pushBareParams()
	p.Jobs = make([]queuescript.PushBareJob, len(jobs))
	for i := range jobs {
		p.Jobs[i].ID, p.Jobs[i].Body = ids[i], jobs[i].Body
	}
	r, err := queuescript.PushBare(ctx, q.client, p)
	return r.Limited, r.Now, err
}
