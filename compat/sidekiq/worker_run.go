package sidekiq

import (
	"context"
	"errors"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/luatomic/luatomic/compat/sidekiq/internal/script"
	"github.com/luatomic/luatomic/internal/clock"
	"github.com/luatomic/luatomic/internal/decline"
	"github.com/luatomic/luatomic/lua"
)

// worker is one call of Work. Fields not marked as shared belong to its loop.
type worker struct {
	d        *Dialect
	o        WorkOptions
	h        Handler
	weighted bool
	process  string
	working  string // the key of its hash
	began    time.Time

	next    int64 // the number of the next job
	unheard int   // how many jobs the last take asked for, while its reply is missing
	acks    []int64
	empty   bool // the last take left slots free
	worked  Worked
	ends    chan outcome
	idle    idler
	mu      sync.Mutex
	running map[int64]*inFlight // shared, under mu
	rescued atomic.Int64        // shared
	beaten  time.Time           // of the heartbeats: when the last one was answered
	trusts  time.Time           // of the heartbeats: until then no process is taken for dead
	passed  int64               // of the heartbeats: dead processes to pass over, as they had their turn
	quiet   atomic.Bool         // shared: nothing more is taken
	metrics metrics             // shared
	rtt     time.Duration       // of the last heartbeat that the Busy page shows

	calls   context.Context         // for calls after the caller's context has ended
	abandon context.CancelFunc      // ends calls
	end     context.CancelCauseFunc // ends Work, as the caller's context does
	ending  context.Context         // ends when Work is to end

	declines decline.Counts // shared
}

// inFlight is a job that a handler works on.
type inFlight struct {
	job    *Delivery
	since  time.Time
	ctx    context.Context
	cancel context.CancelCauseFunc
	leaves bool // shared, under mu: it has failed and is on its way out of the hash
	counts bool // for the metrics: its handler was called and takes its class
}

func newWorker(d *Dialect, opts *WorkOptions, h Handler) (*worker, error) {
	if h == nil {
		return nil, errors.New("sidekiq: no handler is given, and each job would fail; pass a Handler")
	}
	w := &worker{d: d, o: opts.withDefaults(), h: h, process: identity(), next: 1, began: time.Now()}
	w.beaten = w.began
	var err error
	if w.weighted, err = checkQueues(w.o.Queues); err != nil {
		return nil, err
	}
	w.working = d.workingKey(w.process)
	w.running = make(map[int64]*inFlight, w.o.Concurrency)
	w.ends = make(chan outcome, w.o.Concurrency)
	w.idle = newIdler(d, w.o.Queues)
	return w, nil
}

func (w *worker) run(ctx context.Context) (Worked, error) {
	w.calls, w.abandon = context.WithCancel(context.WithoutCancel(ctx))
	defer w.abandon()
	ctx, w.end = context.WithCancelCause(ctx)
	defer w.end(nil)
	w.ending = ctx
	beating, still := context.WithCancel(w.calls)
	defer still()
	stop := make(chan struct{})
	var heart sync.WaitGroup
	heart.Go(func() { w.heartbeats(beating, stop) })
	err := w.loop(ctx)
	w.quiet.Store(true)
	w.drain()
	// A heartbeat after the last call would list the process again. One on its way ends, so that what it rescues
	// counts.
	close(stop)
	late := time.AfterFunc(time.Second, still)
	heart.Wait()
	late.Stop()
	w.leave()
	w.worked.Rescued = int(w.rescued.Load())
	if err == nil {
		err = context.Cause(ctx)
	}
	return w.worked, err
}

// loop takes and finishes jobs until ctx ends or a permanent error.
func (w *worker) loop(ctx context.Context) error {
	wait := newBackoff()
	for ctx.Err() == nil {
		if want := w.wanted(); len(w.acks) > 0 || want > 0 && !w.empty {
			err := w.turn(ctx, want)
			if permanent(err) {
				return err
			}
			if err == nil {
				wait.Reset()
				continue
			}
			if ctx.Err() == nil {
				w.report(err, nil)
				clock.Sleep(ctx, wait.Next())
			}
			continue
		}
		if w.wanted() > 0 {
			w.idle.start(w.calls)
		}
		w.waitEvent(ctx.Done())
	}
	return nil
}

