package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/luatomic/luatomic/compat/sidekiq"
)

func listSidekiqQueues(ctx context.Context, j *sidekiqJobs) error {
	return j.s.again(j.watch(), func() error {
		st, err := j.d.Stats(ctx)
		if err != nil {
			return err
		}
		out := j.s.rows("QUEUE", "READY", "LATENCY")
		for _, q := range st.Queues {
			row := sidekiqQueue{Queue: q.Name, Ready: q.Size, LatencyMS: q.Latency.Milliseconds()}
			if err := out.add(row, q.Name, q.Size, rounded(q.Latency)); err != nil {
				return err
			}
		}
		return out.end()
	})
}

// sidekiqFound is a job and the state in which it was found.
type sidekiqFound struct {
	sidekiq.Entry
	state string
}

func (f sidekiqFound) ref() sidekiq.Ref {
	return sidekiq.Ref{Set: sidekiqSets[f.state], JID: f.JID, Score: f.Score}
}

func (f sidekiqFound) row() jobRow {
	row := jobRow{ID: f.JID, State: f.state, Failures: f.Failures, Reason: f.Reason, Kind: f.Class, Bytes: len(f.Payload)}
	if f.Wrapped != "" {
		row.Kind = f.Wrapped
	}
	if !f.At.IsZero() {
		ms := f.At.UnixMilli()
		row.At = &ms
	}
	return row
}

// each calls f for the queue's jobs of a state until f has seen enough.
func (j *sidekiqJobs) each(ctx context.Context, state string, f func(sidekiqFound) (more bool, err error)) error {
	const page = 200
	for offset := 0; ; offset += page {
		var some []sidekiq.Entry
		var err error
		if state == "ready" {
			some, err = j.d.QueueEntries(ctx, j.queue, offset, page)
		} else {
			some, err = j.d.SetEntries(ctx, sidekiqSets[state], offset, page)
		}
		if err != nil {
			return err
		}
		for _, e := range some {
			if state != "ready" && e.Queue != j.queue {
				continue
			}
			if more, err := f(sidekiqFound{e, state}); err != nil || !more {
				return err
			}
		}
		if len(some) < page {
			return nil
		}
	}
}

// known is an error where the queue is listed nowhere.
func (j *sidekiqJobs) known(ctx context.Context) (now time.Time, err error) {
	st, err := j.d.Stats(ctx)
	if err == nil && !slices.ContainsFunc(st.Queues, func(q sidekiq.QueueStats) bool { return q.Name == j.queue }) {
		err = fmt.Errorf("there is no queue %q; luatomic queues ls --dialect %s lists them", j.queue, j.dialect)
	}
	return st.Now, err
}

func listSidekiqJobs(ctx context.Context, j *sidekiqJobs) error {
	limit, total := value[int](j, "limit"), 0
	out := j.s.rows("ID", "STATE", "AT", "FAILURES", "KIND", "REASON")
	for _, state := range j.verb.states {
		if j.state != "" && j.state != state {
			continue
		}
		n := 0
		err := j.each(ctx, state, func(f sidekiqFound) (bool, error) {
			n, total = n+1, total+1
			row := f.row()
			err := out.add(row, row.ID, state, ago(f.At, time.Now()), row.Failures, row.Kind, row.Reason)
			return value[bool](j, "all") || n < limit, err
		})
		if err != nil {
			return err
		}
	}
	if total == 0 && j.state == "" {
		// The jobs of a queue that is not listed can be in a set.
		if _, err := j.known(ctx); err != nil {
			return err
		}
	}
	return out.end()
}

// jobs are those of the ids, in their order, or all of the state. An id that is nowhere is an error.
func (j *sidekiqJobs) jobs(ctx context.Context) (found []sidekiqFound, err error) {
	state, ids := j.state, j.s.args[1:]
	if len(ids) == 0 {
		if state == "" {
			state = j.verb.states[0]
		}
		err := j.each(ctx, state, func(f sidekiqFound) (bool, error) {
			found = append(found, f)
			return true, nil
		})
		return found, err
	}
	byID := make(map[string]sidekiqFound)
	for _, state := range j.verb.states {
		err := j.each(ctx, state, func(f sidekiqFound) (bool, error) {
			if _, twice := byID[f.JID]; !twice && slices.Contains(ids, f.JID) {
				byID[f.JID] = f
			}
			return len(byID) < len(ids), nil
		})
		if err != nil {
			return nil, err
		}
	}
	for _, id := range ids {
		f, ok := byID[id]
		if !ok {
			return nil, fmt.Errorf("queue %q has no job %q that is %s; luatomic jobs ls %s --dialect %s lists those it has",
				j.queue, id, strings.Join(j.verb.states, " or "), j.queue, j.dialect)
		}
		found = append(found, f)
	}
	return found, nil
}

func showSidekiqJobs(ctx context.Context, j *sidekiqJobs) error {
	found, err := j.jobs(ctx)
	if err != nil {
		return err
	}
	for _, f := range found {
		out := struct {
			jobRow
			Body string `json:"body"`
		}{f.row(), string(f.Payload)}
		if !utf8.Valid(f.Payload) {
			return fmt.Errorf("the payload of job %q is not UTF-8; luatomic doctor --dialect %s counts such jobs",
				f.JID, j.dialect)
		}
		if err := j.s.card(out, out.jobRow, f.Payload); err != nil {
			return err
		}
	}
	return nil
}

// changeSidekiqJobs finds all jobs before it changes one, and prints how many it has changed, also with an error.
func changeSidekiqJobs(done string, change func(context.Context, *sidekiqJobs, sidekiqFound) (bool, error)) func(
	context.Context, *sidekiqJobs) error {
	return func(ctx context.Context, j *sidekiqJobs) error {
		found, err := j.jobs(ctx)
		n := 0
		for _, f := range found {
			if err != nil {
				break
			}
			var ok bool
			if ok, err = change(ctx, j, f); ok {
				n++
			}
		}
		if err != nil && n == 0 {
			return err
		}
		return errors.Join(err, j.s.emit(map[string]any{"queue": j.queue, done: n}))
	}
}

func rescheduleSidekiqJobs(ctx context.Context, j *sidekiqJobs) error {
	st, err := j.d.Stats(ctx)
	if err != nil {
		return err
	}
	to := st.Now.Add(value[time.Duration](j, "in"))
	if !j.due.IsZero() {
		to = j.due
	}
	return changeSidekiqJobs("rescheduled", func(ctx context.Context, j *sidekiqJobs, f sidekiqFound) (bool, error) {
		_, ok, err := j.d.Reschedule(ctx, f.ref(), to)
		return ok, err
	})(ctx, j)
}
