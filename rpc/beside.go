package rpc

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/internal/clock"
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
		return fmt.Errorf("store a body: %w", err)
	}
	return nil
}

// getBeside reads a body that travels by itself, again until ctx ends where the server cannot be asked.
func (b *Bus) getBeside(ctx context.Context, id string) ([]byte, error) {
	retry := clock.Backoff{First: 10 * time.Millisecond, Last: time.Second}
	for {
		text, err := b.client.Get(ctx, b.keys.Body(id)).Result()
		switch {
		case errors.Is(err, redis.Nil):
			return nil, errBodyLost
		case err == nil:
			return b.openBeside(id, text)
		case ctx.Err() != nil || !clock.Sleep(ctx, retry.Next()):
			return nil, err
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

// collectBody reads the body of an answer and delivers it. The calls that wait for it bound the time.
func (b *Bus) collectBody(a *wire.Answer) {
	w := b.pending.first(a.ID)
	if w == nil {
		return
	}
	s := &sending{Context: context.Background(), w: w, deadline: w.deadline}
	body, err := b.getBeside(s, a.Ext.Beside)
	if err != nil {
		err = fmt.Errorf("luatomic: call %q: its reply cannot be read, the handler has run: %w", w.method, err)
	}
	b.pending.deliver(a.ID, outcome{body: body, err: err, ext: a.Ext})
}
