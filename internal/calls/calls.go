// Package calls counts the calls of a client that can go on after their callers have left, so that its Close can refuse
// new ones and wait for the rest. A sync.WaitGroup cannot: a call that begins while Close waits would end the process.
package calls

import (
	"context"
	"sync"
	"time"
)

// Group is the calls of one client.
type Group struct {
	open context.Context // ends with Close
	end  context.CancelFunc

	mu   sync.Mutex
	n    int
	none chan struct{} // closed when the last one has ended; nil while there is none
}

// New returns a Group without calls.
func New() *Group {
	open, end := context.WithCancel(context.Background())
	return &Group{open: open, end: end}
}

// Begin counts a call, which needs an End. After Close it returns false, and counts nothing.
func (g *Group) Begin() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.over() {
		return false
	}
	g.count()
	return true
}

// Add counts a call that is made after Close, too, and reports whether this is after Close. It needs an End.
func (g *Group) Add() (closed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.count()
	return g.over()
}

// Bind returns a context that ends with ctx, and with Close, which is the cause given then. free ends it.
func (g *Group) Bind(ctx context.Context, closed error) (bound context.Context, free func()) {
	bound, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(g.open, func() { cancel(closed) })
	return bound, func() {
		stop()
		cancel(nil)
	}
}

func (g *Group) over() bool { return g.open.Err() != nil }

func (g *Group) count() {
	if g.n == 0 {
		g.none = make(chan struct{})
	}
	g.n++
}

// End is the end of a call that was counted.
func (g *Group) End() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.n--; g.n == 0 {
		close(g.none)
		g.none = nil
	}
}

// Close refuses calls from now on. The channel is closed when those that are under way have ended. A second Close
// returns the channel of those that are under way then.
func (g *Group) Close() (none <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.end()
	if g.n == 0 {
		return g.open.Done()
	}
	return g.none
}

// Closed is closed by Close.
func (g *Group) Closed() <-chan struct{} { return g.open.Done() }

// closeMost is how long a Close waits for what is under way.
const closeMost = 500 * time.Millisecond

// Await waits for the channel of Close, half a second at most: a server that does not answer holds up nobody.
func Await(none <-chan struct{}) {
	timer := time.NewTimer(closeMost)
	defer timer.Stop()
	select {
	case <-none:
	case <-timer.C:
	}
}
