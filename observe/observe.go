// Package observe turns what queues, locks and buses report into log lines and measurements. Without it the library
// logs and counts nothing.
//
//	log, meter := observe.NewLog(slog.Default()), observe.NewMeter(recorder, nil)
//	queue.New(client, "mail", &queue.Options{Observe: observe.Each(log.Job, meter.Job)})
//	lock.New(client, &lock.Options{Observe: observe.Each(log.Lock, meter.Lock)})
//	bus := &rpc.Options{OnError: log.Error}
//	bus.Wrap, bus.WrapCall = append(bus.Wrap, log.Served), append(bus.WrapCall, log.Called)
//
// A [Recorder] is where measurements go. The modules github.com/luatomic/luatomic/otel and
// github.com/luatomic/luatomic/prometheus have one each; [Instruments] are the names that they share.
//
// Names are shown: of queues, kinds, locks, methods and nodes, and the ids of jobs. Bodies, values of headers, tokens,
// idempotency keys, unique names and notes of locks are never shown. The text of an error is the handler's own, also
// that of another node: a log line has it, a measurement and a span do not.
package observe

import (
	"context"
	"errors"
	"strings"

	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/queue"
	"github.com/luatomic/luatomic/rpc"
)

// Each returns a function that passes an event to each of fs in order. Functions that are nil are left out; where all
// are nil, so is the result.
func Each[E any](fs ...func(E)) func(E) {
	var all []func(E)
	for _, f := range fs {
		if f != nil {
			all = append(all, f)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return func(e E) {
		for _, f := range all {
			f(e)
		}
	}
}

// ErrorType is a short name for an error, one of few: "" for nil and for a [queue.Snooze], "timeout", "cancelled",
// "lease_lost", "held", "full", "no_responder", "overloaded", "node_lost", "not_executed", "outcome_unknown", the code
// of an [rpc.RemoteError] that is a plain word, and "error". It never has text of the error.
func ErrorType(err error) string {
	var remote *rpc.RemoteError
	switch {
	case err == nil, errors.Is(err, queue.ErrSnoozed):
		return ""
	case errors.As(err, &remote):
		return codeWord(remote.Code)
	}
	for _, t := range errorTypes {
		if errors.Is(err, t.is) {
			return t.name
		}
	}
	return "error"
}

var errorTypes = []struct {
	is   error
	name string
}{
	{queue.ErrTimeout, "timeout"}, {queue.ErrLeaseLost, "lease_lost"}, {lock.ErrLost, "lease_lost"},
	{lock.ErrHeld, "held"}, {queue.ErrFull, "full"},
	{rpc.ErrNoResponders, "no_responder"}, {rpc.ErrNodeLost, "node_lost"}, {rpc.ErrOverloaded, "overloaded"},
	{context.DeadlineExceeded, "timeout"}, {context.Canceled, "cancelled"},
	{lua.ErrNotExecuted, "not_executed"}, {lua.ErrOutcomeUnknown, "outcome_unknown"},
}

// codeWord is the code of a handler if that is a short identifier, else "error".
func codeWord(code string) string {
	const letters = "abcdefghijklmnopqrstuvwxyz_"
	if code == "" || len(code) > 32 || strings.Trim(code, letters) != "" {
		return "error"
	}
	return code
}
