package main

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/lua"
)

// outage reports on stderr that the server has stopped answering. The package asks it again, for seconds in a call and
// without an end in what lasts, so a command would wait without a message.
type outage struct {
	s      *session
	server string

	mu    sync.Mutex
	since time.Time // of the first call of a row that failed
	said  time.Time // when it was reported last; zero in a row that is not reported
	err   error     // of the last call of the row
}

// awayAfter is how long calls fail before that is reported: a connection that was cut is
// soon open again.
const awayAfter = time.Second

func (o *outage) DialHook(next redis.DialHook) redis.DialHook { return next }

func (o *outage) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		start := time.Now()
		err := next(ctx, cmd)
		o.ended(ctx, cmd, start, err)
		return err
	}
}

func (o *outage) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		start := time.Now()
		err := next(ctx, cmds)
		o.ended(ctx, cmds[len(cmds)-1], start, err)
		return err
	}
}

func (o *outage) ended(ctx context.Context, last redis.Cmder, start time.Time, err error) {
	away := isAway(err)
	switch {
	case away && ctx.Err() != nil, errors.Is(err, context.Canceled), errors.Is(err, redis.ErrClosed):
		return // the caller no longer waits: the server may have answered or not
	case !away && showsNothing(last.Name()):
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err = nil
	if away {
		o.err = err
	}
	switch now := time.Now(); {
	case !away:
		if !o.said.IsZero() {
			o.s.note("luatomic: %s answers again", o.server)
		}
		o.since, o.said = time.Time{}, time.Time{}
	case o.since.IsZero():
		o.since = start
		fallthrough
	case now.Sub(o.since) >= awayAfter && now.Sub(o.said) >= repeatAfter:
		if now.Sub(o.since) >= awayAfter {
			o.said = now
			o.s.note("luatomic: %s %s: %s; it is asked again", o.server, outageOf(err), oneLine(err))
		}
	}
}

// now is why the server serves no call at present, nil where it does.
func (o *outage) now() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// outageOf is what the server does not do.
func outageOf(err error) string {
	switch text := err.Error(); {
	case strings.HasPrefix(text, "READONLY"):
		return "is a replica and does not serve writes; name the master"
	case strings.HasPrefix(text, "NOREPLICAS"):
		return "has too few replicas to take writes; " + moreReplicas
	case isReply(err):
		return "does not serve"
	}
	return "does not answer"
}

func isReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

// showsNothing reports a command that a server answers which serves no call: a new connection greets a replica and a
// server that loads, and a subscription is asked for where all writes are refused.
func showsNothing(name string) bool {
	switch name {
	case "hello", "auth", "select", "client", "readonly", "pubsub":
		return true
	}
	return false
}

// isAway reports whether the server cannot serve now: the error, or what it wraps, is of a connection, or of a server
// that is not ready. A refusal is not that: the command reports it itself.
func isAway(err error) bool {
	switch {
	case err == nil, errors.Is(err, redis.ErrClosed), errors.Is(err, context.Canceled), errors.Is(err, lua.ErrBadReply):
		return false
	}
	var reply redis.Error
	if !errors.As(err, &reply) {
		return true
	}
	code, _, _ := strings.Cut(reply.Error(), " ")
	switch code {
	case "LOADING", "MASTERDOWN", "CLUSTERDOWN", "BUSY", "READONLY", "NOREPLICAS":
		return true
	}
	return false
}
