package web

import (
	"context"

	"github.com/luatomic/luatomic"
)

type serverData struct {
	Prefix string        `json:"prefix"`
	Checks []serverCheck `json:"checks"`
	// Fault says why one of several servers is not checked.
	Fault *fault `json:"fault,omitempty"`
}

// serverCheck is a check of the server; of a check that passed there is no cure.
type serverCheck struct {
	Check   string `json:"check"`
	Node    string `json:"node"`
	Verdict string `json:"verdict"`
	Detail  string `json:"detail"`
	Cure    string `json:"cure,omitempty"`
}

func (h *handler) server(ctx context.Context, q *request) (answer, error) {
	checks, err := luatomic.CheckServer(ctx, h.client)
	data := serverData{Prefix: h.opts.Prefix}
	switch {
	case err != nil && len(checks) == 0:
		return answer{}, err
	case err != nil:
		data.Fault = h.faultOf(err)
	}
	for _, c := range checks {
		check := serverCheck{Check: c.Check, Verdict: c.Verdict.String(), Detail: c.Detail, Cure: c.Cure}
		if q.role.Has(Texts) {
			check.Node = c.Node
		}
		data.Checks = append(data.Checks, check)
	}
	return answer{page: "server", title: "Server", data: data}, nil
}
