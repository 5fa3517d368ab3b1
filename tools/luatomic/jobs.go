package main

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/queue"
)

func jobsCommands() []*command {
	return []*command{
		jobsLsCommand(), jobsShowCommand(), jobsRequeueCommand(), jobsCancelCommand(), jobsBuryCommand(),
		jobsDeleteCommand(), jobsRescheduleCommand(), jobsReclaimCommand(), jobsReleaseCommand(),
	}
}

var listedStates = []queue.State{queue.Ready, queue.Scheduled, queue.Leased, queue.Dead}

// stateFlag chooses jobs by their state.
type stateFlag struct {
	state queue.State
	set   bool
}

func (f *stateFlag) String() string {
	if f == nil || !f.set {
		return ""
	}
	return string(f.state)
}

func (f *stateFlag) Set(v string) error {
	for _, state := range listedStates {
		if v == string(state) {
			f.state, f.set = state, true
			return nil
		}
	}
	return fmt.Errorf("no job is %q; write ready, scheduled, leased or dead", v)
}

type jobRow struct {
	ID       label             `json:"id"`
	State    string            `json:"state"`
	At       *int64            `json:"at"`
	Failures int               `json:"failures"`
	Reason   string            `json:"reason"`
	Kind     label             `json:"kind"`
	Headers  map[string]string `json:"headers"`
	Bytes    int               `json:"bytes"`
	Fence    int64             `json:"fence,omitempty"`
}

func rowOf(f queue.Found) jobRow {
	row := jobRow{
		ID: label(f.ID), State: string(f.State), Failures: f.Failures, Reason: f.Reason, Kind: label(f.Kind),
		Headers: f.Headers, Bytes: len(f.Body), Fence: f.Fence,
	}
	if !f.At.IsZero() {
		ms := f.At.UnixMilli()
		row.At = &ms
	}
	return row
}

const jobOutput = `"id","state","at","failures","reason","kind","headers","bytes","fence"?`

func jobsLsCommand() *command {
	var only stateFlag
	all, most := false, 50
	return &command{
		name: "jobs ls", args: "QUEUE [flags]", tagged: true,
		about: "List the jobs of a queue.",
		detail: `Only reads. The jobs of each state come in the order in which they come up, at most 50 of
each state. at is when a job was enqueued, is due, loses its lease or died. Of more than 200 jobs,
or 1 MiB of bodies, one can be missing where others leave meanwhile.`,
		output:  "{" + jobOutput + "} for each job, on a terminal a table; at: Unix ms; fence: of a leased job",
		example: `luatomic jobs ls mail --state dead`,
		flags: func(fs *flag.FlagSet) {
			fs.Var(&only, "state", "`STATE`: ready, scheduled, leased or dead; all four if left out")
			fs.IntVar(&most, "limit", 50, "`N` jobs of a state at most")
			fs.BoolVar(&all, "all", false, "no such limit")
		},
		check: func(s *session) error {
			if most < 1 {
				return usagef("--limit %d is below 1; write 1 or more, or --all", most)
			}
			return s.oneArg("queue")
		},
		run: func(s *session) error {
			return s.withQueue(func(ctx context.Context, q *queue.Queue) error {
				st, err := knownQueue(ctx, q)
				if err != nil {
					return err
				}
				out := s.rows("ID", "STATE", "AT", "FAILURES", "KIND", "REASON")
				for _, state := range listedStates {
					if only.set && state != only.state {
						continue
					}
					limit := most
					if all {
						limit = countOf(st, state)
					}
					err := eachJob(ctx, q, state, countOf(st, state), limit, func(p queue.Peeked) error {
						row := rowOf(queue.Found{State: state, Peeked: p})
						return out.add(row, row.ID, row.State, ago(p.At, st.Now), row.Failures, row.Kind, row.Reason)
					})
					if err != nil {
						return err
					}
				}
				return out.end()
			})
		},
	}
}

// knownQueue counts the jobs of a queue; one that nobody knows is an error.
func knownQueue(ctx context.Context, q *queue.Queue) (queue.Stats, error) {
	st, err := q.Stats(ctx)
	if err != nil {
		return st, err
	}
	return st, unknown(ctx, q, st)
}

