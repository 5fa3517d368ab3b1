package web

import (
	"context"
	"net/http"
	"strconv"
)

// settings are those of a queue after a change.
type settings struct {
	Verb   string `json:"verb"`
	Queue  string `json:"queue"`
	Tag    string `json:"tag,omitempty"`
	Paused bool   `json:"paused"`
	Limit  int    `json:"limit"`
}

// changeQueue pauses or resumes a queue, or sets its limit. All three can be repeated.
func (h *handler) changeQueue(ctx context.Context, q *request) (answer, error) {
	if err := h.need(q.role, Queues, "change settings of queues"); err != nil {
		return answer{}, err
	}
	of, err := h.queueOf(q, h.writer)
	if err != nil {
		return answer{}, err
	}
	if _, err := h.known(ctx, of); err != nil {
		return answer{}, err
	}
	verb := q.get("verb")
	switch verb {
	case "pause":
		err = of.Pause(ctx)
	case "resume":
		err = of.Resume(ctx)
	case "limit":
		n, bad := strconv.Atoi(q.get("limit"))
		if bad != nil || n < 0 {
			return answer{}, faultf(http.StatusBadRequest, "Write a number of jobs, 0 for none.", "%q is no limit.",
				shown(40, q.get("limit")))
		}
		err = of.SetLimit(ctx, n)
	default:
		return answer{}, faultf(http.StatusBadRequest, "It is pause, resume or limit.", "%q is no setting.",
			shown(40, verb))
	}
	h.report(q, Action{Verb: verb, Target: targetOf(of), Done: 1, Err: err})
	if err != nil {
		return answer{}, err
	}
	st, err := of.Stats(ctx)
	if err != nil {
		return answer{}, err
	}
	return answer{page: "settings", title: of.Name(), data: settings{verb, of.Name(), of.Tag(), st.Paused, st.Limit}},
		nil
}
