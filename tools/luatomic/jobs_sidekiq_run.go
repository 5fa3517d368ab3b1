package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
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
		noLists(j.s, &st)
		out := j.s.rows("QUEUE", "READY", "LATENCY")
		for _, q := range st.Queues {
			row := sidekiqQueue{Queue: label(q.Name), Ready: q.Size, LatencyMS: q.Latency.Milliseconds()}
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
	row := jobRow{ID: label(f.JID), State: f.state, Failures: f.Failures, Reason: f.Reason, Kind: label(f.Class),
		Bytes: len(f.Payload)}
	if f.Wrapped != "" {
		row.Kind = label(f.Wrapped)
	}
	if !f.At.IsZero() {
		ms := f.At.UnixMilli()
		row.At = &ms
	}
	return row
}

// scan yields the queue's jobs of a state, in no order. One that stays where it is is not missed, and can come twice.
func (j *sidekiqJobs) scan(ctx context.Context, state string) iter.Seq2[sidekiqFound, error] {
	entries := j.d.ScanQueue(ctx, j.queue)
	if state != "ready" {
		entries = j.d.ScanSet(ctx, sidekiqSets[state])
	}
	return func(yield func(sidekiqFound, error) bool) {
		for e, err := range entries {
			if (err != nil || state == "ready" || e.Queue == j.queue) && !yield(sidekiqFound{e, state}, err) {
				return
			}
		}
	}
}

// all returns the queue's jobs of a state: of a set the earliest first and each once, of the queue the newest first.
func (j *sidekiqJobs) all(ctx context.Context, state string) (found []sidekiqFound, err error) {
	for f, err := range j.scan(ctx, state) {
		if err != nil {
			return nil, err
		}
		found = append(found, f)
	}
	if state == "ready" {
		return found, nil
	}
	slices.SortFunc(found, func(a, b sidekiqFound) int {
		return cmp.Or(cmp.Compare(a.Score, b.Score), bytes.Compare(a.Payload, b.Payload))
	})
	return slices.CompactFunc(found, func(a, b sidekiqFound) bool { return bytes.Equal(a.Payload, b.Payload) }), nil
}

// some calls f for the queue's jobs of a state, the first to be served or due first, until f has seen enough. It reads
// them page by page: one may be missed where others leave meanwhile.
func (j *sidekiqJobs) some(ctx context.Context, state string, f func(sidekiqFound) (more bool, err error)) error {
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

// unknown is an error where the queue is listed nowhere.
func (j *sidekiqJobs) unknown(st sidekiq.Stats) error {
	if slices.ContainsFunc(st.Queues, func(q sidekiq.QueueStats) bool { return q.Name == j.queue }) {
		return nil
	}
	return fmt.Errorf("there is no queue %q; luatomic queues ls --dialect %s lists them", j.queue, j.dialect)
}

func listSidekiqJobs(ctx context.Context, j *sidekiqJobs) error {
	st, err := j.d.Stats(ctx)
	if err != nil {
		return err
	}
	limit, total, all := value[int](j, "limit"), 0, value[bool](j, "all")
	out := j.s.rows("ID", "STATE", "AT", "FAILURES", "KIND", "REASON")
	for _, state := range j.verb.states {
		if j.state != "" && j.state != state {
			continue
		}
		n := 0
		list := func(f sidekiqFound) (bool, error) {
			n, total = n+1, total+1
			row := f.row()
			err := out.add(row, row.ID, state, ago(f.At, st.Now), row.Failures, row.Kind, row.Reason)
			return all || n < limit, err
		}
		if err := j.list(ctx, state, all, list); err != nil {
			return err
		}
	}
	if total == 0 && j.state == "" {
		// The jobs of a queue that is not listed can be in a set.
		if err := j.unknown(st); err != nil {
			return err
		}
	}
	return out.end()
}

// list calls f for the queue's jobs of a state, the first to be served or due first: for all, or until f has enough.
func (j *sidekiqJobs) list(ctx context.Context, state string, all bool, f func(sidekiqFound) (bool, error)) error {
	if !all {
		return j.some(ctx, state, f)
	}
	found, err := j.all(ctx, state)
	if state == "ready" {
		slices.Reverse(found)
	}
	for i := 0; err == nil && i < len(found); i++ {
		_, err = f(found[i])
	}
	return err
}

// jobs are those of the ids, in their order, or all of the state. An id that is nowhere is an error.
func (j *sidekiqJobs) jobs(ctx context.Context) (found []sidekiqFound, err error) {
	state, ids := j.state, j.s.args[1:]
	if len(ids) == 0 {
		if state == "" {
			state = j.verb.states[0]
		}
		return j.all(ctx, state)
	}
	byID, err := j.named(ctx, ids)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		f, ok := byID[id]
		if !ok {
			return nil,
				fmt.Errorf("queue %q has no job %q that is %s; luatomic jobs ls %s --dialect %s lists those it has",
					j.queue, id, strings.Join(j.verb.states, " or "), quoted(j.queue), j.dialect)
		}
		found = append(found, f)
	}
	return found, nil
}

// named finds the jobs of the ids. The queue is read last: where due jobs go meanwhile.
func (j *sidekiqJobs) named(ctx context.Context, ids []string) (byID map[string]sidekiqFound, err error) {
	states := slices.DeleteFunc(slices.Clone(j.verb.states), func(state string) bool { return state == "ready" })
	if len(states) < len(j.verb.states) {
		states = append(states, "ready")
	}
	byID = make(map[string]sidekiqFound)
	for _, state := range states {
		for f, err := range j.scan(ctx, state) {
			if err != nil {
				return nil, err
			}
			if _, twice := byID[f.JID]; !twice && slices.Contains(ids, f.JID) {
				byID[f.JID] = f
			}
			if len(byID) == len(ids) {
				return byID, nil
			}
		}
	}
	return byID, nil
}

func showSidekiqJobs(ctx context.Context, j *sidekiqJobs) error {
	found, err := j.jobs(ctx)
	if err != nil {
		return err
	}
	st, err := j.d.Stats(ctx)
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
		if err := j.s.card(out, out.jobRow, f.Payload, st.Now); err != nil {
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
		return errors.Join(err, j.s.emit(map[string]any{"queue": label(j.queue), done: n}))
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
