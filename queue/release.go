package queue

import (
	"context"
	"fmt"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/lua"
)

// Release takes a job from its worker: the lease that Find or Peek has shown ends now, and the job is at the head of
// the ready list, with no failure more. It is for a worker that hangs, and for one that died and whose lease is long.
// The worker's own Ack, Nack or Extend then fails with ErrLeaseLost, as after any lost lease; Consume learns of it when
// it renews, at most a third of the lease later, and ends the context of the handler. Its work may have been done: the
// job is delivered again.
//
// The fence is the Peeked.Fence that was shown. If the lease was renewed or has ended since, Release returns false and
// changes nothing. So it never takes a job from a worker that has got it later. A renewal moves the fence: look again,
// then release. The lease of a cancelled job ends too, and the job is deleted. After a lost reply Release repeats
// itself, with the same answer, for at most 50 s.
//
// One script, atomic to other clients. A write refused half-way can deliver the job twice, never lose it. Keys: l, r,
// s, b, n, d, u, ux, c, w, i, o, f. Cost: O(log n).
func (q *Queue) Release(ctx context.Context, id string, fence int64) (bool, error) {
	p := q.nackParams()
	p.Jobs = []queuescript.NackJob{{ID: id, Fence: fence, EnqueuedAt: -1}} // no time: it is ready as of now
	var verdicts []int64
	err := q.once(ctx, func(ctx context.Context, receipt string) (err error) {
		p.Receipt = receipt
		verdicts, err = queuescript.Nack(ctx, q.client, p)
		return err
	})
	if err == nil && len(verdicts) != 1 {
		err = fmt.Errorf("%w: %d verdicts for 1 job", lua.ErrBadReply, len(verdicts))
	}
	if err != nil {
		return false, q.wrap("release in", err)
	}
	return verdicts[0] != 0, nil
}
