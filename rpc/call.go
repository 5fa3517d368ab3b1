package rpc

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/internal/wire"
	"github.com/luatomic/luatomic/lua"
)

// outgoing is a call before it is sent.
type outgoing struct {
	CallOptions
	method     string
	body       []byte
	flags      uint64
	idempotent bool   // another node may run it
	shared     string // names its body, which is stored for several calls; empty where it is not
}

// check checks the names and sizes before anything is sent.
func (c *outgoing) check() error {
	err := keys.CheckName("method name", c.method)
	if err == nil && c.Node != "" {
		err = checkNode(c.Node)
	}
	if err == nil && c.Node != "" && c.Connection != "" {
		err = fmt.Errorf("%w: node %q and connection %q are both set, and its owner may be another node; set one of "+
			"them",
			lua.ErrBadName, c.Node, c.Connection)
	}
	if err == nil && c.Connection != "" {
		err = keys.CheckName("connection", c.Connection)
	}
	if err == nil && c.Key != "" {
		err = keys.CheckSecret("idempotency key", c.Key)
	}
	if err == nil {
		err = checkHeaders(c.Headers)
	}
	if n := len(c.body); err == nil && n > maxRequest {
		err = fmt.Errorf("call %q: %w", c.method, &lua.SizeError{What: "the request", N: n, Max: maxRequest,
			Unit: "bytes"})
	}
	if err != nil {
		return fmt.Errorf("luatomic: %w", err)
	}
	switch { // a repeat writes nothing: the attempt before it may still be read
	case c.Keep <= 0:
		c.Keep = time.Hour
	case c.Keep > wire.MaxKeep:
		c.Keep = wire.MaxKeep
	}
	return nil
}

// checkNode checks the name of a node, with or without its unique part. The part before that must be a valid name.
func checkNode(name string) error {
	if len(name) > maxNode {
		return fmt.Errorf("%w: node name has %d bytes, at most %d", lua.ErrBadName, len(name), maxNode)
	}
	unique := max(len(name)-uniquePart, 0)
	for _, part := range []string{name[:unique], name[unique:]} {
		if err := keys.CheckName("node name", part); err != nil && part != "" {
			return err
		}
	}
	return nil
}

// checkHeaders checks headers of a call or an answer.
func checkHeaders(headers map[string]string) error {
	if len(headers) > wire.MaxHeaders {
		return &lua.SizeError{What: "headers", N: len(headers), Max: wire.MaxHeaders, Unit: "names"}
	}
	for k := range headers {
		if err := keys.CheckName("header name", k); err != nil {
			return err
		}
	}
	if n := headersSize(headers); n > wire.MaxHeaderBytes {
		return &lua.SizeError{What: "headers", N: n, Max: wire.MaxHeaderBytes, Unit: "bytes"}
	}
	return nil
}

func headersSize(headers map[string]string) (n int) {
	for k, v := range headers {
		n += len(k) + len(v) + 8
	}
	return n
}

// maxRequest bounds the body of a request.
const maxRequest = 1<<20 - 2048

// maxNode is the longest name with its unique part, uniquePart the length of that part with its dot.
const (
	uniquePart = 17
	maxNode    = 128 + uniquePart
)

// targeted reports whether only one node may answer, even after its death.
func (c *outgoing) targeted() bool { return c.Node != "" || c.Connection != "" }

// timers are reused, which saves two allocations for each call. Since Go 1.23 a stopped timer's channel is empty.
var timers = sync.Pool{New: func() any {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}}

// callGrace is how much longer than the request its record is stored. replyKept is how long a caller that was
// disconnected can read a reply.
const (
	callGrace = time.Second
	replyKept = 10 * time.Second
)

// limit returns the deadline of a call that begins now, and whether it is that of the context.
func (b *Bus) limit(ctx context.Context) (deadline time.Time, byContext bool) {
	if deadline, byContext = ctx.Deadline(); !byContext {
		return time.Now().Add(b.opts.Timeout), false
	}
	if longest := time.Now().Add(wire.MaxTimeout); deadline.After(longest) {
		return longest, true
	}
	return deadline, true
}

// call makes a call and waits for its outcome until ctx ends. A goroutine of its own sends the request, so that the
// caller waits neither for a silent server nor, when the reply comes first, for the answer to the request.
func (b *Bus) call(ctx context.Context, c *outgoing) (outcome, error) {
	if err := c.check(); err != nil {
		return outcome{}, err
	}
	deadline, byContext := b.limit(ctx)
	var expired <-chan time.Time
	if !byContext {
		t := timers.Get().(*time.Timer)
		t.Reset(time.Until(deadline))
		defer func() {
			t.Stop()
			timers.Put(t)
		}()
		expired = t.C
	}
	if err := b.awaitReady(ctx, expired); err != nil {
		return outcome{}, err
	}
	w := b.newWaiter(c, deadline)
	b.pending.expect(w)
	b.placeFirst(ctx, w)
	return b.await(ctx, w, expired)
}

