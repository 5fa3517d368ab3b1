package web

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/luatomic/luatomic/internal/show"
	"github.com/luatomic/luatomic/queue"
)

// change is what a form asks to do to jobs of one queue and state.
type change struct {
	Verb  string    `json:"verb"`
	Label string    `json:"-"`
	Queue show.Name `json:"queue"`
	Tag   show.Name `json:"tag,omitempty"`
	State string    `json:"state"`
	// IDs are the jobs, or All of the state, with the filter, none newer than Until.
	IDs   []show.Name `json:"ids,omitempty"`
	All   bool        `json:"all,omitempty"`
	Until time.Time   `json:"until,omitzero"`
	meant
	In string `json:"in,omitempty"`
	// Count is how many jobs it is for; with a filter those among the Checked. More says that others were not checked
	// yet: the change looks at them too, and Total is how many are in the state.
	Count   int  `json:"count"`
	Checked int  `json:"checked,omitempty"`
	More    bool `json:"more,omitempty"`
	Total   int  `json:"total,omitempty"`
	// Done is how many were changed, after the change. Left is what the time of one request did not suffice for.
	Done int `json:"done"`
	Left int `json:"left,omitempty"`
	// Passed and From are where the list is to be continued: send them again, as passed and from. SoFar is what the
	// requests before have changed, Seen what all of them have checked, Rate how many this one has changed per second.
	Passed int    `json:"passed,omitempty"`
	From   string `json:"from,omitempty"`
	SoFar  int    `json:"so_far,omitempty"`
	Seen   int    `json:"seen,omitempty"`
	Rate   int    `json:"per_second,omitempty"`
	// Auto says that the page goes on by itself.
	Auto bool `json:"-"`
	// Stayed says which jobs stay dead of those that were tried, where some are left.
	Stayed *fault `json:"stayed,omitempty"`
	// Fence is that of the lease that a release is for, where it has moved since it was shown.
	Fence int64 `json:"fence,omitempty"`
	// Confirm says that nothing has changed yet: send it again with confirm=Most, which is Count, or the Total where
	// there are More.
	Confirm bool `json:"confirm,omitempty"`
	Most    int  `json:"most,omitempty"`

	ids       []string // IDs themselves
	state     queue.State
	in        time.Duration
	confirmed int  // the number that was shown, -1 before that
	sure      bool // one job needs no question
	made      *atomic.Int64
}

// add counts the jobs that were changed. The request has the number also where it ends before its function.
func (c *change) add(n int) { c.Done = int(c.made.Add(int64(n))) }

// due is when a rescheduled job is due. It is the same when the form is sent again.
func (c *change) due() time.Time { return c.Until.Add(c.in) }

// All jobs that the requests so far have changed, and that they are for.
func (c change) DoneByNow() int { return c.SoFar + c.Done }
func (c change) Goal() int      { return c.SoFar + c.Count }

// UntilMS is Until for a form.
func (c change) UntilMS() int64 { return c.Until.UnixMilli() }

// maxPicked is more than a page has.
const maxPicked = 1000

// changeJobs shows how many jobs a change is for, and makes it when that number comes back as "confirm". One job needs
// no question where the change can be undone.
func (h *handler) changeJobs(ctx context.Context, q *request) (answer, error) {
	if err := h.need(q.role, Jobs, "change jobs"); err != nil {
		return answer{}, err
	}
	of, err := h.queueOf(q, h.writer)
	if err != nil {
		return answer{}, err
	}
	st, err := h.known(ctx, of)
	if err != nil {
		return answer{}, err
	}
	if q.get("verb") == "release" && q.get("all") == "" {
		return h.releaseJob(ctx, q, of)
	}
	c, err := changeOf(q, of, st)
	if err != nil {
		return answer{}, err
	}
	if !c.All {
		err = h.expect(ctx, of, c)
	} else if c.confirmed < 0 {
		err = h.countAll(ctx, q, of, st, c)
	}
	if err != nil {
		return answer{}, err
	}
	if c.asks() {
		c.Confirm = true
		if c.Most = c.Count; c.More {
			c.Most = c.Total
		}
		return answer{page: "confirm", title: c.Label + "?", data: c}, nil
	}
	if c.All {
		c.Count = c.confirmed
		err = caught(func() error { return h.changeAll(ctx, q, of, c) }) // Redact can panic: the report is made anyway
	} else {
		err = c.apply(ctx, of, c.ids)
		if err == nil && c.Done == 0 { // they have moved on since the look
			err = h.expect(ctx, of, c)
		}
	}
	h.report(q, Action{Verb: c.Verb, Target: targetOf(of), IDs: c.ids[:min(len(c.ids), 100)], Done: c.Done, Err: err})
	if err = c.stayedDead(err); err != nil {
		return answer{}, err
	}
	return answer{page: "changed", title: c.Label, data: c}, nil
}

