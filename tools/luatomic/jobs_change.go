package main

import (
	"context"
	"flag"
	"slices"
	"time"

	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/queue"
)

// changeJobs changes those of the jobs that are in one of the states, and returns how many.
type changeJobs func(ctx context.Context, q *queue.Queue, in []queue.State, ids []string) (int, error)

// changeCommand is a command that does one thing to jobs: those of the ids, or with --all those of a state.
type changeCommand struct {
	verb, done    string // such as requeue, requeued
	about, detail string
	states        []queue.State // that it is for; the first is that of --all without --state
	change        changeJobs
	example       string
	moreFlags     func(fs *flag.FlagSet)
	moreCheck     func() error
}

func (c changeCommand) command() *command {
	var only stateFlag
	all := false
	return &command{
		name: "jobs " + c.verb, args: "QUEUE [ID...] [flags]", tagged: true,
		about: c.about, detail: c.detail,
		output:  `{"queue","` + c.done + `"}: how many jobs`,
		example: c.example,
		flags: func(fs *flag.FlagSet) {
			fs.BoolVar(&all, "all", false, "all jobs of the state, in place of IDs")
			fs.Var(&only, "state", "`STATE` of the jobs that --all means; "+string(c.states[0])+" if left out")
			if c.moreFlags != nil {
				c.moreFlags(fs)
			}
		},
		check: func(s *session) error {
			switch {
			case len(s.args) < 2 && !all:
				return usagef("write the queue and the ids of its jobs, or --all")
			case len(s.args) != 1 && all:
				return usagef("either ids or --all; leave one of them out")
			case only.set && !all:
				return usagef("--state goes with --all; leave it out, or the ids")
			case only.set && !slices.Contains(c.states, only.state):
				return usagef("jobs %s is for jobs that are %v, not %v", c.verb, alternatives(c.states), only.state)
			}
			if c.moreCheck != nil {
				if err := c.moreCheck(); err != nil {
					return err
				}
			}
			return keys.CheckName("queue", s.args[0])
		},
		run: func(s *session) error {
			return s.withQueueOn(func(ctx context.Context, client lua.Client, q *queue.Queue) error {
				in, ids := c.states, s.args[1:]
				_, _, err := findJobs(ctx, q, ids, "jobs "+c.verb, in...)
				if all {
					in = in[:1]
					if only.set {
						in = []queue.State{only.state}
					}
				}
				if err == nil && all {
					ids, err = allJobs(ctx, client, q, s.prefix, in[0])
				}
				if err != nil {
					return err
				}
				n, err := c.change(ctx, q, in, ids)
				if emitErr := s.emit(map[string]any{"queue": label(q.Name()), c.done: n}); err == nil {
					err = emitErr
				}
				return err
			})
		},
	}
}

func jobsRequeueCommand() *command {
	return changeCommand{
		verb: "requeue", done: "requeued", about: "Make dead jobs ready again.",
		detail: `Their failures are forgotten. An id that is not dead is an error, and then nothing is changed.
A job whose unique name another job holds stays dead: it is named, and the exit code is 1.`,
		states: []queue.State{queue.Dead}, example: `luatomic jobs requeue mail --all`,
		change: func(ctx context.Context, q *queue.Queue, _ []queue.State, ids []string) (n int, err error) {
			if len(ids) > 0 {
				n, err = q.Requeue(ctx, ids...)
			}
			return n, err
		},
	}.command()
}

func cancelJobs(ctx context.Context, q *queue.Queue, in []queue.State, ids []string) (int, error) {
	was, err := q.CancelIn(ctx, in, ids...)
	return countIn(was, in), err
}

// countIn counts the jobs that were in one of the states.
func countIn(was, in []queue.State) (n int) {
	for _, state := range was {
		if slices.Contains(in, state) {
			n++
		}
	}
	return n
}

func jobsCancelCommand() *command {
	states := []queue.State{queue.Ready, queue.Scheduled, queue.Leased}
	return changeCommand{
		verb: "cancel", done: "cancelled", about: "Cancel jobs, even those that a worker holds.",
		detail: `They are deleted with their bodies. The worker of a leased job is notified: the context of
its handler ends, and the job is not tried again. If the notification is lost, it ends at the next renewal, within a
third of the lease.`,
		states: states, example: `luatomic jobs cancel mail welcome-7`, change: cancelJobs,
	}.command()
}

func jobsBuryCommand() *command {
	reason := ""
	states := []queue.State{queue.Ready, queue.Scheduled}
	return changeCommand{
		verb: "bury", done: "buried", about: "Move waiting jobs to the dead set.",
		detail: `They keep their bodies and the reason until jobs requeue or jobs delete. A leased job stays with its worker.
The next death of a job in a consumer trims the dead set to that consumer's bound.`,
		states: states, example: `luatomic jobs bury mail welcome-7 --reason "wrong address"`,
		moreFlags: func(fs *flag.FlagSet) {
			fs.StringVar(&reason, "reason", "buried by hand", "`TEXT` kept with each job, up to 1 KiB")
		},
		change: func(ctx context.Context, q *queue.Queue, in []queue.State, ids []string) (int, error) {
			was, err := q.BuryJobsIn(ctx, in, reason, ids...)
			return countIn(was, in), err
		},
	}.command()
}

func jobsDeleteCommand() *command {
	states := []queue.State{queue.Dead, queue.Scheduled, queue.Ready}
	return changeCommand{
		verb: "delete", done: "deleted", about: "Delete dead jobs for good.",
		detail: `With --state also ready or scheduled ones. A leased job stays with its worker.`,
		states: states, example: `luatomic jobs delete mail --all --state dead`, change: cancelJobs,
	}.command()
}

// errNoTime is the error of a reschedule that says no time: a forgotten flag would let the jobs run at once.
var errNoTime = usagef("write --in D or --at T; --in 0s is now")

func jobsRescheduleCommand() *command {
	var in time.Duration
	var at string
	var due time.Time
	var flags *flag.FlagSet
	return changeCommand{
		verb: "reschedule", done: "rescheduled", about: "Change when scheduled jobs are due.",
		detail: `By the server's clock. One of --in and --at has to be there; --in 0s is now.`,
		states: []queue.State{queue.Scheduled}, example: `luatomic jobs reschedule mail welcome-7 --in 10m`,
		moreFlags: func(fs *flag.FlagSet) {
			flags = fs
			fs.DurationVar(&in, "in", 0, "`DURATION` from now")
			fs.StringVar(&at, "at", "", "`TIME`, RFC 3339 or Unix ms")
		},
		moreCheck: func() (err error) {
			switch {
			case at == "" && !given(flags, "in"):
				return errNoTime
			case in < 0:
				return usagef("--in %v is below zero; write 0 or more", in)
			case in > 0 && at != "":
				return usagef("both --in and --at; leave one of them out")
			case at != "":
				if due, err = parseAt(at); err != nil {
					return usagef("--at: %v", err)
				}
			}
			return nil
		},
		change: func(ctx context.Context, q *queue.Queue, _ []queue.State, ids []string) (n int, err error) {
			st, err := q.Stats(ctx)
			if err != nil {
				return 0, err
			}
			to := st.Now.Add(in)
			if at != "" {
				to = due
			}
			for _, id := range ids {
				r, err := q.Reschedule(ctx, id, to)
				if err != nil {
					return n, err
				}
				if r.Found {
					n++
				}
			}
			return n, nil
		},
	}.command()
}
