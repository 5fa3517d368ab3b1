package web

import (
	"context"
	"errors"
	"time"

	"github.com/luatomic/luatomic/queue"
)

// The bounds of a change of all jobs, for one request. What is left is offered as a further form.
const (
	changeFor  = 3 * time.Second
	countFor   = 1 * time.Second
	countMost  = 20_000
	changeStep = 200
)

// countAll finds out how many jobs a change of all is for.
func (h *handler) countAll(ctx context.Context, q *request, of *queue.Queue, st queue.Stats, c *change) error {
	if !c.Filtered() {
		c.Count = countOf(st, c.state)
		return nil
	}
	filter, began := h.filterOf(q, of.Name()), time.Now()
	jobs := jobList{queue: of, state: c.state, total: countOf(st, c.state), forward: true}
	for !jobs.ended() && jobs.checked < countMost && time.Since(began) < countFor {
		found, err := jobs.next(ctx, changeStep)
		if err != nil {
			return err
		}
		for i := range found {
			if c.means(filter, &found[i]) {
				c.Count++
			}
		}
	}
	c.Checked = min(jobs.checked, jobs.total)
	return nil
}

// means reports whether a change of all is for the job: a dead or ready one that came later than the form is not meant,
// nor one that is due as asked already.
func (c *change) means(f *jobFilter, j *queue.Peeked) bool {
	if c.Verb == "reschedule" && !j.At.Before(c.due()) && j.At.Sub(c.due()) < 2*time.Millisecond {
		return false
	}
	return f.matches(j) && (c.state == queue.Scheduled || !j.At.After(c.Until))
}

// changeAll makes the change for as many jobs as were confirmed, the oldest first, for as long as one request may take.
// A job that stays dead, as another one holds its unique name, holds up no other.
func (h *handler) changeAll(ctx context.Context, q *request, of *queue.Queue, c *change) error {
	st, err := of.Stats(ctx)
	if err != nil {
		return err
	}
	filter, began := h.filterOf(q, of.Name()), time.Now()
	jobs := jobList{queue: of, state: c.state, total: countOf(st, c.state), forward: true}
	var held queue.NameHeldError
	for !jobs.ended() && c.Done+len(held.Jobs) < c.Count && time.Since(began) < changeFor {
		found, err := jobs.next(ctx, changeStep)
		if err != nil {
			return err
		}
		var ids []string
		for i := range found {
			if c.means(filter, &found[i]) && c.Done+len(held.Jobs)+len(ids) < c.Count {
				ids = append(ids, found[i].ID)
			}
		}
		n, err := c.apply(ctx, of, ids)
		c.Done += n
		var some *queue.NameHeldError
		if errors.As(err, &some) {
			held.Jobs = append(held.Jobs, some.Jobs...)
		} else if err != nil {
			return err
		}
		if len(found) > 0 && c.leaves(found[len(found)-1].At) {
			jobs.at -= n
		}
	}
	if !jobs.ended() {
		c.Left = c.Count - c.Done
	}
	if len(held.Jobs) > 0 {
		return &held
	}
	return nil
}

// leaves reports whether changed jobs are no longer where they were, before a job of that time: the others move up. A
// cancelled ready job keeps its place until a worker comes to it.
func (c *change) leaves(last time.Time) bool {
	if c.Verb == "reschedule" {
		return c.due().After(last)
	}
	return c.state != queue.Ready
}