// asks reports whether the number of jobs is to be shown before anything changes.
func (c *change) asks() bool {
	if c.All {
		return c.confirmed < 0
	}
	return c.confirmed != c.Count && !(c.sure && c.Count == 1)
}

// changeOf reads the form.
func changeOf(q *request, of *queue.Queue, st queue.Stats) (*change, error) {
	c := &change{
		Verb: q.get("verb"), Queue: show.Name(of.Name()), Tag: show.Name(of.Tag()), State: q.get("state"),
		In: q.get("in"), Until: st.Now, confirmed: -1,
		made: &q.made,
		From: q.get("from"), Auto: q.get("auto") != "",
	}
	var err error
	if all := q.get("all"); all != "" {
		c.Verb, c.All = all, true
	} else if c.ids, err = idsOf(q); err != nil {
		return nil, err
	}
	c.IDs = show.Names(c.ids)
	if c.State == "" {
		return nil, faultf(http.StatusBadRequest, "Name the state in which you saw the jobs.", "The state is missing.")
	}
	if c.state, err = stateOf(c.State, st); err != nil {
		return nil, err
	}
	if c.meant, err = meantOf(q, c.state); err != nil {
		return nil, err
	}
	if c.Verb == "" {
		return nil, faultf(http.StatusBadRequest, "Go back and press the button of a change.", "No change is named.")
	}
	known := verbsOf(c.state)
	at := slices.IndexFunc(known, func(v verb) bool { return v.Name == c.Verb })
	if at < 0 {
		return nil, faultf(http.StatusBadRequest, "The page of the queue shows what can be done.",
			"%q cannot be done to %s jobs.", shown(40, c.Verb), c.State)
	}
	c.Label, c.sure, c.Count = known[at].Label, known[at].Sure, len(c.IDs)
	switch {
	case !c.All && len(c.IDs) == 0:
		return nil, faultf(http.StatusBadRequest, "Go back and select some.", "No job is selected.")
	case len(c.IDs) > maxPicked:
		return nil, faultf(http.StatusBadRequest, "Send fewer.", "%d jobs are more than %d.", len(c.IDs), maxPicked)
	}
	return c, c.readNumbers(q)
}

// idsOf are the jobs that the form names: as JSON has them, or escaped, as the page does. A browser makes CRLF of each
// line end that it sends: an id with one would name no job.
func idsOf(q *request) ([]string, error) {
	ids := slices.Clone(q.form["id"])
	for _, escaped := range q.form["job"] {
		id, err := url.QueryUnescape(escaped)
		if err != nil {
			return nil, faultf(http.StatusBadRequest, "Write it as in an address, or use the field id.",
				"%q is no escaped id.", shown(128, escaped))
		}
		ids = append(ids, show.Named(id))
	}
	return ids, nil
}

// readNumbers reads the fields of the form that are numbers or times.
func (c *change) readNumbers(q *request) (err error) {
	for field, to := range map[string]*int{"confirm": &c.confirmed, "passed": &c.Passed,
		"sofar": &c.SoFar, "seen": &c.Seen} {
		text := q.get(field)
		if text == "" {
			continue
		}
		if *to, err = strconv.Atoi(text); err != nil || *to < 0 {
			return faultf(http.StatusBadRequest, "Go back and begin again.", "%q is no number of jobs.",
				shown(40, text))
		}
	}
	if c.Verb == "reschedule" && c.In != "" {
		if c.in, err = time.ParseDuration(c.In); err != nil || c.in < 0 || c.in > 10*365*24*time.Hour {
			return faultf(http.StatusBadRequest, "Write it like 90s, 10m or 2h30m.", "%q is no delay.", shown(40, c.In))
		}
	}
	if text := q.get("until"); text != "" {
		ms, err := strconv.ParseInt(text, 10, 64)
		if err != nil || ms <= 0 {
			return faultf(http.StatusBadRequest, "Go back and begin again.", "%q is no time.", shown(40, text))
		}
		return c.shownAt(time.UnixMilli(ms))
	}
	return nil
}

