package rpc

import (
	"context"
	"sync/atomic"
	"time"
)

// CallInfo says which call a handler works on.
type CallInfo struct {
	// ID is the same at each attempt, and empty for a cast. It is unique on the bus,
	// except that a call with an idempotency key has the method and the key for its id.
	ID     string
	Method string
	// Attempt is 1 for the first node that has the call, 0 for a cast.
	Attempt int
}

type callKey struct{}

// CallFrom returns the call of a handler's context, or one that is derived from it.
func CallFrom(ctx context.Context) (info CallInfo, ok bool) {
	w, ok := ctx.Value(callKey{}).(*work)
	if !ok {
		return CallInfo{}, false
	}
	return CallInfo{ID: w.id, Method: w.method, Attempt: int(w.attempt)}, true
}

// MethodCounts are what a node has done for one method since it was made.
type MethodCounts struct {
	// Running are the handlers that run, Handled those that have returned, Failed those
	// of them with an error.
	Running int64 `json:"running"`
	Handled int64 `json:"handled"`
	Failed  int64 `json:"failed"`
	// Took is the time that the handlers that have returned took in all.
	Took time.Duration `json:"took_ns"`
}

// handlerCounts counts the handlers of one method.
type handlerCounts struct {
	running, handled, failed, took atomic.Int64
}

// count notes that a handler has returned.
func (t *handlerCounts) count(began time.Time, err error) {
	t.running.Add(-1)
	t.handled.Add(1)
	t.took.Add(int64(time.Since(began)))
	if err != nil {
		t.failed.Add(1)
	}
}

// countsLocked leaves out the methods that nobody has called.
func (b *Bus) countsLocked(methods []string) map[string]MethodCounts {
	out := make(map[string]MethodCounts, len(methods))
	for _, name := range methods {
		t := b.served[name]
		c := MethodCounts{
			Running: t.running.Load(), Handled: t.handled.Load(), Failed: t.failed.Load(), Took: time.Duration(t.took.Load()),
		}
		if c.Running+c.Handled > 0 {
			out[name] = c
		}
	}
	return out
}

// awaitIdle waits until no handler runs and all answers are settled, d at most.
func (b *Bus) awaitIdle(d time.Duration) {
	if d <= 0 {
		return
	}
	over := time.NewTimer(d)
	defer over.Stop()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for !b.idle() {
		select {
		case <-look.C:
		case <-over.C:
			return
		}
	}
}

func (b *Bus) idle() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.works) == 0 && b.busy.Load() == 0
}
