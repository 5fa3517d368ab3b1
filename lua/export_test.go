package lua

import (
	"context"
	"time"
)

// What tests cannot see through the public API.
const Patience = patience

// Slot is the cluster slot of a key.
func Slot(key string) int { return int(slot(hashTag(key))) }

// PassAfter tells whether a call that has been tried for so long may be tried again.
func PassAfter(ctx context.Context, tried time.Duration) bool {
	p := pause{start: time.Now().Add(-tried), wait: firstWait}
	return p.pass(ctx, false)
}

// Decode runs a decoder over a reply that came from no server.
func Decode[T any](script string, reply any, decode func(*Reply) T) (T, error) {
	c := &Call{script: &Script{Name: script}}
	c.cmd.SetVal(reply)
	return decodeCall(c, decode)
}
