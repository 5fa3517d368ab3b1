package web

import (
	"context"
	"time"

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

func (h *handler) running(ctx context.Context, _ *request) (answer, error) {
	workers, err := queue.Workers(ctx, h.client, h.opts.Prefix)
	if err != nil {
		return answer{}, err
	}
	return answer{page: "running", title: "Running", data: runningData{Now: time.Now(), Workers: workers}}, nil
}
