package web

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/internal/show"
)

// sidekiqSets are the tabs.
var sidekiqSets = []sidekiq.Set{sidekiq.Schedule, sidekiq.Retry, sidekiq.Dead}

type sidekiqData struct {
	Now       time.Time      `json:"now"`
	Processed int64          `json:"processed"`
	Failed    int64          `json:"failed"`
	Processes int            `json:"processes"`
	Queues    []sidekiqQueue `json:"queues"`
	NoLists   []show.Name    `json:"no_lists,omitempty"` // queues whose key is no list: they are not counted
	Sets      map[string]int `json:"sets"`
	Tabs      []tab          `json:"-"`
	Set       string         `json:"set"`
	Jobs      []sidekiqRow   `json:"jobs"`
	Next      string         `json:"next,omitempty"`
}

type sidekiqQueue struct {
	Queue     show.Name `json:"queue"`
	Size      int       `json:"size"`
	LatencyMS int64     `json:"latency_ms"`
}

// Latency is how long the next job has waited.
func (q sidekiqQueue) Latency() time.Duration { return time.Duration(q.LatencyMS) * time.Millisecond }

func newSidekiqData(set sidekiq.Set, st sidekiq.Stats) sidekiqData {
	data := sidekiqData{
		Now: st.Now, Processed: st.Processed, Failed: st.Failed, Processes: st.Processes, Set: string(set),
		NoLists: show.Names(st.NoLists), Sets: make(map[string]int),
	}
	counts := []int{st.Scheduled, st.Retries, st.Dead}
	for i, s := range sidekiqSets {
		data.Sets[string(s)] = counts[i]
		data.Tabs = append(data.Tabs, tab{string(s), counts[i]})
	}
	for _, q := range st.Queues {
		data.Queues = append(data.Queues, sidekiqQueue{show.Name(q.Name), q.Size, q.Latency.Milliseconds()})
	}
	return data
}

// sidekiqRow is a job of a set. Of its payload a page shows names and times, not arguments.
type sidekiqRow struct {
	JID    string    `json:"jid"`
	Class  string    `json:"class"`
	Queue  string    `json:"queue"`
	At     time.Time `json:"at"`
	Retry  int       `json:"retry_count"`
	Reason string    `json:"error_message,omitempty"`
}

// lookForSidekiq notes whether the server has a Sidekiq that this user may read. One that refuses is not asked again.
func (h *handler) lookForSidekiq(ctx context.Context) {
	if h.sidekiqRefused.Load() {
		return
	}
	space := ""
	if o := h.opts.Sidekiq; o != nil && o.Namespace != "" {
		space = o.Namespace + ":"
	}
	n, err := h.client.SCard(ctx, space+"queues").Result()
	if n > 0 && !h.sidekiqSeen.Load() {
		err = h.trySidekiq(ctx)
	}
	h.sidekiqSeen.Store(err == nil && n > 0)
	h.sidekiqRefused.Store(err != nil && refused(err))
}

// trySidekiq reads what its page begins with.
func (h *handler) trySidekiq(ctx context.Context) error {
	d, err := sidekiq.New(h.client, h.opts.Sidekiq)
	if err == nil {
		_, err = d.Stats(ctx)
	}
	return err
}

func (h *handler) sidekiq(ctx context.Context, q *request) (answer, error) {
	d, err := sidekiq.New(h.client, h.opts.Sidekiq)
	if err != nil {
		return answer{}, err
	}
	set := sidekiq.Set(q.of("set"))
	switch {
	case set == "":
		set = sidekiq.Retry
	case !slices.Contains(sidekiqSets, set):
		return answer{}, faultf(http.StatusBadRequest, "It is schedule, retry or dead.", "Sidekiq has no set %q.",
			shown(40, string(set)))
	}
	list := "sidekiq\n" + string(set)
	from, err := h.readCursor(q.get("cursor"), list)
	if err != nil {
		return answer{}, err
	}
	st, err := d.Stats(ctx)
	if err != nil {
		return answer{}, err
	}
	data := newSidekiqData(set, st)
	found, err := d.List(ctx, set, from, PageSize)
	if err != nil {
		return answer{}, err
	}
	for _, f := range found {
		data.Jobs = append(data.Jobs, q.role.sidekiqRow(f))
	}
	if from+PageSize < data.Sets[data.Set] {
		data.Next = h.cursor(list, from+PageSize)
	}
	h.sidekiqSeen.Store(true)
	return answer{page: "sidekiq", title: "Sidekiq", data: data}, nil
}

// sidekiqRow reads the payload; one that is not JSON shows its time alone.
func (role Role) sidekiqRow(f sidekiq.Found) sidekiqRow {
	var payload struct {
		JID     string `json:"jid"`
		Class   string `json:"class"`
		Wrapped string `json:"wrapped"`
		Queue   string `json:"queue"`
		Retry   int    `json:"retry_count"`
		Message string `json:"error_message"`
	}
	_ = json.Unmarshal(f.Payload, &payload)
	row := sidekiqRow{JID: payload.JID, Class: payload.Class, Queue: payload.Queue, At: written(f.At),
		Retry: payload.Retry}
	if payload.Wrapped != "" {
		row.Class = payload.Wrapped
	}
	if role.Has(Texts) {
		row.Reason = payload.Message
	}
	return row
}
