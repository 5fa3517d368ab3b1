package lua

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/internal/clock"
	"github.com/luatomic/luatomic/internal/send"
)

// retryBudget bounds the retries of a call whose context has no deadline.
const retryBudget = 10 * time.Second

// Run sends the call and decodes its reply. Generated functions call it. See the package comment for what it retries,
// and Error for the errors that it returns.
func Run[T any](ctx context.Context, c Client, call *Call, decode func(*Reply) T) (T, error) {
	if err := call.run(ctx, c); err != nil {
		var none T
		return none, err
	}
	return decodeCall(call, decode)
}

func decodeCall[T any](call *Call, decode func(*Reply) T) (T, error) {
	call.reply = Reply{script: call.script.Name, value: call.value()}
	out := decode(&call.reply)
	if err := call.reply.err; err != nil {
		var none T
		return none, err
	}
	return out, nil
}

// value returns the reply in the form that the decoder takes.
func (c *Call) value() any {
	if m := c.script.Merge; m != nil {
		return m.row(c.cmd.Val())
	}
	return c.cmd.Val()
}

func (c *Call) run(ctx context.Context, client Client) error {
	client = c.bind(client)
	if err := c.check(ctx); err != nil {
		return err
	}
	if l, s := c.pipeline(ctx, client); l != nil {
		c.share(ctx, client, l, s)
	} else {
		c.alone(ctx, client)
	}
	if c.done {
		c.noteResent(ctx)
		return nil
	}
	return c.result(ctx, client, time.Now().Add(detailBudget))
}

// detailBudget bounds the time that a call, or all calls of a batch, spend on the details of their errors.
const detailBudget = time.Second

// record records the outcome of an attempt and reports whether another may follow.
func (c *Call) record(ctx context.Context, client Client, err error, tries int) (again bool) {
	// A nil reply is a reply. A received reply counts, whatever the error, because go-redis marks every command of a
	// broken pipeline. The value alone proves nothing: a truncated reply leaves an empty value.
	if err == nil || err == redis.Nil || c.cmd.program.answered {
		c.done = true
		return false
	}
	e := classify(&c.cmd, err)
	if e.Code == "" {
		askAgain(ctx, client)
	}
	if c.failure != nil && !c.cmd.program.sent && (isContext(err) || err == errUnsent) {
		e = c.failure // more specific
	}
	e.Tries = tries
	if e.Code == "" && c.failure != nil && c.failure.Code != "" {
		e.Detail = c.failure.before()
	}
	c.failure = e
	c.noScript = e.Code == "NOSCRIPT"
	c.replica = c.replica || e.Code == codeReadOnly
	if e.Outcome == ErrOutcomeUnknown {
		c.unknown = true
		return c.script.Retry == RetrySafe
	}
	again = e.Outcome == ErrNotExecuted && e.transient
	if again && !c.noScript {
		noteFailed(ctx, e.Err)
	}
	return again
}

// noteFailed tells the caller why an attempt has not run the script.
func noteFailed(ctx context.Context, err error) {
	if n, ok := ctx.Value(send.FailedKey{}).(send.FailureNoter); ok {
		n.NoteFailed(err)
	}
}

// askAgain makes the client of a cluster ask in the background which servers there are, because a server that has not
// answered may have been replaced. go-redis itself asks once a minute, and when a server answers MOVED, which a dead
// server does not.
func askAgain(ctx context.Context, client Client) {
	if c, ok := client.(interface{ ReloadState(context.Context) }); ok {
		c.ReloadState(ctx)
	}
}

// codeReadOnly is the error of a replica. After a failover a connection may lead to a replica, if the address of the
// master is a host name.
const codeReadOnly = "READONLY"

// cold reports whether the last attempt failed because the server does not have the script.
func (c *Call) cold() bool { return c.noScript }

// withoutDelay reports whether the next attempt needs no delay: it loads the missing script.
func (c *Call) withoutDelay() bool { return c.cold() && c.failedLoads < maxFailedLoads }

// alone sends the call by itself, and sends it again if that is safe.
func (c *Call) alone(ctx context.Context, client Client) {
	var p pause
	for tries := 1; tries == 1 || p.pass(ctx, c.withoutDelay()); tries++ {
		c.begin()
		c.attempt(ctx, client)
		if !c.record(ctx, client, c.cmd.Err(), tries) {
			return
		}
	}
}

// attempt sends the call by itself. It takes the outcome from the command, because an AutoPipeliner may return before
// there is one.
func (c *Call) attempt(ctx context.Context, client Client) {
	if c.cold() {
		c.loadAndRun(ctx, client)
		return
	}
	c.sendAlone(ctx, client, false)
}

