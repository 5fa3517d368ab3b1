package main

import (
	"context"
	"flag"
	"fmt"

	"github.com/luatomic/luatomic/internal/keys"
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

// maxLooks bounds how often a release looks again, because the worker has renewed its lease meanwhile.
const maxLooks = 10

func jobsReleaseCommand() *command {
	var fence int64
	var flags *flag.FlagSet
	return &command{
		name: "jobs release", args: "QUEUE ID [flags]", tagged: true,
		about: "Take a job from its worker, and make it ready.",
		detail: `For a handler that hangs, and for a worker that died with a long lease. The lease ends now, and the job is
at the head of the ready jobs, with no failure more. The worker's ack is refused as after a lost lease; a consumer
learns of it when it renews, within a third of the lease, and ends the context of the handler. What it has done
stays done: the job is delivered again. With --fence only the lease that jobs show has printed is ended; a renewal
moves the fence.`,
		output:  `{"queue","id","released","fence"}: of the lease that was ended`,
		example: `luatomic jobs release mail welcome-7`,
		flags: func(fs *flag.FlagSet) {
			flags = fs
			fs.Int64Var(&fence, "fence", 0, "only the lease of fence `N`, as jobs show prints it")
		},
		check: func(s *session) error {
			switch {
			case len(s.args) != 2:
				return usagef("write the queue and the id of one job; luatomic jobs ls QUEUE --state leased lists them")
			case given(flags, "fence") && fence < 1:
				return usagef("--fence %d is no fence; luatomic jobs show prints it", fence)
			}
			return keys.CheckName("queue", s.args[0])
		},
		run: func(s *session) error {
			return s.withQueue(func(ctx context.Context, q *queue.Queue) error {
				ended, err := releaseJob(ctx, q, s.args[1], fence)
				if err != nil {
					return err
				}
				return s.emit(map[string]any{
					"queue": label(q.Name()), "id": label(s.args[1]), "released": true, "fence": ended,
				})
			})
		},
	}
}

// releaseJob ends the lease of that fence, or with fence 0 that of the worker that has the job now.
func releaseJob(ctx context.Context, q *queue.Queue, id string, fence int64) (int64, error) {
	for range maxLooks {
		found, _, err := findJobs(ctx, q, []string{id}, "jobs release", queue.Leased)
		if err != nil {
			return 0, err
		}
		now := found[0].Fence
		if fence != 0 && now != fence {
			return 0, fmt.Errorf("the lease of job %q has fence %d now, not %d: it was renewed, or another worker has "+
				"the job; nothing is changed", id, now, fence)
		}
		if released, err := q.Release(ctx, id, now); released || err != nil {
			return now, err
		}
	}
	return 0, fmt.Errorf("the lease of job %q was renewed before each of %d attempts to end it; try again", id,
		maxLooks)
}
