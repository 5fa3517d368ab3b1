package lua

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// Internals for the tests.
const RetryBudget = retryBudget

// ShownKey is a key as an error shows it.
func ShownKey(key string) string { return shownKey(key) }

// Slot is the cluster slot of a key.
func Slot(key string) int { return int(slot(hashTag(key))) }

// PassAfter reports whether a call that has been tried for so long may be retried.
func PassAfter(ctx context.Context, tried time.Duration) bool {
	p := pause{start: time.Now().Add(-tried), wait: firstWait}
	return p.pass(ctx, false)
}

// Attempt makes one attempt for the calls in one round trip that they share. The error of a call with a reply is nil.
func Attempt(ctx context.Context, client Client, calls ...*Call) (errs []error) {
	trips := make([]trip, len(calls))
	for i, c := range calls {
		c.begin()
		trips[i] = trip{c, client, sharingOf(client)}
	}
	sendTrips(ctx, trips)
	for _, c := range calls {
		c.record(ctx, client, c.cmd.Err(), 1)
		if c.done {
			errs = append(errs, nil)
		} else {
			errs = append(errs, c.failure)
		}
	}
	return errs
}

// Decode runs a decoder over a reply without a server.
func Decode[T any](script string, reply any, decode func(*Reply) T) (T, error) {
	c := &Call{script: &Script{Name: script}}
	c.cmd.SetVal(reply)
	return decodeCall(c, decode)
}

// Args returns the arguments of a command as text and numbers, with the script as its digest. The runtime passes most
// of them by reference.
func Args(cmd redis.Cmder) []any {
	args := cmd.Args()
	out := make([]any, len(args))
	for i, arg := range args {
		switch v := arg.(type) {
		case *string:
			out[i] = *v
		case *int64:
			out[i] = *v
		case []byte:
			out[i] = string(v)
		case *raw:
			out[i] = string(*v)
		case *program:
			out[i] = v.file().SHA
		default:
			out[i] = arg
		}
	}
	return out
}
