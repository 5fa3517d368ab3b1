package web

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/queue"
)

// states are those that a job can be in, in the order of the tabs.
var states = []queue.State{queue.Ready, queue.Scheduled, queue.Leased, queue.Dead}

type queueData struct {
	queueRow
	Now   time.Time `json:"now"`
	State string    `json:"state"`
	Tabs  []tab     `json:"-"`
	meant
	Jobs []jobRow `json:"jobs"`
	// Checked counts the jobs that were read for this page, Total all of the state.
	Checked int `json:"checked"`
	Total   int `json:"total"`
	// Next and Before are cursors of other pages.
	Next   string `json:"next,omitempty"`
	Before string `json:"before,omitempty"`
	Verbs  []verb `json:"-"`
}

// Dropped reports whether the list may have entries of jobs that are ready no more.
func (d queueData) Dropped() bool {
	return !d.Filtered() && d.State == string(queue.Ready) && len(d.Jobs) < d.Checked
}

// tab is a link to the jobs of a state.
type tab struct {
	State string
	Count int
}

// queueOf is the queue that the address names.
func (h *handler) queueOf(q *request, client redis.UniversalClient) (*queue.Queue, error) {
	return queue.New(client, q.of("name"), &queue.Options{
		Prefix: h.opts.Prefix, Tag: q.of("tag"), // The bounds are the consumers'.
		Dead: queue.DeadLimits{Jobs: -1}, MaxFailures: -1,
	})
}

// known reads the counts of a queue; one that nobody uses is a fault.
func (h *handler) known(ctx context.Context, q *queue.Queue) (queue.Stats, error) {
	st, err := q.Stats(ctx)
	if err != nil || st.Ready+st.Scheduled+st.Leased+st.Dead+st.Limit > 0 || st.Paused {
		return st, err
	}
	listed, err := q.Listed(ctx)
	if err == nil && !listed {
		err = faultf(http.StatusNotFound,
			"The overview lists the queues; a queue of a tag is another one than without.",
			"There is no queue %q.", shown(128, q.Name()))
	}
	return st, err
}

// stateOf is the state that the request names; dead, where there are dead jobs, or ready, if it names none.
func stateOf(name string, st queue.Stats) (queue.State, error) {
	switch at := slices.IndexFunc(states, func(s queue.State) bool { return string(s) == name }); {
	case at >= 0:
		return states[at], nil
	case name != "":
		return "", faultf(http.StatusBadRequest, "It is ready, scheduled, leased or dead.", "No job is %q.",
			shown(40, name))
	case st.Dead > 0:
		return queue.Dead, nil
	}
	return queue.Ready, nil
}

func countOf(st queue.Stats, state queue.State) int {
	return map[queue.State]int{
		queue.Ready: st.Ready, queue.Scheduled: st.Scheduled, queue.Leased: st.Leased, queue.Dead: st.Dead,
	}[state]
}

func (h *handler) filterOf(q *request, name string) *jobFilter {
	return &jobFilter{
		kind: q.get("kind"), text: q.get("text"), reason: q.get("reason"), role: q.role, body: h.redactor(name),
	}
}

// redactor is what shows bodies of a queue.
func (h *handler) redactor(name string) func(kind string, body []byte) []byte {
	return func(kind string, body []byte) []byte {
		if h.opts.Redact == nil {
			return body
		}
		return h.opts.Redact(name, kind, body)
	}
}

func (h *handler) queuePage(ctx context.Context, q *request) (answer, error) {
	of, err := h.queueOf(q, h.client)
	if err != nil {
		return answer{}, err
	}
	st, err := h.known(ctx, of)
	if err != nil {
		return answer{}, err
	}
	state, err := stateOf(q.get("state"), st)
	if err != nil {
		return answer{}, err
	}
	only, err := meantOf(q, state)
	if err != nil {
		return answer{}, err
	}
	row := rowOf(of)
	if err := h.readQueue(ctx, of, &row); err != nil {
		row.Fault = h.faultOf(err)
	}
	processes, unread := queue.Workers(ctx, h.client, h.opts.Prefix)
	row.consume(of, processes, unread)
	data := queueData{
		queueRow: row, Now: st.Now, State: string(state),
		meant: only, Total: countOf(st, state), Verbs: verbsOf(state),
	}
	for _, s := range states {
		data.Tabs = append(data.Tabs, tab{string(s), countOf(st, s)})
	}
	if err := h.readJobs(ctx, q, of, state, &data); err != nil {
		return answer{}, err
	}
	return answer{page: "queue", title: of.Name(), data: data}, nil
}

// readJobs reads the jobs of the page.
func (h *handler) readJobs(ctx context.Context, q *request, of *queue.Queue, state queue.State, data *queueData) error {
	list := jobsList(of.Tag(), of.Name(), data.State)
	from, err := h.readCursor(q.get("cursor"), list)
	if err != nil {
		return err
	}
	// The list may have become shorter than it was when the cursor was made.
	jobs := jobList{queue: of, state: state, total: data.Total, at: min(from, data.Total)}
	if state == queue.Dead && q.get("cursor") == "" {
		jobs.at = data.Total
	}
	first := jobs.at
	filter := h.filterOf(q, of.Name())
	if data.older > 0 {
		filter.before = data.Now.Add(-data.older)
	}
	found, err := jobs.page(ctx, filter)
	if err != nil {
		return err
	}
	for _, j := range found {
		data.Jobs = append(data.Jobs, q.role.row(queue.Found{State: state, Peeked: j}))
	}
	data.Checked = jobs.checked
	if !jobs.ended() {
		data.Next = h.cursor(list, jobs.at)
	}
	switch {
	case data.Filtered():
	case state == queue.Dead && first < data.Total:
		data.Before = h.cursor(list, min(first+PageSize, data.Total))
	case state != queue.Dead && first > 0:
		data.Before = h.cursor(list, first-PageSize)
	}
	return nil
}

// jobsList is the list that the cursors of the jobs of a queue and state belong to.
func jobsList(tag, name, state string) string { return "jobs\n" + tag + "\n" + name + "\n" + state }
