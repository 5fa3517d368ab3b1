package observe

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/queue"
	"github.com/luatomic/luatomic/rpc"
)

// Log writes events to a logger. A success has the level Debug, what is tried again Info, a lost lease and a failed
// call Warn, a dead job Error. Its methods are safe for concurrent use.
type Log struct{ to *slog.Logger }

// NewLog returns a Log; a nil logger means that nothing is written.
func NewLog(to *slog.Logger) *Log {
	if to == nil {
		to = slog.New(slog.DiscardHandler)
	}
	return &Log{to}
}

// Job is for [queue.Options.Observe]. It writes one line at the end of each delivery.
func (l *Log) Job(e queue.Event) {
	level, text := jobLine(e.Outcome)
	ctx := context.Background()
	if !l.to.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{
		slog.String("queue", e.Queue), slog.String("job", e.ID), slog.Int("attempt", e.Attempt),
		slog.String("outcome", string(e.Outcome)), seconds("wait", e.Wait), seconds("run", e.Run),
	}
	if e.Tag != "" {
		attrs = append(attrs, slog.String("tag", e.Tag))
	}
	if e.Kind != "" {
		attrs = append(attrs, slog.String("kind", e.Kind))
	}
	if e.Outcome == queue.OutcomeRetried {
		attrs = append(attrs, seconds("retry", e.Retry))
	}
	if p := new(lua.PanicError); errors.As(e.Err, &p) {
		attrs = append(attrs, slog.String("stack", cut(string(p.Stack), maxStack)))
	}
	l.to.LogAttrs(ctx, level, text, withError(attrs, e.Err)...)
}

func jobLine(o queue.Outcome) (slog.Level, string) {
	switch o {
	case queue.OutcomeAcked:
		return slog.LevelDebug, "job done"
	case queue.OutcomeRetried:
		return slog.LevelInfo, "job is delivered again"
	case queue.OutcomeDead:
		return slog.LevelError, "job is dead"
	case queue.OutcomeLost:
		return slog.LevelWarn, "job's lease was lost"
	case queue.OutcomeCancelled:
		return slog.LevelInfo, "job was cancelled"
	case queue.OutcomeExpired:
		return slog.LevelInfo, "job expired"
	}
	return slog.LevelWarn, "job ended"
}

// Lock is for [lock.Options.Observe]. It writes one line for each event of a lock.
func (l *Log) Lock(e lock.Event) {
	level, attrs := slog.LevelDebug, []slog.Attr{slog.String("lock", e.Name)}
	switch e.Kind {
	case lock.EventAcquired:
		attrs = append(attrs, seconds("wait", e.Wait))
	case lock.EventQueued:
		attrs = append(attrs, slog.Int("waiting", e.Waiting))
	case lock.EventReleased:
		attrs = append(attrs, seconds("held", e.Held))
	case lock.EventLost:
		level, attrs = slog.LevelWarn, append(attrs, seconds("held", e.Held))
	}
	l.to.LogAttrs(context.Background(), level, "lock "+e.Kind.String(), withError(attrs, e.Err)...)
}

// Served is for [rpc.Options].Wrap. It writes one line for each call that this node has run, also if the handler
// panicked.
func (l *Log) Served(ctx context.Context, call rpc.CallInfo, next func(context.Context) error) error {
	return timed(ctx, next, errHandler, func(took time.Duration, err error) {
		l.call(ctx, "call served", call.Method, took, err, slog.Int("attempt", call.Attempt))
	})
}

// Called is for [rpc.Options].WrapCall. It writes one line for each call that this process has made, also if the call
// panicked, in an inner interceptor or a codec.
func (l *Log) Called(ctx context.Context, call *rpc.Outgoing, next func(context.Context) error) error {
	return timed(ctx, next, errCall, func(took time.Duration, err error) {
		l.call(ctx, "call made", call.Method, took, err, slog.String("node", call.Answer.Node))
	})
}

// call writes no id, because the id of a call with an idempotency key contains the key.
func (l *Log) call(ctx context.Context, text, method string, took time.Duration, err error, more slog.Attr) {
	level := slog.LevelDebug
	if err != nil {
		level = slog.LevelWarn
	}
	attrs := []slog.Attr{slog.String("method", method), seconds("took", took), more}
	l.to.LogAttrs(ctx, level, text, withError(attrs, err)...)
}

// Error is for the OnError of a queue's consumer and of a bus. It writes one line for each error of background work. It
// leaves out a [queue.JobError], because Job has it.
func (l *Log) Error(err error) {
	var job *queue.JobError
	if err == nil || errors.As(err, &job) {
		return
	}
	l.to.LogAttrs(context.Background(), slog.LevelWarn, "background work failed", withError(nil, err)...)
}

// seconds is a duration as a number with its unit in the name: a JSON handler writes a slog.Duration as bare
// nanoseconds.
func seconds(name string, d time.Duration) slog.Attr {
	return slog.Float64(name+"_seconds", d.Round(time.Microsecond).Seconds())
}

func withError(attrs []slog.Attr, err error) []slog.Attr {
	failed := ErrorType(err)
	if failed == "" {
		return attrs
	}
	return append(attrs, slog.String("error_type", failed), slog.String("error", errorText(err)))
}

// maxErrorText bounds the text of an error in a line, in bytes, and maxStack that of the stack of a panic.
const (
	maxErrorText = 1024
	maxStack     = 8192
)

// errorText returns the text of an error without the notes that some errors have, and bounds its length.
func errorText(err error) string {
	var held *lock.HeldError
	if errors.As(err, &held) {
		return lock.ErrHeld.Error() + ": " + held.Name
	}
	most := maxErrorText
	if p := new(lua.PanicError); errors.As(err, &p) && strings.Contains(err.Error(), string(p.Stack)) {
		most = maxStack
	}
	return cut(err.Error(), most)
}

// cut bounds the length of a text, between two characters.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	end := most
	for end > most-utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "..."
}
