package sidekiq

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/luatomic/luatomic/compat/sidekiq/internal/script"
)

// ErrStrayJob reports that a process's hash has an entry that no worker of this package wrote. The entry is kept.
var ErrStrayJob = errors.New("sidekiq: an entry of a working hash is no job")

const (
	// longestBeat is the longest time between two heartbeats; the Busy page shows a process for a minute after one.
	longestBeat = 10 * time.Second
	// rescueAtOnce is how many dead processes one heartbeat rescues at most.
	rescueAtOnce = 100
)

// beat is the time between two heartbeats.
func (w *worker) beat() time.Duration { return max(min(w.o.Lease/3, longestBeat), time.Millisecond) }

// heartbeats renews the lease of the process and rescues the jobs of dead ones, until stop is closed. A heartbeat that
// has begun goes on until ctx ends.
func (w *worker) heartbeats(ctx context.Context, stop <-chan struct{}) {
	tick := time.NewTicker(w.beat())
	defer tick.Stop()
	for {
		if err := w.heartbeat(ctx, stop); err != nil && !closed(stop) {
			w.report(err, nil)
		}
		select {
		case <-tick.C:
		case <-stop:
			return
		}
	}
}

func (w *worker) heartbeat(ctx context.Context, stop <-chan struct{}) error {
	r, err := script.WorkerBeat(ctx, w.d.client, script.WorkerBeatParams{
		Processes: w.d.processesKey(), Working: w.working, Process: w.process, Lease: w.o.Lease,
		Skip: w.passed, Max: rescueAtOnce, Jobs: w.inFlight(),
	})
	if err != nil {
		return err
	}
	w.takenBack(r.Gone)
	if w.afterOutage(time.Now(), r.Lapsed) {
		r.Lapsed = nil
	}
	faults := w.rescue(ctx, r.Lapsed, stop)
	if closed(stop) {
		return errors.Join(faults...)
	}
	faults = append(faults, w.flushMetrics())
	if w.o.WebUI {
		faults = append(faults, w.show(ctx))
	}
	return errors.Join(faults...)
}

// afterOutage notes that a heartbeat was answered, and reports whether the leases of living processes may have ended:
// no process renews its lease while the server is out of reach. That may be where this heartbeat or one of the last
// came late, or where the first one finds leases that are over, as this process has not seen how they ended. For the
// time of a lease the others have the chance to renew theirs.
func (w *worker) afterOutage(now time.Time, lapsed []string) bool {
	late, first := now.Sub(w.beaten) > w.o.Lease-w.beat(), w.beaten.Equal(w.began)
	if late || first && len(lapsed) > 0 {
		w.trusts = now.Add(w.o.Lease)
	}
	w.beaten = now
	return now.Before(w.trusts)
}

// rescue puts the jobs of dead processes back until the next heartbeat is due: the process's own lease must not end
// meanwhile. That one goes on behind those that keep a job, because its queue is refused, and begins anew after the
// last: they hold up no others.
func (w *worker) rescue(ctx context.Context, lapsed []string, stop <-chan struct{}) (faults []error) {
	until := time.Now().Add(w.beat())
	for _, process := range lapsed {
		if closed(stop) || over(until) {
			return faults
		}
		n, err := w.requeue(ctx, process, until)
		w.rescued.Add(int64(n))
		if err != nil {
			w.passed++
			faults = append(faults, err)
		}
	}
	if len(lapsed) < rescueAtOnce {
		w.passed = 0
	}
	return faults
}

// over reports whether a time has passed; none never does.
func over(until time.Time) bool { return !until.IsZero() && time.Now().After(until) }

// requeue puts the jobs of a process back into their queues, the oldest to be served first. The process leaves the
// Busy page with the last of them. A queue that the server refuses keeps no jobs of another queue from theirs.
//
// A time until which it may take says that the process is another, whose lease is over: then it stops when that is
// alive after all, and sets jobs aside whose processes die again and again. Behind the first call after that time it
// leaves the rest to the next heartbeat.
func (w *worker) requeue(ctx context.Context, process string, until time.Time) (n int, err error) {
	r, err := w.readHash(ctx, w.d.workingKey(process))
	if err != nil {
		return 0, fmt.Errorf("sidekiq: jobs of %s: %w", process, err)
	}
	var refused []error
	for first, ended := true, false; (first || len(r.left) > 0) && !ended; first = false {
		groups, err := r.next(ctx)
		if err != nil {
			refused = append(refused, fmt.Errorf("sidekiq: jobs of %s: %w", process, err))
			break
		}
		var moved int
		moved, ended, err = w.putBack(ctx, process, groups, until)
		n += moved
		refused = append(refused, err)
	}
	if r.stray > 0 {
		refused = append(refused, fmt.Errorf("%w: %d of %s", ErrStrayJob, r.stray, r.key))
	}
	return n, errors.Join(refused...)
}

// putBack puts back some jobs of a process. It has ended before the last of them where no more is to be done now.
func (w *worker) putBack(ctx context.Context, process string, groups []group, until time.Time) (
	n int, ended bool, err error,
) {
	lapsed := !until.IsZero()
	var refused []error
	if lapsed {
		aside, ended, err := w.setAside(ctx, process, groups, until)
		n = aside
		refused = append(refused, err)
		if ended || err != nil && !answered(err) {
			return n, true, errors.Join(refused...)
		}
	}
	if len(groups) == 0 {
		// This also removes a process without jobs from the list.
		groups = append(groups, group{queue: w.o.Queues[0].Name})
	}
	for _, g := range groups {
		returned, alive, err := w.requeueGroup(ctx, process, lapsed, g)
		n += returned
		if err != nil {
			refused = append(refused, err)
		}
		if alive || err != nil && !answered(err) || over(until) {
			return n, true, errors.Join(refused...)
		}
	}
	return n, false, errors.Join(refused...)
}

// requeueGroup puts the jobs of one queue back, some in each call.
func (w *worker) requeueGroup(ctx context.Context, process string, lapsed bool, g group) (n int, alive bool,
	err error) {
	for first := true; first || len(g.jobs) > 0; first = false {
		size := min(len(g.jobs), 1000)
		p := script.WorkerReturnParams{
			Processes: w.d.processesKey(), Working: w.d.workingKey(process), Queues: w.d.key("queues"),
			Queue: w.d.queueKey(g.queue), Page: w.d.key("processes"), Shown: w.d.key(process),
			Runnings: w.runningKeys(process), Signals: w.signalsKey(process), Rescued: w.d.rescuedKey(),
			Process: process, Lapsed: lapsed, Name: g.queue, Jobs: make([]script.WorkerReturnJob, size),
		}
		for i, k := range g.jobs[:size] {
			p.Jobs[i] = script.WorkerReturnJob{Job: k.id, Jid: k.rescue}
		}
		r, err := script.WorkerReturn(ctx, w.d.client, p)
		n += int(r.Returned)
		if err != nil || r.State == script.WorkerReturnStateAlive {
			return n, err == nil, err
		}
		g.jobs = g.jobs[size:]
	}
	return n, false, nil
}
