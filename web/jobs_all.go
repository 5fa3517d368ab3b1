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
	formFor    = 10 * time.Minute // a form for all scheduled jobs, or for a delay, is good for so long
	countMost  = 20_000
	changeStep = 200
	moveStep   = 20 // of changes that are a round trip each
)

// countAll finds out how many jobs a change of all is for.
func (h *handler) countAll(ctx context.Context, q *request, of *queue.Queue, st queue.Stats, c *change) error {
	if !c.Filtered() {
		c.Count = countOf(st, c.state)
		return nil
	}
	filter, began := h.filterOf(q, of.Name()), time.Now()
	jobs, err := h.everyJob(of, c.state, c.means)
	for err == nil && !jobs.ended() && jobs.found < countMost &&
		(jobs.found == 0 || time.Since(began) < h.countFor) {
		var ids []string
		ids, err = jobs.some(ctx, filter, changeStep)
		c.Count += len(ids)
	}
	c.Checked = jobs.found
	if err == nil && !jobs.ended() {
		c.More, c.Total = true, countOf(st, c.state)
	}
	return err
}

// means reports whether a change of all is for a job of that time: a dead or ready one that came later than the form is
// not meant, nor one that is younger than asked, or due as asked already.
func (c *change) means(at time.Time) bool {
	if c.Verb == "reschedule" && !at.Before(c.due()) && at.Sub(c.due()) < 2*time.Millisecond {
		return false
	}
	return c.state == queue.Scheduled || !at.After(c.Until.Add(-c.older))
}

// changeAll makes the change for as many jobs as were confirmed, for as long as one request may take. It passes over no
// job that stays where it is, whatever others do to the list meanwhile. A job that stays dead, as another one holds its
// unique name, holds up no other.
func (h *handler) changeAll(ctx context.Context, q *request, of *queue.Queue, c *change) error {
	filter, began := h.filterOf(q, of.Name()), time.Now()
	jobs, err := h.everyJob(of, c.state, c.means)
	if err == nil {
		err = jobs.behind(c.From)
	}
	if c.state == queue.Ready {
		jobs.ids.Skip(c.Passed)
	}
	if c.Verb == "reschedule" {
		jobs.step = moveStep
	}
	var held queue.NameHeldError
	for err == nil && !jobs.ended() && c.Done+len(held.Jobs) < c.Count {
		if jobs.found > 0 && time.Since(began) >= h.changeFor {
			c.Passed, c.From = jobs.passed(), jobs.place()
			err = c.countLeft(ctx, of, len(held.Jobs))
			break
		}
		var ids []string
		if ids, err = jobs.some(ctx, filter, c.Count-c.Done-len(held.Jobs)); err != nil {
			break
		}
		err = c.apply(ctx, of, ids)
		var some *queue.NameHeldError
		if errors.As(err, &some) {
			held.Jobs, err = append(held.Jobs, some.Jobs...), nil
		}
	}
	c.Seen += jobs.found
	c.Rate = int(float64(c.Done) / max(time.Since(began).Seconds(), 0.001))
	if err == nil && len(held.Jobs) > 0 {
		err = &held
	}
	return err
}

// countLeft counts what a further request may find: at most what was confirmed and is not done, and no job that stays
// dead, as another one holds its unique name.
func (c *change) countLeft(ctx context.Context, of *queue.Queue, held int) error {
	st, err := of.Stats(ctx)
	c.Total = countOf(st, c.state)
	c.Left = min(c.Count-c.Done-held, c.Total)
	return err
}
