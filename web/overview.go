package web

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/luatomic/luatomic/internal/servers"
	"github.com/luatomic/luatomic/internal/show"
	"github.com/luatomic/luatomic/queue"
)

// queueRow is a queue as the overview shows it.
type queueRow struct {
	Queue     show.Name `json:"queue"`
	Tag       show.Name `json:"tag,omitempty"`
	Ready     int       `json:"ready"`
	Scheduled int       `json:"scheduled"`
	Leased    int       `json:"leased"`
	// Lapsed are the leased jobs whose worker died or stalled and that no consumer has taken back.
	Lapsed   int    `json:"lapsed"`
	Dead     int    `json:"dead"`
	OldestMS *int64 `json:"oldest_ms"`
	Paused   bool   `json:"paused"`
	// Consumers is how many processes consume the queue, nil where the list of processes cannot be read.
	Consumers *int `json:"consumers"`
	Limit     int  `json:"limit,omitempty"`
	DeadBytes int  `json:"dead_bytes"`
	// Rate is how many jobs are processed per second, by what this handler has seen; below 0 while it has seen too
	// little.
	Rate speed `json:"per_second"`
	// Days are the last days, the latest first.
	Days []dayRow `json:"days"`
	// Fault says why the queue cannot be read.
	Fault *fault `json:"fault,omitempty"`
}

// Running are the jobs that a worker has.
func (q queueRow) Running() int { return q.Leased - q.Lapsed }

// Unserved reports whether jobs wait that no process consumes.
func (q queueRow) Unserved() bool {
	return q.Consumers != nil && *q.Consumers == 0 && q.Ready+q.Lapsed > 0 && !q.Paused
}

// Oldest is how long the first ready job has waited.
func (q queueRow) Oldest() time.Duration {
	if q.OldestMS == nil {
		return 0
	}
	return time.Duration(*q.OldestMS) * time.Millisecond
}

// Processed are the jobs of each day, the latest last.
func (q queueRow) Processed() []int {
	return q.byDay(func(d dayRow) int { return d.Processed })
}

// Failed are the failed deliveries of each day, the latest last.
func (q queueRow) Failed() []int { return q.byDay(func(d dayRow) int { return d.Failed }) }

// AnyFailed reports a failure on one of the days: a line of zeros would hide the one of a queue at rest.
func (q queueRow) AnyFailed() bool { return slices.Max(append(q.Failed(), 0)) > 0 }

// Top is the greatest of both.
func (q queueRow) Top() int { return slices.Max(append(append(q.Processed(), q.Failed()...), 0)) }

func (q queueRow) byDay(of func(dayRow) int) (all []int) {
	for _, day := range slices.Backward(q.Days) {
		all = append(all, of(day))
	}
	return all
}

// Today are the counts of today.
func (q queueRow) Today() dayRow {
	if len(q.Days) == 0 {
		return dayRow{}
	}
	return q.Days[0]
}

// dayRow are the counts of one day.
type dayRow struct {
	Day       string `json:"day"`
	Processed int    `json:"processed"`
	Failed    int    `json:"failed"`
	Dead      int    `json:"dead"`
	Expired   int    `json:"expired"`
}

type overviewData struct {
	// Lost is when a consumer found that the server had lost data, in the last day.
	Lost *time.Time `json:"lost_data,omitempty"`
	// Restarted is when the server was restarted, in the last hour, if it has its data.
	Restarted *time.Time `json:"restarted,omitempty"`
	Now       time.Time  `json:"-"`
	Queues    []queueRow `json:"queues"`
	// Total is the number of all queues, Next the cursor of the next page.
	Total int    `json:"total"`
	Next  string `json:"next,omitempty"`
}

const (
	queuesOnPage = 100
	daysShown    = 14
)