// newWaiter counts a call and encodes its request.
func (b *Bus) newWaiter(c *outgoing, deadline time.Time) *waiter {
	b.counts.calls.Add(1)
	id, record := b.newID(c)
	q := wire.Request{
		ID: id, Method: c.method, Flags: c.flags, Body: c.body,
		Ext: wire.Ext{Headers: c.Headers, Connection: c.Connection},
	}
	if c.idempotent {
		q.Flags |= wire.FlagIdempotent
	}
	w := &waiter{outgoing: *c, id: id, record: record, deadline: deadline}
	if c.Key != "" {
		q.Keep, q.Ext.Millis = c.Keep, uint64(max(time.Until(deadline), b.opts.Timeout).Milliseconds())
		sum := sha256.Sum256(c.body)
		w.digest = hex.EncodeToString(sum[:12])
		q.Ext.Digest = w.digest
	}
	if len(c.body) >= besideMin {
		q.Flags, q.Ext.Beside, q.Body = q.Flags|wire.FlagBeside, c.shared, nil
		if c.shared == "" {
			w.beside, w.besideID = c.body, besideID(id, w.digest)
			q.Ext.Beside = w.besideID
		}
	}
	w.frame = b.seal(q.Encode())
	return w
}

// await returns the reply, or why there is none.
func (b *Bus) await(ctx context.Context, w *waiter, expired <-chan time.Time) (outcome, error) {
	var cause error
	select {
	case <-w.answered:
		return b.finish(w)
	case <-ctx.Done():
		cause = endOf(ctx)
	case <-expired:
		cause = context.DeadlineExceeded
	}
	if !b.pending.forget(w) {
		return b.finish(w) // it came at this moment
	}
	b.giveUp(w)
	return outcome{}, fmt.Errorf("luatomic: call %q: no answer, the handler may have run: %w%s", w.method, cause,
		b.pending.whyUnsent(w))
}

// endOf returns why ctx has ended, with its cause. The cause may say that another call has not run, as the first error
// of a group of calls does. Such a cause is only text, so that the error of this call does not match it.
func endOf(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	switch {
	case isRefusal(cause):
		return fmt.Errorf("%w: %v", err, cause)
	case errors.Is(cause, err):
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// giveUp cancels a call that nobody waits for. A call with a key goes on, because others may use the key.
func (b *Bus) giveUp(w *waiter) {
	b.countAt(w, "")
	if w.Key == "" && w.beside != nil {
		b.pending.discard(b.keys.Body(w.besideID))
	}
	if w.Key == "" {
		b.cancel(w)
	}
}

// finish takes the reply. After that the record is needed only for a copy of the request that may still arrive, and for
// the next call with the key.
func (b *Bus) finish(w *waiter) (outcome, error) {
	b.countAt(w, "")
	if b.pending.take(w) {
		b.removeRecords(w)
	}
	return w.out, w.out.err
}

// removeRecords lets the bus remove soon what a call has stored.
func (b *Bus) removeRecords(w *waiter) {
	var records [3]string
	if w.Key == "" && b.pending.discard(b.appendRecords(records[:0], w)...) {
		offer(b.outbox.filled)
	}
}

// appendRecords appends the keys of a call that has its outcome.
func (b *Bus) appendRecords(records []string, w *waiter) []string {
	records = append(records, w.record)
	if w.beside != nil {
		records = append(records, b.keys.Body(w.besideID))
	}
	if w.out.ext.Beside != "" {
		records = append(records, b.keys.Body(w.out.ext.Beside))
	}
	return records
}

var errEnded = errors.New("it has ended")

// awaitReady waits until the bus is connected. If the last Run has ended, it waits for the next one. A call whose
// context has ended is not made.
func (b *Bus) awaitReady(ctx context.Context, expired <-chan time.Time) error {
	if err := b.liveness.await(ctx, 0, expired); err != nil {
		return b.notReady(fmt.Errorf("%w: %w", lua.ErrNotExecuted, err))
	}
	if ctx.Err() != nil {
		return fmt.Errorf("luatomic: bus %q: %w: %w", b.name, lua.ErrNotExecuted, endOf(ctx))
	}
	return nil
}

// newID names a call after its caller and a number, or after its idempotency key. The key of its record ends with that.
func (b *Bus) newID(c *outgoing) (id, record string) {
	if c.Key != "" {
		id = "k" + strconv.Itoa(len(c.method)) + ":" + c.method + ":" + c.Key + "K"
		return id, b.keys.Record(id)
	}
	var buf [2*maxNode + 16]byte
	of := append(append(append(buf[:0], b.keys.Records...), b.Node()...), '.')
	record = string(strconv.AppendUint(of, b.pending.serial.Add(1), 36))
	return record[len(b.keys.Records):], record
}
