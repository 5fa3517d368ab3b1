package rpc

import (
	"sync/atomic"
	"time"

	rpcscript "github.com/luatomic/luatomic/gen/rpc"
)

// Stats count what a Bus has seen since New.
type Stats struct {
	Calls    int64 // calls made here
	Handled  int64 // requests whose handler ran here
	Late     int64 // replies of this node whose caller did not wait any more
	Repeated int64 // replies of this node that had been accepted before
	Stale    int64 // replies of this node after the call was given to another node, or lost
	Fetched  int64 // requests that this node had missed and fetched
	Resyncs  int64 // reads of the records after a broken connection
	Refused  int64 // frames that were malformed or not signed by a known key
}

type counters struct {
	calls, handled, late, repeated, stale, fetched, resyncs, refused atomic.Int64
}

// Stats returns the counters so far. It sends nothing.
func (b *Bus) Stats() Stats {
	c := &b.counts
	return Stats{
		Calls: c.calls.Load(), Handled: c.handled.Load(), Late: c.late.Load(), Repeated: c.repeated.Load(),
		Stale: c.stale.Load(), Fetched: c.fetched.Load(), Resyncs: c.resyncs.Load(), Refused: c.refused.Load(),
	}
}

// countReply counts a reply that changed nothing.
func (c *counters) countReply(outcome rpcscript.ReplyResult) {
	switch outcome {
	case rpcscript.ReplyResultMissing:
		c.late.Add(1)
	case rpcscript.ReplyResultDuplicate:
		c.repeated.Add(1)
	case rpcscript.ReplyResultStale:
		c.stale.Add(1)
	}
}

// MethodCounts are what a node has done for one method since New.
type MethodCounts struct {
	// Running is how many handlers run now, Handled how many have returned, Failed how many of these returned an error.
	Running int64 `json:"running"`
	Handled int64 `json:"handled"`
	Failed  int64 `json:"failed"`
	// Took is the sum of the times that the returned handlers took.
	Took time.Duration `json:"took_ns"`
}

// handlerCounts counts the handlers of one method.
type handlerCounts struct {
	running, handled, failed, took atomic.Int64
}

// returned records that a handler has returned.
func (t *handlerCounts) returned(began time.Time, err error) {
	t.running.Add(-1)
	t.handled.Add(1)
	t.took.Add(int64(time.Since(began)))
	if err != nil {
		t.failed.Add(1)
	}
}

func (t *handlerCounts) read() MethodCounts {
	return MethodCounts{
		Running: t.running.Load(), Handled: t.handled.Load(), Failed: t.failed.Load(),
		Took: time.Duration(t.took.Load()),
	}
}
