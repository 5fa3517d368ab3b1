package rpc

import (
	"context"
	"time"
)

// Waiting counts what a bus keeps for calls that are not over.
func (b *Bus) Waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiters) + len(b.gathers) + len(b.works)
}

// Hears reports whether the node has heard its own word.
func (b *Bus) Hears() bool { return b.heard.Load() != 0 }

// Ups counts the confirmed subscriptions of this and other nodes after the first.
func (b *Bus) Ups() int64 { return b.ups.Load() }

// Deaf is how long the next link at which the node is not heard is left alone.
func (b *Bus) Deaf() time.Duration { return time.Duration(b.deaf.Load()) }

// RenewBindings lets all connections be as old as that they are bound anew.
func (b *Bus) RenewBindings(ctx context.Context) {
	b.mu.Lock()
	for connection := range b.bound {
		b.bound[connection] = time.Now().Add(-boundFor)
	}
	b.mu.Unlock()
	b.renew(ctx)
}
