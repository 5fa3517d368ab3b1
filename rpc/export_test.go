package rpc

import (
	"context"
	"time"
)

// The largest frame that is published, the smallest body that travels by itself, and the most that an error carries.
const (
	InlineMax  = inlineMax
	BesideMin  = besideMin
	MaxDetails = maxDetails
)

// Waiting counts what a bus keeps for calls that are not over.
func (b *Bus) Waiting() int {
	b.pending.mu.Lock()
	calls := len(b.pending.calls)
	b.pending.mu.Unlock()
	b.serving.mu.Lock()
	defer b.serving.mu.Unlock()
	return calls + len(b.serving.works)
}

// InFlight counts the calls that the choice of a node takes for unanswered.
func (b *Bus) InFlight() (n int) {
	b.directory.mu.Lock()
	defer b.directory.mu.Unlock()
	for _, p := range b.directory.peers {
		n += p.inFlight
	}
	return n
}

// Listings counts the methods whose nodes this caller knows, after none was called for a time.
func (b *Bus) Listings(idle time.Duration) int {
	b.directory.mu.Lock()
	defer b.directory.mu.Unlock()
	for _, l := range b.directory.methods {
		l.read = l.read.Add(-idle)
	}
	return len(b.directory.methods)
}

// ServerTime is what the bus takes for the server's clock.
func (b *Bus) ServerTime() time.Time { return time.UnixMilli(b.liveness.clock.after(0)) }

// ExpectsEcho reports whether the node has been reached once, and counts as unreachable without a further echo.
func (b *Bus) ExpectsEcho() bool { return b.liveness.echoed.Load() != 0 }

// Resubscribed counts the confirmed subscriptions of this and other nodes after the first.
func (b *Bus) Resubscribed() int64 { return b.liveness.resubscribed.Load() }

// ResetBackoff is how long the next link may go without a receiver before it is replaced.
func (b *Bus) ResetBackoff() time.Duration { return time.Duration(b.liveness.resetBackoff.Load()) }

// RenewBindings renews all connections as if they had been bound long ago.
func (b *Bus) RenewBindings(ctx context.Context) {
	b.bindings.mu.Lock()
	for connection := range b.bindings.bound {
		b.bindings.bound[connection] = time.Now().Add(-boundFor)
	}
	b.bindings.mu.Unlock()
	b.renewBindings(ctx)
}

// RenewDoubted does what a heartbeat does about connections.
func (b *Bus) RenewDoubted(ctx context.Context) { b.renewBindings(ctx) }

// DoubtEnds has the next heartbeat be the last that has the server agree about the connection.
func (b *Bus) DoubtEnds(connection string) {
	b.bindings.mu.Lock()
	defer b.bindings.mu.Unlock()
	b.bindings.doubted[connection] = time.Now().Add(-2 * doubtFor)
}

// Owns reports whether this node takes the connection for its own.
func (b *Bus) Owns(connection string) bool { return b.bindings.has(connection) }

// DueBindings is how many connections are due to be renewed.
func (b *Bus) DueBindings() int { return len(b.bindings.due()) }

// Answered reports whether all calls that are kept have their reply, as streams may that wait for parts.
func (b *Bus) Answered() bool {
	b.pending.mu.Lock()
	defer b.pending.mu.Unlock()
	for _, w := range b.pending.calls {
		if !w.hasOut {
			return false
		}
	}
	return len(b.pending.calls) > 0
}

// Refusals counts the refusals that calls which still wait have had.
func (b *Bus) Refusals() (n int) {
	b.pending.mu.Lock()
	defer b.pending.mu.Unlock()
	for _, w := range b.pending.calls {
		n += w.refusals
	}
	return n
}

// Oversleep has the bus take the server's clock for what it was so long ago, as after a sleep of the machine.
func (b *Bus) Oversleep(d time.Duration) { b.liveness.clock.offset.Add(-int64(d)) }