func (h *handler) overview(ctx context.Context, q *request) (answer, error) {
	h.lookForSidekiq(ctx)
	queues, err := queue.Queues(ctx, h.client, &queue.Options{Prefix: h.opts.Prefix})
	if err != nil {
		return answer{}, err
	}
	from, err := h.readCursor(q.get("cursor"), overviewCursor)
	if err != nil {
		return answer{}, err
	}
	data := overviewData{Total: len(queues)}
	h.findHistory(ctx, &data)
	queues = queues[min(from, len(queues)):]
	if len(queues) > queuesOnPage {
		queues, data.Next = queues[:queuesOnPage], h.cursor(overviewCursor, from+queuesOnPage)
	}
	data.Queues = make([]queueRow, len(queues))
	within, cancel := forRows(ctx)
	defer cancel()
	processes, unread := queue.Workers(within, h.client, h.opts.Prefix)
	for i, q := range queues {
		data.Queues[i] = rowOf(q)
		data.Queues[i].consume(q, processes, unread)
	}
	faults := h.faultsOf(servers.EachQueue(within, h.client, queues, func(ctx context.Context, i int) error {
		return h.readQueue(ctx, queues[i], &data.Queues[i])
	}))
	for i := range data.Queues {
		data.Queues[i].Fault = faults[i]
	}
	return answer{page: "overview", title: "Queues", data: data}, noneServed(faults)
}

// findHistory says when data was lost, or when the server was restarted. What cannot be read hides nothing else.
func (h *handler) findHistory(ctx context.Context, data *overviewData) {
	was, err := queue.ReadHistory(ctx, h.client, h.opts.Prefix)
	data.Now = was.Now
	switch {
	case err != nil:
	case !was.Lost.IsZero() && was.Now.Sub(was.Lost) < 24*time.Hour:
		data.Lost = &was.Lost
	case was.Restarted && was.Now.Sub(was.Started) < time.Hour:
		data.Restarted = &was.Started
	}
}

// forRows ends before the request does: a server that hangs leaves time to show the rows of the others.
func forRows(ctx context.Context) (context.Context, context.CancelFunc) {
	end, _ := ctx.Deadline()
	return context.WithDeadline(ctx, end.Add(-Timeout/10))
}

// rowOf is the row of a queue that is not read yet.
func rowOf(q *queue.Queue) queueRow {
	return queueRow{Queue: show.Name(q.Name()), Tag: show.Name(q.Tag()), Rate: -1}
}

// consume counts the processes that consume the queue, where the list of them could be read.
func (q *queueRow) consume(of *queue.Queue, processes []queue.Worker, unread error) {
	if unread == nil {
		n := of.ConsumedBy(processes)
		q.Consumers = &n
	}
}

// readQueue reads the counts of a queue.
func (h *handler) readQueue(ctx context.Context, q *queue.Queue, row *queueRow) error {
	st, err := q.Stats(ctx)
	if err == nil {
		row.fill(st)
		err = row.count(ctx, q)
	}
	if err == nil {
		row.Rate = h.rate("queue "+q.Tag()+"\n"+q.Name()+"\n"+row.Today().Day, int64(row.Today().Processed))
	}
	return err
}

// speed is how fast a counter grows per second; below 0, and null in JSON, while too little is known.
type speed float64

// MarshalJSON makes what is not known null.
func (s speed) MarshalJSON() ([]byte, error) {
	if s < 0 {
		return []byte("null"), nil
	}
	return json.Marshal(float64(s))
}

func (h *handler) rate(counter string, n int64) speed {
	rate, ok := h.rates.Rate(counter, n, time.Now())
	if !ok {
		return -1
	}
	return speed(rate)
}

// count reads what the consumers did on the last days.
func (q *queueRow) count(ctx context.Context, of *queue.Queue) error {
	days, err := of.Counts(ctx, daysShown)
	for _, d := range days {
		q.Days = append(q.Days, dayRow(d))
	}
	return err
}

func (q *queueRow) fill(st queue.Stats) {
	q.Ready, q.Scheduled, q.Leased, q.Dead = st.Ready, st.Scheduled, st.Leased, st.Dead
	q.Lapsed = st.Lapsed
	q.Paused, q.Limit, q.DeadBytes = st.Paused, st.Limit, st.DeadBytes
	if oldest, ok := st.Oldest.Get(); ok {
		ms := st.Now.Sub(oldest).Milliseconds()
		q.OldestMS = &ms
	}
}