// sendAlone sends the call in a round trip of its own, with the command that must go out before it.
func (c *Call) sendAlone(ctx context.Context, client Client, eval bool) {
	if c.ahead == nil {
		_ = client.Process(ctx, c.prepare(ctx, eval))
		return
	}
	pipe := client.Pipeline()
	c.precede(ctx, pipe)
	_ = pipe.Process(ctx, c.prepare(ctx, eval))
	_, err := pipe.Exec(ctx)
	blameOne(&c.cmd, err)
}

// precede puts the command that must go out before the call into a pipeline.
func (c *Call) precede(ctx context.Context, pipe redis.Pipeliner) {
	if c.ahead != nil {
		_ = pipe.Process(ctx, c.ahead.Next())
	}
}

// addrOf is the address of the client's one server behind a space, or "".
func addrOf(client Client) string {
	if node, ok := client.(*redis.Client); ok {
		return " " + node.Options().Addr
	}
	return ""
}

// result returns the caller's error, or nil after a reply. An unknown outcome stays unknown, whatever later attempts
// return: the first attempt may have written before the lease expired. The search for details of an error ends at
// until.
func (c *Call) result(ctx context.Context, client Client, until time.Time) error {
	if c.done {
		c.noteResent(ctx)
		return nil
	}
	e := c.failure
	if c.unknown && (e.Outcome == ErrNotExecuted || e.fenced()) {
		e.Outcome = ErrOutcomeUnknown
	}
	switch {
	case e.Code == "WRONGTYPE":
		e.Detail = c.findWrongType(ctx, client, until)
	case e.Outcome == ErrNotExecuted && isContext(e.Err) && e.Detail == "":
		if addr := addrOf(client); addr != "" {
			e.Detail = "no connection to" + addr
		}
	case e.Code == "NOPERM" && c.noLoad && e.Line == 0: // at a line of the script it ran
		e.notLoaded = true
		e.Detail = "the server does not have the script and this user may not load it; Preload it as a user that may"
	}
	switch err := ctx.Err(); {
	case err == nil || errors.Is(e.Err, context.Cause(ctx)):
	case errors.Is(e.Err, err): // go-redis knows no cause
		e.Err = fmt.Errorf("%w: %w", e.Err, causeOf(ctx))
	default:
		e.Err = fmt.Errorf("%w: %w", endOf(ctx), e.Err)
	}
	return e
}

// noteResent tells the caller that the reply may answer a repeat.
func (c *Call) noteResent(ctx context.Context) {
	if !c.unknown {
		return
	}
	if n, ok := ctx.Value(send.ResentKey{}).(send.ResentNoter); ok {
		n.NoteResent()
	}
}

// pause is the delay between the attempts of one call or batch.
type pause struct {
	start time.Time
	wait  time.Duration
}

const (
	firstWait = time.Millisecond
	lastWait  = 250 * time.Millisecond
)

// pass waits before the next attempt, with jitter and twice as long each time. It returns false when ctx ends first
// or the retry budget is used up. With withoutDelay it does not wait.
func (p *pause) pass(ctx context.Context, withoutDelay bool) bool {
	if ctx.Err() != nil {
		return false
	}
	if p.start.IsZero() {
		p.start, p.wait = time.Now(), firstWait
	}
	wait := p.wait/2 + rand.N(p.wait)
	if withoutDelay {
		wait = 0
	} else {
		p.wait = min(2*p.wait, lastWait)
	}
	if _, bounded := ctx.Deadline(); !bounded && time.Since(p.start)+wait > retryBudget {
		return false
	}
	return clock.Sleep(ctx, wait)
}

// findWrongType returns a text that names the key which holds another type than the header declares, or "" if none is
// found. go-redis may wait longer for a server than until, and than ctx: findWrongType returns without the reply.
func (c *Call) findWrongType(ctx context.Context, client Client, until time.Time) string {
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	if ctx.Err() != nil {
		return ""
	}
	found := make(chan string, 1)
	go func() { found <- c.wrongType(ctx, client) }()
	select {
	case text := <-found:
		return text
	case <-ctx.Done():
		return ""
	}
}

// wrongType asks for the types of all keys in one round trip after the call. A key may have changed by then.
func (c *Call) wrongType(ctx context.Context, client Client) string {
	declared := c.keys
	if c.guarded {
		declared-- // the lease may be of several types
	}
	pipe, types := client.Pipeline(), make([]*redis.StatusCmd, declared)
	for i := range declared {
		if c.script.key(i).Type != "" {
			types[i] = pipe.Type(ctx, keyText(c.argv[3+i]))
		}
	}
	_, _ = pipe.Exec(ctx) // a type that is not known says nothing
	for i, got := range types {
		if got == nil {
			continue
		}
		switch want := c.script.key(i); got.Val() {
		case "", "none", want.Type:
		default:
			key := shownKey(keyText(c.argv[3+i]))
			return fmt.Sprintf("key %q (%s) holds a %s, not a %s", key, want.Name, got.Val(), want.Type)
		}
	}
	return ""
}
