package rpc

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/luatomic/luatomic/internal/wire"
	"github.com/luatomic/luatomic/lua"
)

// outgoing is a call before it is sent.
type outgoing struct {
	CallOptions
	method     string
	body       []byte
	flags      uint64
	idempotent bool // another node may run it
}

// check judges the names before anything is sent.
func (c *outgoing) check() error {
	err := lua.CheckName("method name", c.method)
	if err == nil && len(c.Node) > maxNode {
		err = fmt.Errorf("%w: node name has %d bytes, at most %d", lua.ErrBadName, len(c.Node), maxNode)
	}
	if err == nil && c.Connection != "" {
		err = lua.CheckName("connection", c.Connection)
	}
	if err == nil && c.Key != "" {
		err = lua.CheckName("idempotency key", c.Key)
	}
	if err != nil {
		return fmt.Errorf("luatomic: %w", err)
	}
	if c.Keep <= 0 {
		c.Keep = time.Hour
	}
	c.Keep = min(c.Keep, wire.MaxKeep)
	return nil
}

// maxNode is the length of a name with its unique part.
const maxNode = 128 + 17

// targeted calls have one node that may answer, even after its death.
func (c *outgoing) targeted() bool { return c.Node != "" || c.Connection != "" }

// timers are used again, which saves two allocations a call. Since Go 1.23 a stopped timer's channel is empty.
var timers = sync.Pool{New: func() any {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}}

// callGrace is how much longer than the request its record lives, replyKept how long a caller that was disconnected can
// read a reply, and a lost call is known as lost.
const (
	callGrace = time.Second
	replyKept = 10 * time.Second
)

// limit is the remaining time for a call, and whether the context ends it.
func (b *Bus) limit(ctx context.Context) (left time.Duration, byContext bool) {
	if deadline, ok := ctx.Deadline(); ok {
		return min(max(time.Until(deadline), time.Millisecond), wire.MaxTimeout), true
	}
	return b.opts.Timeout, false
}

func (b *Bus) call(ctx context.Context, c *outgoing) ([]byte, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	left, byContext := b.limit(ctx)
	var expired <-chan time.Time
	if !byContext {
		t := timers.Get().(*time.Timer)
		t.Reset(left)
		defer func() {
			t.Stop()
			timers.Put(t)
		}()
		expired = t.C
	}
	if err := b.awaitReady(ctx, expired); err != nil {
		return nil, err
	}
	w := b.newWaiter(c, nil)
	if err := b.dispatch(ctx, c, w, left, expired); err != nil {
		return b.callFailed(c, w, err)
	}
	return b.await(ctx, c, w, expired)
}

// newWaiter counts a call and registers its waiter.
func (b *Bus) newWaiter(c *outgoing, s *stream) *waiter {
	b.counts.calls.Add(1)
	id := b.newID(c)
	w := &waiter{
		id: id, record: b.keys.Record(id), method: c.method, idempotent: c.idempotent && !c.targeted(), stream: s,
		resubscribed: b.liveness.resubscribed.Load(),
	}
	b.pending.expect(w)
	return w
}

// callFailed ends a call whose script returned an error. Its reply may have come all the same.
func (b *Bus) callFailed(c *outgoing, w *waiter, err error) ([]byte, error) {
	if !b.pending.forget(w) {
		return b.finish(c, w)
	}
	err, certain := unwrapNotSent(err)
	if !certain && c.Key == "" {
		b.cancel(c.method, w.id, true)
	}
	return nil, err
}

// await returns the reply, or why there is none.
func (b *Bus) await(ctx context.Context, c *outgoing, w *waiter, expired <-chan time.Time) ([]byte, error) {
	var cause error
	select {
	case <-w.answered:
		return b.finish(c, w)
	case <-ctx.Done():
		cause = context.Cause(ctx)
	case <-expired:
		cause = context.DeadlineExceeded
	}
	if !b.pending.forget(w) {
		return b.finish(c, w) // it came at this moment
	}
	if c.Key == "" {
		b.cancel(c.method, w.id, !w.quick)
	}
	return nil, fmt.Errorf("luatomic: call %q: no answer, the handler may have run: %w", c.method, cause)
}

// finish takes the reply. The record of a quick call is not needed any more; that of a call with a key keeps the
// result.
func (b *Bus) finish(c *outgoing, w *waiter) ([]byte, error) {
	if c.Key == "" && w.quick {
		b.pending.discard(w.record)
	}
	return w.out.body, w.out.err
}

var errEnded = errors.New("it has ended")

func (b *Bus) awaitReady(ctx context.Context, expired <-chan time.Time) error {
	select {
	case <-b.liveness.ready:
		if !b.liveness.running.Load() {
			return b.notReady(errEnded)
		}
		return nil
	default:
	}
	select {
	case <-b.liveness.ready:
		return nil
	case <-ctx.Done():
		return b.notReady(context.Cause(ctx))
	case <-expired:
		return b.notReady(context.DeadlineExceeded)
	}
}

// newID names a call after its caller and a number, or after its idempotency key.
func (b *Bus) newID(c *outgoing) string {
	if c.Key != "" {
		return "k" + strconv.Itoa(len(c.method)) + ":" + c.method + ":" + c.Key + "K"
	}
	var buf [maxNode + 16]byte
	id := append(append(buf[:0], b.node...), '.')
	return string(strconv.AppendUint(id, b.pending.serial.Add(1), 36))
}
