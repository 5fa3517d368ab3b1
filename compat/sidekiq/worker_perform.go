package sidekiq

import (
	"context"
	"errors"
	"runtime/debug"
	"strings"
	"time"

	"github.com/luatomic/luatomic/compat/sidekiq/internal/script"
	"github.com/luatomic/luatomic/internal/clock"
	"github.com/luatomic/luatomic/internal/decline"
	"github.com/luatomic/luatomic/internal/send"
	"github.com/luatomic/luatomic/lua"
)

// outcome is the end of a job.
type outcome struct {
	id   int64
	end  ending
	fate fate // of a job that failed or was declined
}

type ending int

const (
	done      ending = iota // its handler returned nil; the job is still in the hash
	failed                  // moved or dropped, as fate says
	reclaimed               // failed after another process had put it back
	stranded                // still in the hash, or reclaimed by another process
)

// start runs the handler on a job. A payload that is not a job goes to the dead set unchanged, as in Sidekiq.
func (w *worker) start(id int64, queue string, payload []byte) {
	job, err := w.d.readJob(queue, payload)
	if err != nil {
		job = &Delivery{Queue: queue, Payload: payload}
	}
	ctx, cancel := context.WithCancelCause(w.calls)
	j := &inFlight{job: job, since: time.Now(), ctx: ctx, cancel: cancel}
	w.mu.Lock()
	w.running[id] = j
	w.mu.Unlock()
	go func() {
		if err != nil {
			w.report(err, job)
			w.ends <- w.moveWithRetry(id, j, func(ctx context.Context) (fate, bool, error) {
				ours, err := w.bury(ctx, id, [][]byte{payload}, script.RetryBuryFormNone)
				return buried, ours, err
			})
			return
		}
		o, returned := outcome{id: id, end: stranded}, false
		defer func() {
			if !returned {
				o = w.after(id, j, errExited)
			}
			w.ends <- o
		}()
		err := w.call(j)
		returned = true
		o = w.after(id, j, err)
	}()
}

// errExited is the error of a handler that did not return.
var errExited = errors.New("the handler ended its goroutine")

// after moves a failed job and returns the outcome of the handler.
func (w *worker) after(id int64, j *inFlight, err error) outcome {
	if err == nil {
		w.metrics.note(j.job, time.Since(j.since), nil)
		return outcome{id: id, end: done}
	}
	if cause := context.Cause(j.ctx); errors.Is(cause, ErrStopped) || errors.Is(cause, ErrTakenBack) ||
		w.unfinished(err) {
		return outcome{id: id, end: stranded}
	}
	if isDecline(err) {
		return w.decline(id, j, err)
	}
	if j.counts {
		w.metrics.note(j.job, 0, err)
	}
	w.report(err, j.job)
	return w.moveWithRetry(id, j, func(ctx context.Context) (fate, bool, error) {
		return w.moveFailed(ctx, id, j.job, err)
	})
}

// unfinished reports whether the error of a handler says only that Work ends: the handler has stopped before Grace. An
// end that the handler has chosen stays one.
func (w *worker) unfinished(err error) bool {
	if w.ending.Err() == nil || errors.As(err, new(*verdict)) || errors.As(err, new(*retryIn)) {
		return false
	}
	return errors.Is(err, ErrStopped) || errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(w.ending))
}

// call runs the handler; a panic is an error.
func (w *worker) call(j *inFlight) (err error) {
	if j.job.retry.nothing != "" {
		return decline.New(argumentError(j.job.retry.nothing))
	}
	if err := w.o.refuse(j.job); err != nil {
		return err
	}
	defer func() {
		if v := recover(); v != nil {
			err = &panicked{value: v, lines: strings.Split(strings.TrimSpace(string(debug.Stack())), "\n")}
		}
	}()
	j.counts = true
	err = w.h(j.ctx, j.job)
	read(err)
	return err
}

// read calls the methods of an error that are called later. They can panic, as those of a nil pointer do: here that is
// the job's failure.
func read(err error) {
	if err != nil {
		_, _, _ = message(err), errorClass(err), errors.Is(err, ErrStopped)
	}
}

type argumentError string

func (e argumentError) Error() string      { return string(e) }
func (e argumentError) ErrorClass() string { return "ArgumentError" }

// move moves a failed job out of the hash; ours is false when it was not there.
type move func(context.Context) (f fate, ours bool, err error)

// moveWithRetry retries the move of a job that is not done until it succeeds or the job's context ends. A job that
// is not in the hash was put back by another process, unless an attempt without a reply may have moved it.
func (w *worker) moveWithRetry(id int64, j *inFlight, move move) outcome {
	w.mu.Lock()
	j.leaves = true
	w.mu.Unlock()
	wait := newBackoff()
	var resends send.Resent
	for {
		f, ours, err := move(send.WatchResent(j.ctx, &resends))
		switch {
		case err == nil && !ours && !bool(resends):
			return outcome{id: id, end: reclaimed}
		case err == nil:
			return outcome{id: id, end: failed, fate: f}
		case j.ctx.Err() != nil:
			return outcome{id: id, end: stranded}
		case errors.Is(err, lua.ErrOutcomeUnknown):
			resends = true
		}
		w.report(err, j.job)
		clock.Sleep(j.ctx, wait.Next())
	}
}

// collect records the end of a job; only the loop calls it.
func (w *worker) collect(o outcome) {
	w.mu.Lock()
	j := w.running[o.id]
	delete(w.running, o.id)
	w.mu.Unlock()
	lost := o.end == reclaimed || errors.Is(context.Cause(j.ctx), ErrTakenBack)
	j.cancel(nil)
	if o.end == done {
		w.acks = append(w.acks, o.id) // the id of a lost job is in no hash; acking it is a no-op
	}
	switch {
	case lost:
		w.worked.Lost++
	case o.end == done:
		w.worked.Done++
	case o.end == failed:
		w.count(o.fate)
	}
}

func (w *worker) count(f fate) {
	switch f {
	case retried:
		w.worked.Retried++
	case buried:
		w.worked.Dead++
	case dropped:
		w.worked.Dropped++
	case declined:
		w.worked.Declined++
	}
}
