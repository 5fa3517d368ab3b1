package main

import (
	"cmp"
	"context"
	"errors"
	"flag"

	"github.com/luatomic/luatomic/queue"
)

func queueTrimCommand() *command {
	var limits queue.DeadLimits
	return &command{
		name: "queue trim", args: "QUEUE [flags]", tagged: true,
		about: "Delete the oldest dead jobs, down to limits.",
		detail: `Without a flag nothing is deleted. Consumers trim by themselves, to 10 000 jobs by default; luatomic consume
to what the application has stored.`,
		output: `{"queue","deleted","dead","dead_bytes"}; dead, dead_bytes: what is left, null where it did not come to
  its end`,
		example: `luatomic queue trim mail --keep 1000 --age 720h`,
		flags: func(fs *flag.FlagSet) {
			fs.IntVar(&limits.Jobs, "keep", 0, "`N` jobs stay at most")
			fs.IntVar(&limits.Bytes, "bytes", 0, "`N` bytes of bodies stay at most")
			fs.DurationVar(&limits.Age, "age", 0, "`DURATION` after which a dead job is deleted")
		},
		check: func(s *session) error {
			if limits == (queue.DeadLimits{}) || limits.Jobs < 0 || limits.Bytes < 0 || limits.Age < 0 {
				return usagef("say what stays: --keep N, --bytes N or --age D, each above 0")
			}
			return s.oneArg("queue")
		},
		run: func(s *session) error {
			return s.withQueue(func(ctx context.Context, q *queue.Queue) error {
				if _, err := s.expect(ctx, q, false); err != nil {
					return err
				}
				return trim(ctx, s, q, limits)
			})
		},
	}
}

// trim prints how many jobs it has deleted, also where it did not come to its end.
func trim(ctx context.Context, s *session, q *queue.Queue, limits queue.DeadLimits) error {
	n, err := q.Trim(ctx, limits)
	out := map[string]any{"queue": label(q.Name()), "deleted": n, "dead": nil, "dead_bytes": nil}
	if err == nil {
		var st queue.Stats
		if st, err = q.Stats(ctx); err == nil {
			out["dead"], out["dead_bytes"] = st.Dead, st.DeadBytes
		}
	}
	return cmp.Or(err, s.emit(out))
}

func queueAuditCommand() *command {
	repair := false
	return &command{
		name: "queue audit", args: "QUEUE [flags]", tagged: true,
		about: "Find what is inconsistent in a queue, after a restore, an eviction or a manual DEL.",
		detail: `Only reads, and is safe at any time. With --repair a lost job becomes ready at once, and what
belongs to no job is removed: do that while the queue is idle. The exit code is 1 if something is
inconsistent and not repaired.`,
		output: `{"queue","ok","checked","lost","ghosts","stale_names","stale_counts","dead_bytes","repaired"}; ok: null
  where a repair did not come to its end`,
		example: `luatomic queue audit mail --repair`,
		flags: func(fs *flag.FlagSet) {
			fs.BoolVar(&repair, "repair", false, "repair what is found")
		},
		check: oneQueue,
		run: func(s *session) error {
			return s.withQueue(func(ctx context.Context, q *queue.Queue) error {
				return audit(ctx, s, q, repair)
			})
		},
	}
}

// audit prints what it has repaired also where it did not come to its end.
func audit(ctx context.Context, s *session, q *queue.Queue, repair bool) error {
	a, err := q.Audit(ctx, repair)
	if err != nil && a.Repaired == 0 {
		return err
	}
	ok := any(a.OK())
	if err != nil {
		ok = nil
	} else if a.OK() && a.Checked == 0 { // else the queue is there, whatever has been lost of it
		if _, err := s.expect(ctx, q, false); err != nil {
			return err
		}
	}
	emitted := s.emit(map[string]any{
		"queue": label(q.Name()), "ok": ok, "checked": a.Checked, "lost": a.LostTotal, "ghosts": a.GhostTotal,
		"stale_names": a.StaleNames, "stale_counts": a.StaleCounts, "dead_bytes": a.DeadBytes,
		"repaired": a.Repaired,
	})
	if err != nil || emitted != nil || a.OK() || repair {
		return cmp.Or(err, emitted)
	}
	return errors.New("the queue is inconsistent; while it is idle, run the same with --repair")
}