// waitEvent waits until a job ends, a queue gets a job, or stop is closed.
func (w *worker) waitEvent(stop <-chan struct{}) {
	select {
	case o := <-w.ends:
		w.collect(o)
	case at := <-w.idle.woken:
		w.empty = !w.idle.ended(at) && w.empty
	case <-stop:
		return
	}
	// Jobs that end at the same time share a round trip.
	runtime.Gosched()
	for {
		select {
		case o := <-w.ends:
			w.collect(o)
		default:
			return
		}
	}
}

func (w *worker) free() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.o.Concurrency - len(w.running)
}

// turn is one round trip: it finishes the jobs that are done, and starts up to want new ones. A failed call is
// retried with the same first number, and the script returns the jobs that it had taken.
func (w *worker) turn(ctx context.Context, want int) error {
	p := script.WorkerTakeParams{
		Processes: w.d.processesKey(), Working: w.working, Process: w.process, Lease: w.o.Lease,
		First: w.next, Want: int64(want), Dones: w.acks,
	}
	if !w.isQuiet() { // a quiet process gets the jobs that it took, and no others
		p.Queues = w.order()
	}
	p.Processed, p.Day = w.d.counter("processed")
	w.unheard = max(w.unheard, want)
	r, err := script.WorkerTake(ctx, w.d.client, p)
	if err != nil {
		return err
	}
	w.acks = w.acks[:0]
	if want > 0 {
		w.empty, w.unheard = len(r.Jobs) < want && size(r.Jobs) < maxTake, 0
	}
	w.next = max(w.next, r.Last+1) // the jobs of a retry can have gaps
	for _, j := range r.Jobs {
		w.start(j.ID, w.d.queueName(j.Queue), j.Payload)
	}
	return nil
}

// size returns how many bytes the payloads have.
func size(jobs []script.WorkerTakeJob) (bytes int) {
	for _, j := range jobs {
		bytes += len(j.Payload)
	}
	return bytes
}

// inFlight returns the numbers of the jobs in flight.
func (w *worker) inFlight() []int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.running))
}

// takenBack ends the contexts of jobs that are not in the hash any more: they are in their queues again. What has
// failed leaves the hash by itself.
func (w *worker) takenBack(gone []int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range gone {
		if j := w.running[id]; j != nil && !j.leaves {
			j.cancel(ErrTakenBack)
		}
	}
}

// stop ends all handlers' contexts: their jobs go back.
func (w *worker) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, j := range w.running {
		j.cancel(ErrStopped)
	}
}

// drain waits for the handlers. After Grace it ends their contexts, and waits until they have returned: what a handler
// still works on must not be in its queue.
func (w *worker) drain() {
	overtime := time.AfterFunc(w.o.Grace, w.stop)
	defer overtime.Stop()
	for w.free() < w.o.Concurrency {
		w.waitEvent(nil)
		_ = w.turnIfDone() // leave retries what fails here
	}
}

// leave finishes what is done, puts back the jobs that are left in the hash, and removes the process from the lists.
func (w *worker) leave() {
	ctx, cancel := context.WithTimeout(w.calls, 5*time.Second)
	defer cancel()
	wait := newBackoff()
	err := w.turnIfDone()
	for ; err != nil && ctx.Err() == nil; err = w.turnIfDone() {
		clock.Sleep(ctx, wait.Next())
	}
	if err == nil {
		w.worked.Returned, err = w.requeue(ctx, w.process, time.Time{})
	}
	err = errors.Join(err, w.flushMetrics())
	if err != nil {
		w.report(err, nil)
	}
}

func (w *worker) turnIfDone() error {
	if len(w.acks) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(w.calls, 5*time.Second)
	defer cancel()
	return w.turn(ctx, 0)
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (w *worker) report(err error, j *Delivery) {
	if w.o.OnError != nil {
		w.o.OnError(err, j)
	}
}

// permanent reports whether a retry cannot help.
func permanent(err error) bool {
	for _, final := range []error{lua.ErrWrongType, lua.ErrOutOfRange, lua.ErrBadName, lua.ErrTooLarge,
		lua.ErrCrossSlot} {
		if errors.Is(err, final) {
			return true
		}
	}
	return false
}

// newBackoff returns the delays between attempts after an error.
func newBackoff() clock.Backoff {
	return clock.Backoff{First: 50 * time.Millisecond, Last: 5 * time.Second}
}
