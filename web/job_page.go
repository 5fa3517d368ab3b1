package web

import (
	"context"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/luatomic/luatomic/internal/show"
	"github.com/luatomic/luatomic/queue"
)

type jobData struct {
	Queue show.Name `json:"queue"`
	Tag   show.Name `json:"tag,omitempty"`
	Now   time.Time `json:"now"`
	jobRow
	MaxFailures int        `json:"max_failures,omitempty"`
	TimeoutMS   int64      `json:"timeout_ms,omitempty"`
	ExpiresAt   *time.Time `json:"expires_at,omitempty"`
	// Body is set where the request asks for it; Binary says that it is no text. JSON has it as base64.
	Body   []byte `json:"body,omitempty"`
	Binary bool   `json:"binary,omitempty"`
	Asked  bool   `json:"-"`
	Verbs  []verb `json:"-"`
}

// BodyText is the body for the page.
func (d jobData) BodyText() string { return string(d.Body) }

// Timeout is the limit of a run.
func (d jobData) Timeout() time.Duration { return time.Duration(d.TimeoutMS) * time.Millisecond }

func (h *handler) jobPage(ctx context.Context, q *request) (answer, error) {
	of, err := h.queueOf(q, h.client)
	if err != nil {
		return answer{}, err
	}
	st, err := h.known(ctx, of)
	if err != nil {
		return answer{}, err
	}
	id := q.of("id")
	if id == "" || len(id) > 128 {
		return answer{}, faultf(http.StatusBadRequest, "Ids have 1 to 128 bytes.", "That is no id of a job.")
	}
	found, err := of.Find(ctx, id)
	switch {
	case err != nil:
		return answer{}, err
	case found[0].State == queue.Absent:
		return answer{}, faultf(http.StatusNotFound, "It is finished, cancelled or expired, or another queue has it.",
			"The queue %q has no job %q.", shown(128, of.Name()), shown(128, id))
	}
	job := found[0]
	data := jobData{
		Queue: show.Name(of.Name()), Tag: show.Name(of.Tag()), Now: st.Now, jobRow: q.role.row(job),
		MaxFailures: job.MaxFailures, TimeoutMS: job.Timeout.Milliseconds(), Verbs: verbsOf(job.State),
	}
	if !job.ExpiresAt.IsZero() {
		end := written(job.ExpiresAt)
		data.ExpiresAt = &end
	}
	a := answer{page: "job", title: "Job " + shown(40, id)}
	if asked := q.get("body"); asked != "" {
		if err := h.need(q.role, Bodies, "see bodies"); err != nil {
			return answer{}, err
		}
		data.Asked, data.Body = true, h.redactor(of.Name())(job.Kind, job.Body)
		data.Binary = !utf8.Valid(data.Body)
		if asked == "file" {
			a.download = append([]byte{}, data.Body...)
		}
	}
	a.data = data
	return a, nil
}

// releaseJob takes a job from its worker, under the fence that was shown. A lease that was renewed since, or that
// another worker has got, is shown with its fence of now, and asked for again.
func (h *handler) releaseJob(ctx context.Context, q *request, of *queue.Queue) (answer, error) {
	ids, err := idsOf(q)
	if err != nil {
		return answer{}, err
	}
	fence, bad := strconv.ParseInt(q.get("fence"), 10, 64)
	if len(ids) != 1 || bad != nil {
		return answer{}, faultf(http.StatusBadRequest, "Use the button of the job's page.",
			"A release names one job and the fence of its lease.")
	}
	done := 0
	released, err := of.Release(ctx, ids[0], fence)
	if released {
		done = 1
	}
	if err != nil || released {
		h.report(q, Action{Verb: "release", Target: targetOf(of), IDs: ids, Done: done, Err: err})
	}
	c := &change{
		Verb: "release", Label: "Release", Queue: show.Name(of.Name()), Tag: show.Name(of.Tag()), State: "leased",
		IDs: show.Names(ids), Count: 1, Done: done,
	}
	if err != nil {
		return answer{}, err
	}
	if released {
		return answer{page: "changed", title: c.Label, data: c}, nil
	}
	c.ids, c.state = ids, queue.Leased
	if err := h.expect(ctx, of, c); err != nil {
		return answer{}, err
	}
	found, err := of.Find(ctx, ids...)
	if err != nil {
		return answer{}, err
	}
	c.Fence, c.Confirm = found[0].Fence, true
	return answer{page: "confirm", title: c.Label + "?", data: c}, nil
}
