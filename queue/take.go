package queue

import (
	"context"
	"time"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/lua"
)

// Taken is the result of a take.
type Taken struct {
	Deliveries []*Delivery
	// Now is the server's time.
	Now time.Time
	// NextDue is when the next scheduled job is due, if there is one.
	NextDue lua.Opt[time.Time]
	// NextLapse is when the first lease of the queue ended or will end, as it was before this take. Once it has
	// passed, Reclaim has a job to return.
	NextLapse lua.Opt[time.Time]
	// Dropped counts entries of the ready list whose job was cancelled or deleted.
	Dropped int
	// Paused reports that the queue gives out no jobs; see Queue.Pause.
	Paused bool
}

// MaxTake is the most jobs that one Take leases, which keeps the script under 2 ms.
const MaxTake = 300

// takeBytes bounds the bodies of one take, so that no reply stalls the server.
const takeBytes = MaxBatchBytes

// Take leases up to max of the oldest ready jobs for Options.Lease: at most MaxTake, and fewer when their bodies
// exceed 1 MiB, but at least one. Scheduled jobs that are due become ready in the same script, so delays need no
// Poller. An empty queue gives an empty result. A max below 1 is lua.ErrOutOfRange.
//
// After a lost reply Take repeats itself and leases the next jobs. The jobs of the lost reply are ready again when
// their lease has ended and Reclaim has run.
//
// One script, atomic to other clients. A write refused half-way can deliver a job twice, never lose one. Keys: r,
// s, b, l, n, c, w. Cost: O(log n) for each job.
func (q *Queue) Take(ctx context.Context, max int) (Taken, error) {
	return q.takeOrWait(ctx, max, "", 0)
}

// takeOrWait is Take. When it finds no job, the same script adds the channel to the waiters for that long, unless
// the channel is empty.
func (q *Queue) takeOrWait(ctx context.Context, max int, channel string, wait time.Duration) (Taken, error) {
	p := q.takeParams()
	p.Lease, p.Max, p.Bytes = q.opts.Lease, int64(min(max, MaxTake)), takeBytes
	p.Waiter, p.Wait = channel, wait
	sent := time.Now()
	r, err := gen.QueueTake(ctx, q.client, p)
	if err != nil {
		return Taken{}, q.wrap("take from", err)
	}
	out := Taken{
		Deliveries: make([]*Delivery, len(r.Jobs)),
		Now:        time.UnixMicro(r.Now), NextDue: r.NextDue, NextLapse: micros(r.NextLapse),
		Dropped: int(r.Dropped), Paused: r.Paused,
	}
	for i, j := range r.Jobs {
		d := &Delivery{ID: j.ID, Body: j.Body, EnqueuedAt: j.EnqueuedAt, Attempt: int(j.Failures) + 1, queue: q}
		d.fence.Store(r.Fence)
		d.end.set(sent, q.opts.Lease)
		out.Deliveries[i] = d
	}
	return out, nil
}

// micros is an optional time that the server gave in microseconds.
func micros(at lua.Opt[int64]) lua.Opt[time.Time] {
	us, ok := at.Get()
	if !ok {
		return lua.Opt[time.Time]{}
	}
	return lua.Some(time.UnixMicro(us))
}
