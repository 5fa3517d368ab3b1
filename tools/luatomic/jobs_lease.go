package main

import (
	"context"
	"flag"

	"github.com/luatomic/luatomic/queue"
)

// jobsReclaimCommand takes back what workers that died have left. It counts a failure of each job, as a consumer does,
// but buries none: the bound of failures is the consumers', and this command does not know it.
func jobsReclaimCommand() *command {
	return &command{
		name: "jobs reclaim", args: "QUEUE [flags]", tagged: true,
		about: "Take back jobs whose lease has ended.",
		detail: `Their workers died or stalled. A consumer does the same by itself, so this is for a queue that
nobody consumes. Each job counts one failure and is ready again, or scheduled if its lease has ended twice in a row.
None is buried, however often it has failed: that is decided by the next consumer.`,
		output: `{"queue","returned","cancelled"}: how many jobs are ready or scheduled again, and how many were deleted, because
  they had been cancelled`,
		example: `luatomic jobs reclaim mail`,
		flags:   func(*flag.FlagSet) {},
		check:   oneQueue,
		run: func(s *session) error {
			return s.withQueue(func(ctx context.Context, q *queue.Queue) error {
				if _, err := knownQueue(ctx, q); err != nil {
					return err
				}
				done, err := reclaimAll(ctx, q)
				emitted := s.emit(map[string]any{
					"queue": label(q.Name()), "returned": done.Returned, "cancelled": done.Cancelled,
				})
				if err == nil {
					err = emitted
				}
				return err
			})
		},
	}
}

// reclaimAll takes back all jobs whose lease has ended by now: Reclaim is bounded.
func reclaimAll(ctx context.Context, q *queue.Queue) (sum queue.Reclaimed, err error) {
	for {
		r, err := q.Reclaim(ctx)
		sum.Returned, sum.Cancelled = sum.Returned+r.Returned, sum.Cancelled+r.Cancelled
		if next, more := r.NextLapse.Get(); err != nil || !more || next.After(r.Now) {
			return sum, err
		}
	}
}
