package rpc

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/luatomic/luatomic/internal/wire"
)

// pending are the calls and gathers of this process that wait for answers, and what is to be done about them.
type pending struct {
	serial  atomic.Uint64 // numbers the calls
	arrived chan struct{} // asks to fetch the stored replies
	check   chan struct{} // asks to check all that waits

	mu       sync.Mutex
	calls    map[string]*waiter
	gathers  map[string]*gathering
	finished []string // records that are not needed any more
	stored   []string // ids whose reply is to be fetched
}

// outcome is a reply: a body, or an error.
type outcome struct {
	body []byte
	err  error
}

// waiter is a call that waits for its reply.
type waiter struct {
	id, record, method string

	idempotent bool // another node may run it
	stream     *stream
	answered   chan struct{} // closed when out is set
	next       *waiter       // another call of this process with the same idempotency key

	// Guarded by pending.mu.
	hasOut       bool
	out          outcome // the reply; it does not change once it is set
	node         string  // the node that was asked, once known
	since        time.Time
	resubscribed int64 // liveness.resubscribed when the call began
	quick        bool  // the request was sent for less time than go-redis waits before it sends again: there is one copy
}

func (p *pending) init() {
	p.arrived, p.check = make(chan struct{}, 1), make(chan struct{}, 1)
	p.calls, p.gathers = make(map[string]*waiter), make(map[string]*gathering)
}

// expect registers a waiter. It is registered before the request is sent, because the reply may be faster than the
// script's own answer.
func (p *pending) expect(w *waiter) {
	w.answered, w.since = make(chan struct{}), time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	w.next = p.calls[w.id]
	p.calls[w.id] = w
}

// forget ends the wait. It reports false when the reply has been delivered.
func (p *pending) forget(w *waiter) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := p.calls[w.id]
	if first == w {
		if w.next == nil {
			delete(p.calls, w.id)
		} else {
			p.calls[w.id] = w.next
		}
		return true
	}
	for v := first; v != nil; v = v.next {
		if v.next == w {
			v.next = w.next
			return true
		}
	}
	return false
}

// askedNode notes which node has the call. It reports whether a node subscribed anew meanwhile and may have missed it.
func (p *pending) askedNode(w *waiter, node string, resubscribed int64) (missed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.node, w.quick = node, time.Since(w.since) < quickly
	return node != "" && p.calls[w.id] == w && w.resubscribed != resubscribed
}

// moved notes that another node has the call.
func (p *pending) moved(id, node string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := p.calls[id]; w != nil; w = w.next {
		w.node = node
	}
}

// deliver hands a reply to all calls that wait for it. A reply that no call waits for is late, or was read from the
// record already.
func (p *pending) deliver(id string, out outcome) {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := p.calls[id]
	if first == nil || first.stream == nil { // a stream stays: its chunks may come after its reply
		delete(p.calls, id)
	}
	for w := first; w != nil; w = w.next {
		if !w.hasOut { // a stream may have it already
			w.out, w.hasOut = out, true
			close(w.answered)
		}
	}
}

// deliverPart hands one node's answer to its gather.
func (p *pending) deliverPart(f *wire.Part) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if g := p.gathers[f.ID]; g != nil {
		g.takeLocked(nodeOutcome{f.Node, outcome{f.Body, remoteError(f.Failure)}})
	}
}

// find returns one of the calls that wait for this reply: a copy, nil where there is none.
func (p *pending) find(id string) *waiter {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.calls[id]
	if w == nil {
		return nil
	}
	return &waiter{id: id, method: w.method, node: w.node, idempotent: w.idempotent}
}

// olderThan returns the ids of calls that wait for at least d.
func (p *pending) olderThan(d time.Duration) []string {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	ids := make([]string, 0, len(p.calls))
	for id, w := range p.calls {
		if now.Sub(w.since) >= d {
			ids = append(ids, id)
		}
	}
	return ids
}

// expectedFrom returns the ids of calls and gathers that this node should have.
func (p *pending) expectedFrom(node string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var ids []string
	for id, w := range p.calls {
		if w.node == node {
			ids = append(ids, id)
		}
	}
	for id, g := range p.gathers {
		if g.missing[node] {
			ids = append(ids, id)
		}
	}
	return ids
}

// markStored notes ids whose reply was too large to be published.
func (p *pending) markStored(ids []string) {
	p.mu.Lock()
	p.stored = append(p.stored, ids...)
	p.mu.Unlock()
	offer(p.arrived)
}

// takeStored returns the calls and gathers of the ids that were noted and still wait.
func (p *pending) takeStored() (calls []string, gathers []*gathering) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ids := p.stored
	p.stored = nil
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		if g := p.gathers[id]; g != nil {
			gathers = append(gathers, g)
		} else if p.calls[id] != nil {
			calls = append(calls, id)
		}
	}
	return calls, gathers
}

// quickly is shorter than any time-out after which go-redis sends a request again. After a longer round trip the first
// copy may still be on its way, and would run if it did not find its record. So the records of slower calls are left to
// expire.
const quickly = 200 * time.Millisecond

// maxFinished bounds the records that wait to be removed; those beyond it expire.
const maxFinished = 20_000

// discard notes records that are not needed any more. The next call removes them.
func (p *pending) discard(keys ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.finished) >= maxFinished {
		return
	}
	if len(p.finished)+len(keys) > cap(p.finished) {
		p.finished = slices.Grow(p.finished, 64) // taking from the front uses up its capacity
	}
	p.finished = append(p.finished, keys...)
}

// takeFinished removes at most n records from the front.
func (p *pending) takeFinished(n int) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	n = min(n, len(p.finished))
	records := p.finished[:n:n]
	p.finished = p.finished[n:]
	return records
}
