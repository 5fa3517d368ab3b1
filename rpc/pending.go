package rpc

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/luatomic/luatomic/internal/wire"
)

// pending has the calls of this process that wait for answers, and what is to be done about them.
type pending struct {
	serial  atomic.Uint64 // numbers the calls
	arrived chan struct{} // asks to fetch the stored parts
	check   chan struct{} // asks to check all that waits

	mu       sync.Mutex
	calls    map[string]*waiter
	closed   error    // why no call is registered: Run has ended
	finished []string // records that are not needed any more
	stored   []string // ids of streams whose parts are to be fetched
}

// outcome is a reply: a body, or an error.
type outcome struct {
	body []byte
	err  error
	ext  wire.Ext
}

// waiter is a call that waits for its reply. It ends by exactly one of finish and giveUp.
type waiter struct {
	outgoing
	first      sending // of its search for a node
	id, record string
	frame      []byte // the request, signed
	beside     []byte // its body, where that travels by itself
	besideID   string // names it then
	put        bool   // the server has not refused it, so that it may be there; for who looks for a node
	digest     string // of the body, where other callers may name the record
	deadline   time.Time

	stream   *stream
	answered chan struct{}         // closed when out is set
	notify   chan<- *waiter        // gets the waiter then
	next     *waiter               // another call of this process with the same idempotency key
	failed   atomic.Pointer[error] // why the server has not run the last script that sends it, or looks for a node
	gone     atomic.Bool           // nobody waits for it any more: its caller has left, or Run has ended

	// Guarded by pending.mu.
	hasOut       bool
	out          outcome // the reply; it does not change once it is set
	node         string  // the node that has the request, once known
	since        time.Time
	resubscribed int64    // liveness.resubscribed when the request was sent
	placing      bool     // a node is being looked for
	placeAgain   bool     // the one that was found has refused it already
	resent       bool     // copies of the request may still be on their way
	taken        bool     // the caller has the outcome
	tried        []string // nodes that have refused it or are dead
	refused      error    // why the last of them did
	refusals     int      // how often that was
	ran          bool     // a node that is lost may have run it

	counted *peer // where it counts as in flight; guarded by directory.mu
}

func (p *pending) init() {
	p.arrived, p.check = make(chan struct{}, 1), make(chan struct{}, 1)
	p.calls = make(map[string]*waiter)
}

// expect registers a waiter, before the request is sent, because the reply may be faster than the script's own answer.
// If no reply can come any more, the wait ends here and nothing is sent.
func (p *pending) expect(w *waiter) {
	w.answered, w.since = make(chan struct{}), time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed != nil {
		w.setLocked(outcome{err: p.closed})
		return
	}
	w.next = p.calls[w.id]
	p.calls[w.id] = w
}

// forget ends the wait. It reports false when the reply has been delivered.
func (p *pending) forget(w *waiter) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.gone.Store(true)
	return p.removeLocked(w)
}

func (p *pending) removeLocked(w *waiter) bool {
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

// startPlacing reports whether this goroutine should look for a node now. The call must wait, and only one goroutine
// looks. The others let that one look again: the refusal may be faster than the server's answer to the script that sent
// the request.
func (p *pending) startPlacing(w *waiter) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.hasOut || w.gone.Load() {
		return false
	}
	w.placeAgain = w.placing
	w.placing = true
	return !w.placeAgain
}

// placement is what to do for a call after the search for its node.
type placement struct {
	missed bool // a node subscribed anew meanwhile and may have missed the request
	over   bool // its records are: the caller took the reply before the search knew that the request had arrived
	again  bool // the node has refused it
}

// placed records which node has the call. When the search ended without a node, it keeps the last one.
func (p *pending) placed(w *waiter, node string, resubscribed int64) placement {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := placement{
		missed: node != "" && p.calls[w.id] != nil && w.resubscribed != resubscribed,
		over:   w.taken && !w.resent,
		again:  w.placeAgain,
	}
	w.placing, w.placeAgain, w.node = false, false, cmp.Or(node, w.node)
	return at
}

// take records that the caller has the outcome. It reports whether the records of the call can be removed, because no
// copy of the request is on its way.
func (p *pending) take(w *waiter) (over bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.taken = true
	return !w.resent && !w.placing
}

// isOver reports whether the call has its outcome, or nobody waits for it.
func (p *pending) isOver(w *waiter) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return w.hasOut || w.gone.Load()
}

// noteResent records that copies of the request may still be on their way. The record of the call then stays until it
// expires.
func (p *pending) noteResent(w *waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.resent = true
}