func countOf(st queue.Stats, state queue.State) int {
	return map[queue.State]int{
		queue.Ready: st.Ready, queue.Scheduled: st.Scheduled, queue.Leased: st.Leased, queue.Dead: st.Dead,
	}[state]
}

// eachJob calls f for up to limit jobs of a state, of which there are so many.
func eachJob(ctx context.Context, q *queue.Queue, state queue.State, count, limit int,
	f func(queue.Peeked) error) error {
	const page = 200
	for offset, n := 0, 0; offset < count && n < limit; offset += page {
		jobs, err := q.Peek(ctx, state, offset, page)
		if err != nil {
			return err
		}
		for _, j := range jobs[:min(len(jobs), limit-n)] {
			n++
			if err := f(j); err != nil {
				return err
			}
		}
	}
	return nil
}

func jobsShowCommand() *command {
	return &command{
		name: "jobs show", args: "QUEUE ID... [flags]", tagged: true,
		about:  "Show jobs with their bodies.",
		detail: `Only reads. A ready job has no at: its place in the list is not searched.`,
		output: `{` + jobOutput + `,"max_failures","timeout_ms","expires_at","body"} for each job; body: as text, or as
  base64 in "body_base64" where it is not UTF-8`,
		example: `luatomic jobs show mail welcome-7`,
		flags:   func(*flag.FlagSet) {},
		check:   idsArgs,
		run: func(s *session) error {
			return s.withQueue(func(ctx context.Context, q *queue.Queue) error {
				found, now, err := findJobs(ctx, q, s.args[1:], "", listedStates...)
				if err != nil {
					return err
				}
				for _, f := range found {
					row := shownJob(f)
					if err := s.card(row, row.jobRow, f.Body, now); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
}

// fullJob is a job with its body.
type fullJob struct {
	jobRow
	MaxFailures int     `json:"max_failures"`
	TimeoutMS   int64   `json:"timeout_ms"`
	ExpiresAt   *int64  `json:"expires_at"`
	Body        *string `json:"body"`
	Base64      []byte  `json:"body_base64,omitempty"`
}

func shownJob(f queue.Found) (out fullJob) {
	out.jobRow, out.MaxFailures, out.TimeoutMS = rowOf(f), f.MaxFailures, f.Timeout.Milliseconds()
	if !f.ExpiresAt.IsZero() {
		ms := f.ExpiresAt.UnixMilli()
		out.ExpiresAt = &ms
	}
	if utf8.Valid(f.Body) {
		text := string(f.Body)
		out.Body = &text
	} else {
		out.Base64 = f.Body
	}
	return out
}

// idsArgs checks that there are a queue and ids.
func idsArgs(s *session) error {
	if len(s.args) < 2 {
		return usagef("write the queue and the ids of its jobs; luatomic jobs ls QUEUE lists them")
	}
	return keys.CheckName("queue", s.args[0])
}

// findJobs reads the jobs, and the server's time. It fails, before anything is changed, if one is in another state than
// those.
func findJobs(ctx context.Context, q *queue.Queue, ids []string, verb string, states ...queue.State) (
	found []queue.Found, now time.Time, err error) {
	st, err := knownQueue(ctx, q)
	if err != nil {
		return nil, now, err
	}
	if found, err = q.Find(ctx, ids...); err != nil {
		return nil, now, err
	}
	for _, f := range found {
		switch {
		case f.State == queue.Absent:
			return nil, now, fmt.Errorf("queue %q has no job %q: it is done or cancelled, or another queue has it; "+
				"luatomic jobs ls %s lists those it has", q.Name(), f.ID, argument(q))
		case !slices.Contains(states, f.State):
			return nil, now, fmt.Errorf("job %q is %v, and %s is for jobs that are %v; nothing is changed",
				f.ID, f.State, verb, alternatives(states))
		}
	}
	return found, st.Now, nil
}

func alternatives(states []queue.State) string {
	text := string(states[0])
	for _, s := range states[1:] {
		text += " or " + string(s)
	}
	return text
}
