package web

import (
	"context"
	"net/http"
	"strconv"

	"github.com/luatomic/luatomic/internal/show"
	"github.com/luatomic/luatomic/queue"
)

// settings are those of a queue after a change.
type settings struct {
	Verb   string    `json:"verb"`
	Queue  show.Name `json:"queue"`
	Tag    show.Name `json:"tag,omitempty"`
	Paused bool      `json:"paused"`
	Limit  int       `json:"limit"`
	// Returned are the jobs that a reclaim has made ready or scheduled again.
	Returned int `json:"returned,omitempty"`
}

// changeQueue pauses or resumes a queue, sets its limit, or takes back what workers that died have left. All of it can
// be repeated. The other settings are those of
// before: a read after the change could fail, and hide that it was made.
func (h *handler) changeQueue(ctx context.Context, q *request) (answer, error) {
	if err := h.need(q.role, Queues, "change settings of queues"); err != nil {
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
	verb, returned, done := q.get("verb"), 0, 1
	switch verb {
	case "pause":
		st.Paused, err = true, of.Pause(ctx)
	case "resume":
		st.Paused, err = false, of.Resume(ctx)
	case "limit":
		n, bad := strconv.Atoi(q.get("limit"))
		if bad != nil || n < 0 {
			return answer{}, faultf(http.StatusBadRequest, "Write a number of jobs, 0 for none.", "%q is no limit.",
				shown(40, q.get("limit")))
		}
		st.Limit, err = n, of.SetLimit(ctx, n)
	case "reclaim":
		returned, err = h.reclaim(ctx, q, of)
		done = returned
	default:
		return answer{}, faultf(http.StatusBadRequest, "It is pause, resume, limit or reclaim.", "%q is no setting.",
			shown(40, verb))
	}
	if err != nil && verb != "reclaim" {
		done = 0
	}
	h.report(q, Action{Verb: verb, Target: targetOf(of), Done: done, Err: err})
	if err != nil {
		return answer{}, err
	}
	return answer{page: "settings", title: of.Name(), data: settings{
		verb, show.Name(of.Name()), show.Name(of.Tag()), st.Paused, st.Limit, returned,
	}}, nil
}

// reclaim takes back the jobs whose lease has ended, of which one call takes a bounded number. It buries none: the
// bound of failures is the consumers'.
func (h *handler) reclaim(ctx context.Context, q *request, of *queue.Queue) (returned int, err error) {
	for {
		r, err := of.Reclaim(ctx)
		returned += r.Returned
		q.made.Add(int64(r.Returned))
		if next, more := r.NextLapse.Get(); err != nil || !more || next.After(r.Now) {
			return returned, err
		}
	}
}
