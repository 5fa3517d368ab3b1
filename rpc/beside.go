package rpc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/internal/clock"
	"github.com/luatomic/luatomic/internal/send"
	"github.com/luatomic/luatomic/internal/servers"
	"github.com/luatomic/luatomic/internal/show"
	"github.com/luatomic/luatomic/internal/wire"
	"github.com/luatomic/luatomic/lua"
)

// besideMin is the size from which on a body travels beside the script, by plain SET and GET. A script copies its
// arguments several times, and each large text in Lua costs more than the command itself: 0.7 ms of the server for 60
// kB, where SET takes 1 us. The price is a round trip of the receiver.
const besideMin = 8 << 10

// bodyLate is how long a body may come after the script that announces it. In a hash slot that migrates, the key of the
// body is new, so its SET goes on to the other server in a second trip, while the script runs at once. A body that the
// server has refused, or has lost, comes never: a receiver asks for it for that long.
const bodyLate = 2 * time.Second

// errBodyLost reports that the server does not have a body.
var errBodyLost = errors.New("its body is lost")

// besideID returns the name of a body: that of its call, with the digest of its request if other requests may have the
// same id.
func besideID(id, digest string) string {
	if digest == "" {
		return id
	}
	return id + "." + digest
}

// putBeside returns the client for the script that announces a body. The client stores the body before the script runs.
// A repeat stores the same body.
func (b *Bus) putBeside(ctx context.Context, id string, body []byte, keep time.Duration) *send.Ahead {
	sealed := b.seal((&wire.Body{ID: id, Body: body}).Encode())
	set := func() redis.Cmder {
		return redis.NewStatusCmd(ctx, "set", b.keys.Body(id), sealed, "px", clock.CeilMilli(keep))
	}
	return &send.Ahead{UniversalClient: b.client, New: set, Size: len(sealed)}
}

// unstored returns the error of the body that was sent before a script, or nil if the body was stored. err is the error
// of the script. unstored returns nil if the script has no answer: then nothing is known about the body either. In a
// cluster whose hash slot moves, the body takes another way than the script. If it was lost there, it is sent again: by
// itself, because the script has run.
func (b *Bus) unstored(ctx context.Context, client lua.Client, err error) error {
	put, ok := client.(*send.Ahead)
	if !ok {
		return nil // the usual call allocates nothing here
	}
	if failed := new(lua.Error); err != nil && (!errors.As(err, &failed) || failed.Code == "") {
		return nil
	}
	failed := put.Err()
	if err == nil && failed != nil && !isFinal(failed) {
		failed = b.client.Process(ctx, put.Next())
	}
	if failed != nil {
		return fmt.Errorf("store a body: %w", show.Unquoted(failed))
	}
	return nil
}

// isFinal reports whether the server itself has refused a command, and would do so again.
func isFinal(err error) bool {
	if !errors.As(err, new(redis.Error)) {
		return false
	}
	return !slices.ContainsFunc([]string{"MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "LOADING", "READONLY"},
		func(code string) bool { return redis.HasErrorPrefix(err, code) })
}

// given returns the error of a script that gives a request to a node. Without its body no node runs the request, except
// that the body of an earlier request with the same key, or of an earlier attempt, may still be stored. Then the
// outcome of the script counts.
func (w *waiter) given(s *sending, client lua.Client, err error) error {
	body := s.bus.unstored(s, client, err)
	switch {
	case body == nil:
		w.put = true
		return err
	case w.put || s.twice.Load() || errors.Is(err, lua.ErrOutcomeUnknown):
		return err
	case w.Key != "" || !isFinal(body):
		return fmt.Errorf("%w: %w", lua.ErrOutcomeUnknown, body)
	}
	return fmt.Errorf("%w: %w", lua.ErrNotExecuted, body)
}

// readTogether reads values of concurrent reads in one round trip.
func (b *Bus) readTogether(ctx context.Context, gets []*redis.StringCmd) {
	if len(gets) == 1 {
		servers.Read(ctx, b.client, gets[0])
		return
	}
	_ = servers.ReadAll(ctx, b.client, gets) // each has its own error
}

// readBody reads a body that the server stores under the key.
func (b *Bus) readBody(ctx context.Context, key string) (string, error) {
	get := redis.NewStringCmd(ctx, "get", key)
	if b.reads.Do(ctx, get, int(b.bodySize.Load())) != send.Sent {
		return "", context.Cause(ctx)
	}
	b.bodySize.Store(int64(len(get.Val())))
	return get.Result()
}

// getBeside reads a body that travels beside the script. While the server cannot be asked, it tries again until ctx
// ends. While the server does not have the body, it tries again for bodyLate.
func (b *Bus) getBeside(ctx context.Context, id string) ([]byte, error) {
	retry := clock.Backoff{First: 10 * time.Millisecond, Last: time.Second}
	var absent time.Time
	for {
		text, err := b.readBody(ctx, b.keys.Body(id))
		switch {
		case err == nil:
			return b.openBeside(id, text)
		case !errors.Is(err, redis.Nil):
			absent, err = time.Time{}, show.Unquoted(err)
		case absent.IsZero():
			absent, err = time.Now(), errBodyLost
		default:
			err = errBodyLost
		}
		if !absent.IsZero() && time.Since(absent) > bodyLate || ctx.Err() != nil || !clock.Sleep(ctx, retry.Next()) {
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

// loadBody reads the body of a request. If the body cannot be read, the request has not run, and another node may run
// it.
func (w *work) loadBody() error {
	if w.Ext.Beside == "" {
		return nil
	}
	body, err := w.bus.getBeside(&bounded{w.session.ctx, w.deadline}, w.Ext.Beside)
	if err != nil {
		return &RemoteError{Code: CodeBadRequest, Message: "the request cannot be read: " + err.Error()}
	}
	w.Body = body
	return nil
}

// collecting is the context of a read for all calls that wait for an answer. It ends for good when the time of each
// call is over: a call that comes later reads by itself. It has no channel; see sending.
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

// latest returns the latest deadline of the calls that wait for this reply, or zero if none waits.
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

// collectBody reads the body of an answer and delivers the answer. A call whose time is over meanwhile ends by itself.
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
		err = unreadable(method, "the handler has run", err)
	}
	b.pending.deliver(a.ID, outcome{body: body, err: err, ext: a.Ext})
}
