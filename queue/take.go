package queue

import (
	"context"
	"fmt"
	"time"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/internal/keeper"
	"github.com/luatomic/luatomic/lua"
)

// Taken is the result of a take.
type Taken struct {
	Deliveries []*Delivery
	// Now is the server's time.
	Now time.Time
	// NextDue is when the next scheduled job is due, if there is one.
	NextDue lua.Opt[time.Time]
	// NextLapse is when the first lease that the queue had before this take ended or will end. When this time has
	// passed, Reclaim has a job to return.
	NextLapse lua.Opt[time.Time]
	// Dropped counts the entries of the ready list that the take dropped: their job was cancelled or deleted, or had
	// expired.
	Dropped int
	// Paused reports that the queue gives out no jobs; see Queue.Pause.
	Paused bool
}

// MaxTake is the most jobs that one Take leases, which keeps the script under 2 ms.
const MaxTake = 300

// takeBytes bounds the bodies of one take, so that no reply stalls the server.
const takeBytes = MaxBatchBytes

// Take leases up to max of the oldest ready jobs for Options.Lease: at most MaxTake, and fewer if their bodies exceed 1
// MiB, but at least one. Scheduled jobs that are due become ready in the same script, so delays need no Poller. An
// empty queue gives an empty result. A max below 1 is lua.ErrOutOfRange. With an error there are no deliveries.
//
// Take deletes a job that has expired, in a second round trip of at most a second. If that fails, the job is deleted
// after its lease. A job that expires while the call is on its way is returned to the queue, and the next Take decides.
//
// After a lost reply Take repeats itself and returns the jobs that the first attempt leased, under the same lease. When
// no attempt had a reply, the next Take of this Queue returns them, under a new lease. No failure is counted. An
// attempt that reaches the server late, after the reply to another attempt or after a later call, takes nothing.
//
// One script, atomic to other clients. A write refused half-way can deliver a job twice, never lose one. Keys: r,
// s, b, l, n, c, w, o, d, i; the receipt lasts as long as the lease, and at least a minute. Cost: O(log n) for each
// job.
func (q *Queue) Take(ctx context.Context, max int) (Taken, error) {
	by := q.takers.get(q)
	defer q.takers.put(by)
	t, err := by.take(ctx, max, "", 0)
	if err != nil {
		return Taken{}, err
	}
	return q.withoutExpired(ctx, t[0]), nil
}

// expiredWithin bounds the deletion of expired jobs, because the other jobs of the take wait for it.
const expiredWithin = time.Second

// withoutExpired deletes the expired jobs of a take, and gives back those that may be expiring now. The lease of a job
// that it cannot delete ends by time, and a take after that deletes the job.
func (q *Queue) withoutExpired(ctx context.Context, t Taken) Taken {
	var live, unsure, expired []*Delivery
	for _, d := range t.Deliveries {
		switch {
		case d.expired():
			expired = append(expired, d)
		case d.mayRun():
			live = append(live, d)
		default:
			unsure = append(unsure, d)
		}
	}
	if len(live) == len(t.Deliveries) {
		return t
	}
	t.Deliveries, t.Dropped = live, t.Dropped+len(expired)
	ctx, cancel := context.WithTimeout(ctx, expiredWithin)
	defer cancel()
	_ = q.ack(ctx, expired)
	_ = q.giveBack(ctx, same(queuescript.NackJob{}), unsure)
	return t
}

// take takes up to max jobs from all queues together, in their order, and returns what it got from each. When it finds
// no job and waiter is not empty, the same script adds that name to the waiters of each queue for the time wait.
func (by *taker) take(ctx context.Context, max int, waiter string, wait time.Duration) ([]Taken, error) {
	p := queuescript.TakeParams{
		Max: int64(min(max, MaxTake)), Bytes: takeBytes, Waiter: waiter, Wait: wait, Token: by.call, Since: by.since,
	}
	if err := by.begin(&p); err != nil {
		return nil, by.wrap(err)
	}
	by.call++
	sent := time.Now()
	r, err := queuescript.Take(ctx, by.from[0].queue.client, p)
	if err != nil {
		return nil, by.wrap(err)
	}
	by.since = by.call
	out, err := by.taken(&r, sent)
	if err != nil {
		return nil, by.wrap(err)
	}
	return out, nil
}

