package web

import (
	"context"
	"net/http"
	"strconv"

	"github.com/luatomic/luatomic/internal/show"
	"github.com/luatomic/luatomic/queue"
)

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
