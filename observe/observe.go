// Package observe turns what queues, locks and buses report into log lines and measurements. Without it the library
// logs and counts nothing.
//
//	log, meter := observe.NewLog(slog.Default()), observe.NewMeter(recorder, nil)
//	queue.New(client, "mail", &queue.Options{Observe: observe.Each(log.Job, meter.Job)})
//	lock.New(client, &lock.Options{Observe: observe.Each(log.Lock, meter.Lock)})
//	bus := &rpc.Options{OnError: log.Error}
//	bus.Wrap, bus.WrapCall = append(bus.Wrap, log.Served), append(bus.WrapCall, log.Called)
//
// Measurements go to a [Recorder]. The modules github.com/luatomic/luatomic/otel and
// github.com/luatomic/luatomic/prometheus have one each. [Instruments] returns the names that they share.
//
// Log lines and measurements show names: of queues, kinds, locks, methods and nodes, and the ids of jobs. They never
// show bodies, values of headers, tokens, idempotency keys, unique names and notes of locks. The text of an error comes
// from the handler, perhaps on another node. A log line has it; a measurement and a span do not.
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

// Each returns a function that passes an event to each of fs, in order. It leaves out functions that are nil. If all
// are nil, the result is nil.
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

// ErrorType returns a short name for an error, one of a few: "" for nil and for a [queue.Snooze], "declined",
// "timeout", "cancelled", "lease_lost", "held", "full", "no_responder", "overloaded", "node_lost", "not_executed",
// "outcome_unknown", the code of an [rpc.RemoteError] that is a plain word, and "error". It never contains text of the
// error.
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
	{queue.ErrDeclined, "declined"}, {queue.ErrTimeout, "timeout"},
	{queue.ErrLeaseLost, "lease_lost"}, {lock.ErrLost, "lease_lost"},
	{lock.ErrHeld, "held"}, {queue.ErrFull, "full"},
	{rpc.ErrNoResponders, "no_responder"}, {rpc.ErrNodeLost, "node_lost"}, {rpc.ErrOverloaded, "overloaded"},
	{context.DeadlineExceeded, "timeout"}, {context.Canceled, "cancelled"},
	{lua.ErrNotExecuted, "not_executed"}, {lua.ErrOutcomeUnknown, "outcome_unknown"},
}

// codeWord returns the code of a handler if it is a short identifier, else "error".
func codeWord(code string) string {
	const letters = "abcdefghijklmnopqrstuvwxyz_"
	if code == "" || len(code) > 32 || strings.Trim(code, letters) != "" {
		return "error"
	}
	return code
}