// search is what a waiter knows about the nodes of its call.
type search struct {
	tried    []string
	refused  error
	refusals int
	ran      bool
	resent   bool
	sent     bool // a node was found for the call before, or may have it, so that its record decides
}

func (p *pending) search(w *waiter) search {
	p.mu.Lock()
	defer p.mu.Unlock()
	sent := w.node != "" || len(w.tried) > 0 || w.resent
	return search{slices.Clone(w.tried), w.refused, w.refusals, w.ran, w.resent, sent}
}

// NoteFailed keeps why a script was not run, which is repeated.
func (s *sending) NoteFailed(err error) { s.w.failed.Store(&err) }

// whyUnsent says why no attempt to send a call was answered with a node that has it, as far as that is known. It is
// only text: an attempt that is on its way may still give the call to a node.
func (p *pending) whyUnsent(w *waiter) string {
	why := w.failed.Load()
	if why == nil || p.search(w).sent {
		return ""
	}
	return fmt.Sprintf("; before that, an attempt to send it failed: %v", *why)
}

// refuse records that a node did not take a call, or left it. It returns the waiters. Each of them looks for another
// node, because the search of one waiter can end without a node.
func (p *pending) refuse(id, node string, cause error, ran bool) (waiters []*waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := p.calls[id]; w != nil; w = w.next {
		if node != "" && !slices.Contains(w.tried, node) {
			w.tried = append(w.tried, node)
		}
		w.ran = w.ran || ran
		w.refused = cause
		w.refusals++
		waiters = append(waiters, w)
	}
	return waiters
}

// deliver passes a reply to all calls that wait for it. A reply that no call waits for is late, or was already read
// from the record. A call with the same key and another body gets no reply here, because the server refuses it.
func (p *pending) deliver(id string, out outcome) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := p.calls[id]; w != nil; {
		next := w.next
		if of := out.ext.Digest; of == "" || of == w.digest {
			if w.stream == nil { // a stream stays: its chunks may come after its reply
				p.removeLocked(w)
			}
			w.setLocked(out)
		}
		w = next
	}
}

// fail ends the wait of one call with an error.
func (p *pending) fail(w *waiter, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failLocked(w, err)
}

// lose ends the wait of a call with an error, if the same node still has it.
func (p *pending) lose(call atNode, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if call.waiter.node == call.node && !call.placing {
		p.failLocked(call.waiter, err)
	}
}

func (p *pending) failLocked(w *waiter, err error) {
	if w.hasOut || w.gone.Load() {
		return
	}
	if w.stream == nil {
		p.removeLocked(w)
	}
	w.setLocked(outcome{err: err})
}

func (w *waiter) setLocked(out outcome) {
	if w.hasOut { // a stream may have it already
		return
	}
	w.out, w.hasOut = out, true
	close(w.answered)
	if w.notify != nil {
		w.notify <- w
	}
}

// methodOf returns the method of a call that waits, for messages.
func (p *pending) methodOf(id string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.calls[id]; w != nil {
		return w.method
	}
	return ""
}

// atNode is a call and the node that has it.
type atNode struct {
	*waiter
	node string
}

// atNodes returns the calls of an id that a node has. It leaves out those whose request is on its way to the server.
func (p *pending) atNodes(id string) (calls []atNode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := p.calls[id]; w != nil; w = w.next {
		if w.node != "" && !w.placing {
			calls = append(calls, atNode{w, w.node})
		}
	}
	return calls
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

// expectedFrom returns the ids of calls that this node should have.
func (p *pending) expectedFrom(node string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var ids []string
	for id, w := range p.calls {
		if w.node == node {
			ids = append(ids, id)
		}
	}
	return ids
}

// byNode returns the calls that nodes have.
func (p *pending) byNode() map[string][]*waiter {
	p.mu.Lock()
	defer p.mu.Unlock()
	nodes := make(map[string][]*waiter)
	for _, w := range p.calls {
		if w.node != "" && !w.placing && !w.hasOut {
			nodes[w.node] = append(nodes[w.node], w)
		}
	}
	return nodes
}

// abandon ends all calls and refuses new ones until reopen, because the bus ends. It returns the calls that waited.
func (p *pending) abandon(err, refused error) []*waiter {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = refused
	var all []*waiter
	for id, first := range p.calls {
		delete(p.calls, id)
		for w := first; w != nil; w = w.next {
			w.setLocked(outcome{err: err})
			w.gone.Store(true)   // its request is not sent again
			if w.stream != nil { // it may have its reply and wait for parts
				w.stream.end(err)
				offer(w.stream.changed)
			}
			all = append(all, w)
		}
	}
	return all
}

func (p *pending) reopen() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = nil
}