// taken returns what each queue gave, from the reply to a take.
func (by *taker) taken(r *queuescript.TakeResult, sent time.Time) ([]Taken, error) {
	out, all := make([]Taken, len(by.from)), make([]*Delivery, 0, len(r.Jobs))
	if len(r.States) != len(out) {
		return nil, fmt.Errorf("%w: states of %d queues, not %d", lua.ErrBadReply, len(r.States), len(out))
	}
	now, received := time.UnixMicro(r.Now), time.Now()
	for i, s := range r.States {
		first := len(all)
		if s.Jobs < 0 || int(s.Jobs) > len(r.Jobs)-first {
			return nil, fmt.Errorf("%w: %d jobs of queue %d", lua.ErrBadReply, s.Jobs, i)
		}
		for _, j := range r.Jobs[first : first+int(s.Jobs)] {
			all = append(all, by.from[i].queue.delivered(j, now, s.Fence, sent))
		}
		out[i] = Taken{
			Deliveries: all[first:len(all):len(all)], Now: now, NextDue: s.NextDue, NextLapse: micros(s.NextLapse),
			Dropped: int(s.Dropped), Paused: s.Paused,
		}
	}
	for _, o := range r.Options {
		if o.Place < 0 || int(o.Place) >= len(all) {
			return nil, fmt.Errorf("%w: options of job %d of %d", lua.ErrBadReply, o.Place, len(all))
		}
		d := all[o.Place]
		if d.Details = decodeDetails(o.Text); !d.ExpiresAt.IsZero() {
			d.mayExpire, d.expires = sent.Add(d.ExpiresAt.Sub(now)), received.Add(d.ExpiresAt.Sub(now))
		}
	}
	return out, nil
}

// delivered makes the Delivery of a job that a take has leased.
func (q *Queue) delivered(j queuescript.TakeJob, now time.Time, fence int64, sent time.Time) *Delivery {
	d := &Delivery{ID: j.ID, Body: j.Body, EnqueuedAt: j.EnqueuedAt, Attempt: int(j.Failures) + 1, queue: q}
	d.taken = now
	d.wait = now.Sub(d.EnqueuedAt)
	d.fence.Store(fence)
	d.lease.Begin(q.keeper, (*holder)(d), keeper.Terms{Name: j.ID, TTL: q.opts.Lease}, keeper.End(sent, q.opts.Lease))
	return d
}

// micros returns an optional time that the server gave in microseconds.
func micros(at lua.Opt[int64]) lua.Opt[time.Time] {
	us, ok := at.Get()
	if !ok {
		return lua.Opt[time.Time]{}
	}
	return lua.Some(time.UnixMicro(us))
}

// Reclaimed is the result of a reclaim.
type Reclaimed struct {
	// Returned jobs are ready again, or scheduled if their lease has ended twice in a row. Buried jobs have failed
	// Options.MaxFailures times and are dead. Cancelled jobs are deleted.
	Returned, Buried, Cancelled int
	// Now is the server's time, NextLapse when the next lease ends.
	Now       time.Time
	NextLapse lua.Opt[time.Time]
}

// poisonBackoff is the delay of a job whose worker has died twice in a row: the job may be what kills its workers. Each
// further death doubles the delay, to an hour at most.
const poisonBackoff = time.Second

// maxReclaim keeps the script under 2 ms: it handles the jobs one by one.
const maxReclaim = 200

// Reclaim moves up to 200 jobs whose lease has ended, because their worker died or stalled, to the head of the ready
// list. Each counts one failure. A job whose lease has ended twice in a row waits: one second, then twice as long each
// time, at most an hour. Consume reclaims by itself. A program that only takes must call Reclaim when Taken.NextLapse
// has passed. For each job that Reclaim moves to the dead set, Options.Observe gets an Event before Reclaim returns. If
// a reply was lost, the jobs of that reply are neither counted nor observed.
//
// One script, atomic to other clients. A write refused half-way can deliver a job twice, never lose one. Keys: l,
// r, s, b, n, d, u, ux, c, w, o, f. Cost: O(log n) for each job.
func (q *Queue) Reclaim(ctx context.Context) (Reclaimed, error) {
	p := q.reclaimParams()
	p.Max, p.MaxFailures, p.Backoff = maxReclaim, int64(max(q.opts.MaxFailures, 0)), poisonBackoff
	r, err := queuescript.Reclaim(ctx, q.client, p)
	if err != nil {
		return Reclaimed{}, q.wrap("reclaim on", err)
	}
	q.observeDeaths(r.Deaths)
	return Reclaimed{
		Returned: int(r.Returned), Buried: len(r.Deaths), Cancelled: int(r.Cancelled),
		Now: time.UnixMicro(r.Now), NextLapse: micros(r.NextLapse),
	}, nil
}

// lapsed is the error of a job that is dead because the lease of its last delivery has ended.
type lapsed struct{}

func (lapsed) Error() string {
	return "luatomic: the lease ended, and the job may fail no more: its worker died or stalled; find out why, then " +
		"requeue it"
}

func (lapsed) Is(target error) bool { return target == ErrLeaseLost }

// observeDeaths reports the ends of deliveries whose consumers did not report them.
func (q *Queue) observeDeaths(deaths []queuescript.ReclaimDeath) {
	if q.opts.Observe == nil {
		return
	}
	for _, d := range deaths {
		job := decodeDetails(d.Options)
		q.opts.Observe(Event{
			Queue: q.name, Tag: q.opts.Tag, ID: d.ID, Kind: job.Kind, Attempt: int(d.Failures), Headers: job.Headers,
			Outcome: OutcomeDead, Err: lapsed{},
		})
	}
}
