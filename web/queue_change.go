package web

import (
	"context"
	"net/http"
	"strconv"

	"github.com/luatomic/luatomic/internal/show"
)

// settings are those of a queue after a change.
type settings struct {
	Verb   string    `json:"verb"`
	Queue  show.Name `json:"queue"`
	Tag    show.Name `json:"tag,omitempty"`
	Paused bool      `json:"paused"`
	Limit  int       `json:"limit"`
}

// changeQueue pauses or resumes a queue, or sets its limit. All three can be repeated. The other settings are those of
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
	verb := q.get("verb")
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
	default:
		return answer{}, faultf(http.StatusBadRequest, "It is pause, resume or limit.", "%q is no setting.",
			shown(40, verb))
	}
	done := 1
	if err != nil {
		done = 0
	}
	h.report(q, Action{Verb: verb, Target: targetOf(of), Done: done, Err: err})
	if err != nil {
		return answer{}, err
	}
	return answer{page: "settings", title: of.Name(), data: settings{
		verb, show.Name(of.Name()), show.Name(of.Tag()), st.Paused, st.Limit,
	}}, nil
}
