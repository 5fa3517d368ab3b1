package sidekiq

import (
	"context"
	"errors"
	"runtime/debug"
	"strings"
	"time"

	"github.com/luatomic/luatomic/compat/sidekiq/internal/script"
	"github.com/luatomic/luatomic/internal/clock"
)

// outcome is the end of a job.
type outcome struct {
	id   int64
	end  ending
	fate fate // of one that failed
}

type ending int

const (
	done     ending = iota // its handler is content; it is still in the hash
	failed                 // it is in its set, or nowhere, as fate says
	stranded               // it stays in the hash, or is in another's
)

// start runs the handler on a job. Text that is no job goes to the dead set as it is, as with Sidekiq.
func (w *worker) start(id, taken int64, queue string, payload []byte) {
	job, err := readJob(queue, payload)
	if err != nil {
		job = &Delivery{Queue: queue, Payload: payload}
	}
	ctx, cancel := context.WithCancelCause(w.calls)
	j := &inHand{job: job, taken: taken, since: time.Now(), ctx: ctx, cancel: cancel}
	w.mu.Lock()
	w.running[id] = j
	if taken < w.lost {
		cancel(ErrTakenBack)
	}
	w.mu.Unlock()
	go func() {
		if err != nil {
			w.ends <- w.settled(id, j, err, func(ctx context.Context) (fate, error) {
				_, err := w.bury(ctx, id, [][]byte{payload}, script.RetryBuryStampNone)
				return buried, err
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

// after is what becomes of a job whose handler has ended.
func (w *worker) after(id int64, j *inHand, err error) outcome {
	if err == nil {
		return outcome{id: id, end: done}
	}
	if cause := context.Cause(j.ctx); errors.Is(cause, ErrStopped) || errors.Is(cause, ErrTakenBack) {
		return outcome{id: id, end: stranded}
	}
	return w.settled(id, j, err, func(ctx context.Context) (fate, error) {
		f, _, err := w.settle(ctx, id, j.job, err)
		return f, err
	})
}

// call runs the handler; a panic is an error.
func (w *worker) call(j *inHand) (err error) {
	if j.job.retry.nothing != "" {
		return unfit(j.job.retry.nothing)
	}
	defer func() {
		if v := recover(); v != nil {
			err = &panicked{value: v, lines: strings.Split(strings.TrimSpace(string(debug.Stack())), "\n")}
		}
	}()
	return w.h(j.ctx, j.job)
}

type unfit string

func (e unfit) Error() string      { return string(e) }
func (e unfit) ErrorClass() string { return "ArgumentError" }

// settled repeats the move of a job that failed until it is done, or the job is no longer to be moved.
func (w *worker) settled(id int64, j *inHand, cause error, move func(context.Context) (fate, error)) outcome {
	w.report(cause, j.job)
	wait := newBackoff()
	for {
		f, err := move(j.ctx)
		if err == nil {
			return outcome{id: id, end: failed, fate: f}
		}
		if j.ctx.Err() != nil {
			return outcome{id: id, end: stranded}
		}
		w.report(err, j.job)
		clock.Sleep(j.ctx, wait.Next())
	}
}

// collect is the loop's part of a job's end.
func (w *worker) collect(o outcome) {
	w.mu.Lock()
	j := w.running[o.id]
	delete(w.running, o.id)
	w.mu.Unlock()
	lost := errors.Is(context.Cause(j.ctx), ErrTakenBack)
	j.cancel(nil)
	if o.end == done {
		w.acks = append(w.acks, o.id) // one that is lost is not there, and in no other process's hash
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
	}
}
