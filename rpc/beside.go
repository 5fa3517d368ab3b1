package rpc

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/internal/clock"
	"github.com/luatomic/luatomic/internal/nodes"
	"github.com/luatomic/luatomic/internal/unquoted"
	"github.com/luatomic/luatomic/internal/wire"
)

// besideMin is the size from which on a body travels by itself, by plain SET and GET. A script copies what it gets
// several times, and each large text of Lua costs more than the command itself: 0.7 ms of the server for 60 kB where
// SET takes 1 us. The price is a round trip of each side.
const besideMin = 8 << 10

// errBodyLost reports that the server does not have a body any more.
var errBodyLost = errors.New("its body is lost")

// besideID names a body after its call, and where other requests may have the id, after its request.
func besideID(id, digest string) string {
	if digest == "" {
		return id
	}
	return id + "." + digest
}

// putBeside stores a body that travels by itself. A repeat stores the same.
func (b *Bus) putBeside(ctx context.Context, id string, body []byte, keep time.Duration) error {
	frame := wire.Body{ID: id, Body: body}
	if err := b.client.Set(ctx, b.keys.Body(id), b.seal(frame.Encode()), keep).Err(); err != nil {
		return fmt.Errorf("store a body: %w", unquoted.Error(err))
	}
	return nil
}

// getBeside reads a body that travels by itself, again until ctx ends where the server cannot be asked.
func (b *Bus) getBeside(ctx context.Context, id string) ([]byte, error) {
	retry := clock.Backoff{First: 10 * time.Millisecond, Last: time.Second}
	for {
		text, err := nodes.Read(ctx, b.client, redis.NewStringCmd(ctx, "get", b.keys.Body(id))).Result()
		switch {
		case errors.Is(err, redis.Nil):
			return nil, errBodyLost
		case err == nil:
			return b.openBeside(id, text)
		case ctx.Err() != nil || !clock.Sleep(ctx, retry.Next()):
			return nil, unquoted.Error(err)
		}
	}
}

func (b *Bus) openBeside(id, text string) ([]byte, error) {
	frame, err := wire.Decode(text, &b.sealer)
	body, ok := frame.(*wire.Body)
	if err == nil && (!ok || body.ID != id) {
		err = wire.ErrMalformed
	}
	if err != nil {
		b.counts.refused.Add(1)
		return nil, err
	}
	return body.Body, nil
}

// loadBody reads the body of a request. One that cannot be read has not run, and another node may.
func (w *work) loadBody() error {
	if w.Ext.Beside == "" {
		return nil
	}
	body, err := w.bus.getBeside(&bounded{w.parent, w.deadline}, w.Ext.Beside)
	if err != nil {
		return &RemoteError{Code: CodeBadRequest, Message: "the request cannot be read: " + err.Error()}
	}
	w.Body = body
	return nil
}

// collecting is the context of a read for all calls that wait for an answer. It ends when the time of each is over, and
// then for good: a call that comes later reads by itself. It has no channel, see sending.
type collecting struct {
	context.Context
	pending *pending
	id      string
	ended   atomic.Bool
}

func (c *collecting) Deadline() (time.Time, bool) { return c.pending.latest(c.id), true }
func (c *collecting) Done() <-chan struct{}       { return nil }

func (c *collecting) Err() error {
	if c.ended.Load() || !time.Now().Before(c.pending.latest(c.id)) {
		c.ended.Store(true)
		return context.DeadlineExceeded
	}
	return nil
}

// latest returns when the time of the last call that waits for this reply is over, zero where there is none.
func (p *pending) latest(id string) (at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := p.calls[id]; w != nil; w = w.next {
		if w.deadline.After(at) {
			at = w.deadline
		}
	}
	return at
}

// collectBody reads the body of an answer and delivers it. A call whose time is over meanwhile ends by itself.
func (b *Bus) collectBody(a *wire.Answer) {
	ctx := &collecting{Context: context.Background(), pending: &b.pending, id: a.ID}
	method := b.pending.methodOf(a.ID)
	if ctx.Err() != nil {
		return
	}
	body, err := b.getBeside(ctx, a.Ext.Beside)
	if ctx.ended.Load() {
		return
	}
	if err != nil {
		err = fmt.Errorf("luatomic: call %q: its reply cannot be read, the handler has run: %w", method, err)
	}
	b.pending.deliver(a.ID, outcome{body: body, err: err, ext: a.Ext})
}
