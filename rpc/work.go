package rpc

import (
	"context"
	"time"

	"github.com/luatomic/luatomic/internal/wire"
)

// work is a request that this node has taken, and the context of its handler. The node knows the request by its id
// until the answer is sent, so that it cannot run twice. The timer and channel of the context are made when Done is
// called, because most handlers return without that.
type work struct {
	*wire.Request
	bus      *Bus
	method   *served // nil where the node does not serve it
	run      handler
	slot     bool              // it is one of Options.Concurrency
	reserved bool              // only its id is known so far
	reply    map[string]string // headers of the answer, guarded by serving.mu

	session  *session // whose end ends the context
	deadline time.Time
	sends    bounded // the context of the script that takes the answer

	// The context's end, guarded by serving.mu.
	err    error
	done   chan struct{}
	closed bool
	timer  *time.Timer
	unhook func() bool

	// Which chunks the caller says it has read, which of the sent chunks it has read, and the sizes of the sent chunks
	// that it has not read. Guarded by serving.mu.
	credit      chan struct{}
	credited    uint64
	read        uint64
	unread      []int
	unreadBytes int
}

// CallInfo describes the call that a handler works on.
type CallInfo struct {
	// ID is the same at each attempt, and empty for a cast. It is unique on the bus, except that the id of a call with
	// an idempotency key is derived from the method and the key.
	ID     string
	Method string
	// Attempt is 1 for the first node that has the call, and 0 for a cast.
	Attempt int
	// Headers are those of the request. A handler must not change them.
	Headers map[string]string
}

func (b *Bus) newWork(s *session, q *wire.Request) *work {
	return &work{Request: q, bus: b, session: s, deadline: time.Now().Add(q.Left)}
}

type callKey struct{}

// CallFrom returns the call of a handler's context, or of a context derived from it.
func CallFrom(ctx context.Context) (info CallInfo, ok bool) {
	w, ok := ctx.Value(callKey{}).(*work)
	if !ok {
		return CallInfo{}, false
	}
	return w.info(), true
}

func (w *work) info() CallInfo {
	return CallInfo{ID: w.ID, Method: w.Method, Attempt: int(w.Attempt), Headers: w.Ext.Headers}
}

// ReplyHeader sets a header of the reply to the call of a handler's context. It does nothing for casts and streams, and
// after the handler has returned. A reply has at most 64 headers, 16 KiB together; with more, the call fails.
func ReplyHeader(ctx context.Context, key, value string) {
	w, ok := ctx.Value(callKey{}).(*work)
	if !ok || w.Flags&wire.FlagStream != 0 {
		return
	}
	w.bus.serving.mu.Lock()
	defer w.bus.serving.mu.Unlock()
	if w.reply == nil {
		w.reply = make(map[string]string)
	}
	w.reply[key] = value
}

// Deadline is the caller's.
func (w *work) Deadline() (time.Time, bool) { return w.deadline, true }

// Value returns the value of Run's context, and the call for CallFrom.
func (w *work) Value(key any) any {
	if key == (callKey{}) {
		return w
	}
	return w.session.ctx.Value(key)
}

// Err is not nil as soon as the handler should return.
func (w *work) Err() error {
	w.bus.serving.mu.Lock()
	defer w.bus.serving.mu.Unlock()
	return w.errLocked()
}

func (w *work) errLocked() error {
	if w.err == nil && w.session.ctx.Err() != nil {
		w.err = context.Canceled
	}
	if w.err == nil && !time.Now().Before(w.deadline) {
		w.err = context.DeadlineExceeded
	}
	return w.err
}

// Done is closed when the caller gives up, at the deadline, when Run ends, and when the handler has returned.
func (w *work) Done() <-chan struct{} {
	w.bus.serving.mu.Lock()
	defer w.bus.serving.mu.Unlock()
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
	w.unhook = context.AfterFunc(w.session.ctx, func() { w.end(context.Canceled) })
	return w.done
}

// end ends the context.
func (w *work) end(err error) {
	w.bus.serving.mu.Lock()
	defer w.bus.serving.mu.Unlock()
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

// bounded is a context that ends at a deadline, without a timer: Err reports the end, Done does not. It is for code
// that looks at the deadline itself.
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