// shownAt is for a form that was made at that time. An old one is not made for scheduled jobs whose ids it does not
// have, as they were not shown, nor for a delay that is over.
func (c *change) shownAt(at time.Time) error {
	age := c.Until.Sub(at)
	if age > formFor && c.state == queue.Scheduled && (c.All || c.Verb == "reschedule") {
		return faultf(http.StatusConflict, "Nothing was changed. Go back and read the list again.",
			"The form is of %s ago, and such a form is good for %s.", rounded(age), rounded(formFor))
	}
	if age > 0 {
		c.Until = at
	}
	return nil
}

// expect fails unless each of the jobs is in the state in which it was seen.
func (h *handler) expect(ctx context.Context, of *queue.Queue, c *change) error {
	found, err := of.Find(ctx, c.ids...)
	if err != nil {
		return err
	}
	for _, f := range found {
		if f.State != c.state {
			return faultf(http.StatusConflict, "Nothing was changed. Go back and read the list again.",
				"Job %q is %v now, not %s.", shown(128, f.ID), f.State, c.State)
		}
	}
	return nil
}

// apply makes the change and counts the jobs that it found. One that has left the state stays as it is.
func (c *change) apply(ctx context.Context, of *queue.Queue, ids []string) error {
	switch {
	case len(ids) == 0: // to Requeue that would mean those that died first
		return nil
	case c.Verb == "requeue":
		n, err := of.Requeue(ctx, ids...)
		c.add(n)
		return err
	case c.Verb == "reschedule":
		for _, id := range ids {
			r, err := of.Reschedule(ctx, id, c.due())
			if err != nil {
				return err
			}
			if r.Found {
				c.add(1)
			}
		}
		return nil
	}
	var was []queue.State
	var err error
	if c.Verb == "bury" {
		was, err = of.BuryJobsIn(ctx, []queue.State{c.state}, "buried by hand", ids...)
	} else {
		was, err = of.CancelIn(ctx, []queue.State{c.state}, ids...)
	}
	for _, state := range was {
		if state == c.state {
			c.add(1)
		}
	}
	return err
}

// stayedDead is the fault of a requeue of which jobs stay dead, as others hold their unique names. Where the time of
// the request did not suffice for all, the page that offers to continue has it.
func (c *change) stayedDead(err error) error {
	var held *queue.NameHeldError
	if !errors.As(err, &held) {
		return err
	}
	first := held.Jobs[0]
	f := faultf(http.StatusConflict, "Requeue when that one is done, or cancel one of the two.",
		"Requeued: %d. Still dead: %d, the first %q: job %q holds its unique name.", c.Done, len(held.Jobs),
		shown(128, first.ID), shown(128, first.Holder))
	if c.Left > 0 {
		c.Stayed = f
		return nil
	}
	return f
}

// targetOf is the queue in the audit log. No name holds a brace, so a tag is no part of a name.
func targetOf(q *queue.Queue) string {
	if q.Tag() == "" {
		return "queue " + q.Name()
	}
	return "queue " + q.Name() + " {" + q.Tag() + "}"
}

// report tells the audit log.
func (h *handler) report(q *request, a Action) {
	if h.opts.OnAction != nil {
		h.opts.OnAction(q.Request, a)
	}
}

// verb is something that can be done to jobs of a state.
type verb struct {
	Name, Label string
	// Sure: it can be undone by hand, so one job needs no question.
	Sure bool
}

// verbsOf are what can be done to jobs of that state. A leased job is its worker's.
func verbsOf(state queue.State) []verb {
	switch state {
	case queue.Dead:
		return []verb{{"requeue", "Requeue", true}, {"delete", "Delete", false}}
	case queue.Scheduled:
		return []verb{{"reschedule", "Reschedule", true}, {"bury", "Bury", true}, {"cancel", "Cancel", false}}
	case queue.Ready:
		return []verb{{"bury", "Bury", true}, {"cancel", "Cancel", false}}
	}
	return nil
}
