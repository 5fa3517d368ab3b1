package sidekiq

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/luatomic/luatomic/compat/sidekiq/internal/script"
	"github.com/luatomic/luatomic/internal/clock"
	"github.com/luatomic/luatomic/lua"
)

// worker is one Work. Its loop alone touches what is not said to be shared.
type worker struct {
	d        *Dialect
	o        WorkOptions
	h        Handler
	weighted bool
	process  string
	working  string // the key of its hash
	began    time.Time

	next    int64 // the number of the next job
	acks    []int64
	empty   bool // the last look left slots free
	worked  Worked
	ends    chan outcome
	idle    idler
	mu      sync.Mutex
	running map[int64]*inHand // shared, under mu
	lost    int64             // shared, under mu: jobs taken before this time are not this process's
	rescued atomic.Int64      // shared

	calls   context.Context    // of all that goes on when the caller's context has ended
	abandon context.CancelFunc // ends calls
}

// inHand is a job that a handler works on.
type inHand struct {
	job    *Delivery
	taken  int64 // by the server's clock in us, as all that tells which of two calls came first
	since  time.Time
	ctx    context.Context
	cancel context.CancelCauseFunc
}

func newWorker(d *Dialect, opts *WorkOptions, h Handler) (*worker, error) {
	w := &worker{d: d, o: opts.withDefaults(), h: h, process: identity(), next: 1, began: time.Now()}
	var err error
	if w.weighted, err = checkQueues(w.o.Queues); err != nil {
		return nil, err
	}
	w.working = d.workingKey(w.process)
	w.running = make(map[int64]*inHand, w.o.Concurrency)
	// A handler that outlives Work finds room for its outcome.
	w.ends = make(chan outcome, w.o.Concurrency)
	w.idle = newIdler(d, w.o.Queues)
	return w, nil
}

func (w *worker) run(ctx context.Context) (Worked, error) {
	w.calls, w.abandon = context.WithCancel(context.WithoutCancel(ctx))
	defer w.abandon()
	beating, still := context.WithCancel(w.calls)
	var heart sync.WaitGroup
	heart.Go(func() { w.beats(beating) })
	err := w.loop(ctx)
	w.drain()
	// A beat after the last call would bring the process back.
	still()
	heart.Wait()
	w.leave()
	w.worked.Rescued = int(w.rescued.Load())
	if err == nil {
		err = context.Cause(ctx)
	}
	return w.worked, err
}

// loop takes and finishes jobs until ctx ends or nothing can be taken any more.
func (w *worker) loop(ctx context.Context) error {
	wait := newBackoff()
	for ctx.Err() == nil {
		if len(w.acks) > 0 || w.free() > 0 && !w.empty {
			err := w.turn(ctx, w.free())
			if hopeless(err) {
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
		if w.free() > 0 {
			w.idle.start(w.calls)
		}
		w.hear(ctx.Done())
	}
	return nil
}

// hear waits for the end of a job, for a word that a queue is not empty, or for stop.
func (w *worker) hear(stop <-chan struct{}) {
	select {
	case o := <-w.ends:
		w.collect(o)
	case at := <-w.idle.woken:
		w.empty = !w.idle.ended(at) && w.empty
	case <-stop:
		return
	}
	// Handlers that are about to end share the round trip.
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

// turn is one round trip: it finishes the jobs that are done, and starts up to want new ones. A call that failed is repeated with the
// same first number, so what it had taken comes again.
func (w *worker) turn(ctx context.Context, want int) error {
	p := script.WorkerTakeParams{
		Processes: w.d.processesKey(), Working: w.working, Queues: w.order(), Process: w.process, Lease: w.o.Lease,
		First: w.next, Want: int64(want), Dones: w.acks,
	}
	p.Processed, p.Day = w.d.counter("processed")
	r, err := script.WorkerTake(ctx, w.d.client, p)
	if err != nil {
		return err
	}
	if !r.Known {
		w.takenBack(r.Now)
	}
	w.acks = w.acks[:0]
	if want > 0 {
		w.empty = len(r.Jobs) < want
	}
	for _, j := range r.Jobs {
		w.next = max(w.next, j.ID+1) // a repeat can have gaps
		w.start(j.ID, r.Now, w.d.queueName(j.Queue), j.Payload)
	}
	return nil
}

// takenBack tells the handlers of jobs that were taken before that time that those are in their queues again. The reply of the call that
// took one can still be on its way.
func (w *worker) takenBack(before int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost = max(w.lost, before)
	for _, j := range w.running {
		if j.taken < w.lost {
			j.cancel(ErrTakenBack)
		}
	}
}

// stop tells all handlers that their jobs go back.
func (w *worker) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, j := range w.running {
		j.cancel(ErrStopped)
	}
}

// drain lets the handlers end, for as long as Grace.
func (w *worker) drain() {
	overtime := time.AfterFunc(w.o.Grace, w.stop)
	defer overtime.Stop()
	// Handlers that heed their context get a moment more.
	stop := make(chan struct{})
	end := time.AfterFunc(w.o.Grace+min(w.o.Grace, time.Second), func() { close(stop) })
	defer end.Stop()
	for w.free() < w.o.Concurrency && !closed(stop) {
		w.hear(stop)
		_ = w.turnIfDone() // leave does what fails here
	}
	w.stop()
}

// leave finishes what is done, puts back what is left in the hash, and takes the process off the lists.
func (w *worker) leave() {
	ctx, cancel := context.WithTimeout(w.calls, 5*time.Second)
	defer cancel()
	wait := newBackoff()
	err := w.turnIfDone()
	for ; err != nil && ctx.Err() == nil; err = w.turnIfDone() {
		clock.Sleep(ctx, wait.Next())
	}
	if err == nil {
		w.worked.Returned, err = w.giveBack(ctx, w.process, false)
	}
	if err == nil && w.o.WebUI {
		err = w.hide(ctx)
	}
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

// hopeless says that no repeat can help.
func hopeless(err error) bool {
	for _, final := range []error{lua.ErrWrongType, lua.ErrOutOfRange, lua.ErrBadName, lua.ErrTooLarge, lua.ErrCrossSlot} {
		if errors.Is(err, final) {
			return true
		}
	}
	return false
}

// newBackoff paces the attempts after an error.
func newBackoff() clock.Backoff {
	return clock.Backoff{First: 50 * time.Millisecond, Last: 5 * time.Second}
}
