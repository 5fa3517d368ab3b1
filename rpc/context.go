package rpc

import (
	"context"
	"time"
)

// bounded is a context that ends at a deadline, without a timer: Done does not tell, Err
// does. It is for waits that look at the deadline by themselves.
type bounded struct {
	context.Context
	deadline time.Time
}

func (u *bounded) Deadline() (time.Time, bool) { return u.deadline, true }

func (u *bounded) Err() error {
	if err := u.Context.Err(); err != nil {
		return err
	}
	if !time.Now().Before(u.deadline) {
		return context.DeadlineExceeded
	}
	return nil
}

// A work is the context of its handler. Timer and channel are made when somebody asks
// for Done: most handlers are over before they would.

// Deadline is the caller's.
func (w *work) Deadline() (time.Time, bool) { return w.deadline, true }

// Value is that of Run's context, and tells CallFrom the call.
func (w *work) Value(key any) any {
	if key == (callKey{}) {
		return w
	}
	return w.parent.Value(key)
}

// Err says whether the handler has been told to end.
func (w *work) Err() error {
	w.bus.mu.Lock()
	defer w.bus.mu.Unlock()
	return w.errLocked()
}

func (w *work) errLocked() error {
	if w.err == nil && w.parent.Err() != nil {
		w.err = context.Canceled
	}
	if w.err == nil && !time.Now().Before(w.deadline) {
		w.err = context.DeadlineExceeded
	}
	return w.err
}

// Done is closed when the caller gives up, at the deadline, when Run ends, and when
// the handler has returned.
func (w *work) Done() <-chan struct{} {
	w.bus.mu.Lock()
	defer w.bus.mu.Unlock()
	if w.done != nil {
		return w.done
	}
	w.done = make(chan struct{})
	if w.errLocked() != nil {
		w.closed = true
		close(w.done)
		return w.done
	}
	w.timer = time.AfterFunc(time.Until(w.deadline), func() { w.end(context.DeadlineExceeded) })
	w.unhook = context.AfterFunc(w.parent, func() { w.end(context.Canceled) })
	return w.done
}

// end ends the context.
func (w *work) end(err error) {
	w.bus.mu.Lock()
	defer w.bus.mu.Unlock()
	w.endLocked(err)
}

func (w *work) endLocked(err error) {
	if w.err == nil {
		w.err = err
	}
	if w.done == nil || w.closed {
		return
	}
	w.closed = true
	close(w.done)
	if w.timer != nil {
		w.timer.Stop()
		w.unhook()
	}
}
