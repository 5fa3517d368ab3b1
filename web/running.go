package web

import (
	"context"
	"time"

	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/internal/servers"
	"github.com/luatomic/luatomic/queue"
)

type runningData struct {
	Now     time.Time      `json:"now"`
	Workers []queue.Worker `json:"workers"`
}

// Holds counts the jobs that all of them have.
func (d runningData) Holds() (n int) {
	for _, w := range d.Workers {
		for _, c := range w.Consumers {
			n += c.Holds
		}
	}
	return n
}

// Late reports whether the process has missed a report: it is dead or stalled.
func (d runningData) Late(w queue.Worker) bool { return d.Now.Sub(w.Reported) > 7*time.Second }

func (h *handler) running(ctx context.Context, _ *request) (answer, error) {
	workers, err := queue.Workers(ctx, h.client, h.opts.Prefix)
	if err != nil {
		return answer{}, err
	}
	// Reports and leases have the server's time.
	now, err := servers.Time(ctx, h.client, keys.NewFleet(h.opts.Prefix).Workers)
	if err != nil {
		return answer{}, err
	}
	return answer{page: "running", title: "Running", data: runningData{Now: now, Workers: workers}}, nil
}
