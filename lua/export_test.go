package lua

import (
	"context"
	"time"
)

// Internals for the tests.
const RetryBudget = retryBudget

// Slot is the cluster slot of a key.
func Slot(key string) int { return int(slot(hashTag(key))) }

// PassAfter reports whether a call that has been tried for so long may be retried.
func PassAfter(ctx context.Context, tried time.Duration) bool {
	p := pause{start: time.Now().Add(-tried), wait: firstWait}
	return p.pass(ctx, false)
}

// Decode runs a decoder over a reply without a server.
func Decode[T any](script string, reply any, decode func(*Reply) T) (T, error) {
	c := &Call{script: &Script{Name: script}}
	c.cmd.SetVal(reply)
	return decodeCall(c, decode)
}
