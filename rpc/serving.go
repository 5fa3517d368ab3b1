package rpc

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	rpcscript "github.com/luatomic/luatomic/gen/rpc"
	"github.com/luatomic/luatomic/internal/clock"
	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/internal/send"
	"github.com/luatomic/luatomic/internal/wire"
	"github.com/luatomic/luatomic/lua"
)

// serving are the methods that this node serves and the requests that it works on.
type serving struct {
	running atomic.Int64 // handlers that run

	mu      sync.Mutex
	methods map[string]*served
	version int // of methods
	// withdrawn are methods that a late copy of a heartbeat may announce again, and since when.
	withdrawn map[string]time.Time
	works     map[string]*work // by id, until their answer is sent
	leaving   bool             // the node announces no methods any more
	closing   bool             // the node takes no requests any more
}

type handler func(ctx context.Context, w *work) ([]byte, error)

// served is a method of this node. It stays after the method is withdrawn, because handlers may still run and the
// method may be served again. run and opts are guarded by serving.mu.
type served struct {
	run    handler // nil where it is withdrawn
	opts   ServeOptions
	counts handlerCounts
}

func (s *serving) init() {
	s.methods, s.works = make(map[string]*served), make(map[string]*work)
	s.withdrawn = make(map[string]time.Time)
}

// maxDescribed bounds the texts about one method.
const maxDescribed = 1024

func noHandler(method string) error {
	return fmt.Errorf("luatomic: serve %q: no handler is given, and each call would fail; pass a function", method)
}

func (b *Bus) serve(method string, opts *ServeOptions, run handler) error {
	if err := keys.CheckName("method name", method); err != nil {
		return fmt.Errorf("luatomic: %w", err)
	}
	var o ServeOptions
	if opts != nil {
		o = *opts
	}
	if n := len(o.Description) + len(o.Version); n > maxDescribed {
		err := &lua.SizeError{What: "description and version", N: n, Max: maxDescribed, Unit: "bytes"}
		return fmt.Errorf("luatomic: serve %q: %w", method, err)
	}
	b.serving.handle(method, o, run)
	offer(b.liveness.heartbeat)
	return nil
}

func (s *serving) handle(method string, opts ServeOptions, run handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.methods[method] == nil {
		s.methods[method] = &served{}
	}
	s.methods[method].run, s.methods[method].opts = run, opts
	delete(s.withdrawn, method)
	s.version++
}

// unserve withdraws a method. No heartbeat that still names it may follow.
func (b *Bus) unserve(ctx context.Context, method string) error {
	if err := keys.CheckName("method name", method); err != nil {
		return fmt.Errorf("luatomic: %w", err)
	}
	ctx, cancel := clock.Outlast(ctx)
	defer cancel()
	if !b.liveness.lock(ctx) {
		return fmt.Errorf("luatomic: withdraw %q: it is still served; call Unserve again: %w", method,
			endOf(ctx))
	}
	defer offer(b.liveness.heartbeat) // it gives the server this version of the methods, which Ready waits for
	defer b.liveness.unlock()
	b.serving.remove(method)
	if err := b.unannounce(ctx, method); err != nil {
		return fmt.Errorf("luatomic: withdraw %q: calls may still be sent here, where they are refused; the next "+
			"heartbeat withdraws it, or call Unserve again: %w", method, err)
	}
	return nil
}

// unannounce makes the server forget that the node serves the methods.
func (b *Bus) unannounce(ctx context.Context, methods ...string) error {
	again := send.Resent(false)
	_, err := rpcscript.Leave(send.WatchResent(ctx, &again), b.client, rpcscript.LeaveParams{
		Nodes: b.keys.Nodes, About: b.keys.About, Methods: b.keys.Methods, Serves: b.keys.Serves,
		Node: b.Node(), Stay: true, Names: methods,
	})
	b.liveness.doubt(err != nil || bool(again))
	return err
}

// withdrawAgain withdraws again the methods that a heartbeat may have announced again at the server.
func (b *Bus) withdrawAgain(ctx context.Context) error {
	for methods := range slices.Chunk(b.serving.withdrawals(), maxKeys) {
		if b.liveness.doubts() {
			if err := b.unannounce(ctx, methods...); err != nil {
				return fmt.Errorf("luatomic: withdraw methods on bus %q: %w", b.name, err)
			}
		}
		b.serving.agreed(methods)
	}
	return nil
}

// withdrawals returns the methods that a late copy of a heartbeat may announce again.
func (s *serving) withdrawals() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.withdrawn))
}

// agreed records that the server has forgotten the methods. After doubtFor, no copy of a heartbeat that names one is on
// its way.
func (s *serving) agreed(methods []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, method := range methods {
		if time.Since(s.withdrawn[method]) > doubtFor {
			delete(s.withdrawn, method)
		}
	}
}

func (s *serving) remove(method string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.methods[method]; m != nil {
		m.run = nil
	}
	s.withdrawn[method] = time.Now()
	s.version++
}

// announced returns the names of the methods and their version. A node that leaves has none: it stays until its
// handlers are done, and gets no more calls.
func (s *serving) announced() (names []string, version int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leaving {
		return nil, s.version
	}
	return s.namesLocked(), s.version
}

// namesLocked returns the methods that are served, in order.
func (s *serving) namesLocked() (names []string) {
	for name, m := range s.methods {
		if m.run != nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (s *serving) isLeaving() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leaving
}

// any reports whether the node serves a method.
func (s *serving) any() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.namesLocked()) > 0
}

// setState moves the node between its three states: it serves, it leaves, it takes no more requests. A node that leaves
// withdraws its methods: the server does not have this version of them until the next Run sends it.
func (s *serving) setState(leaving, closing bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if leaving && !s.leaving {
		s.version++
	}
	s.leaving, s.closing = leaving, closing
}

// take registers a request. It reports false for a request that the node already has. It reports false for a fetched
// request whose reservation is gone: the request has come in another way, perhaps was answered since and reserved
// again, or it was cancelled. It reports false when the node is closing: the caller sees that the node has left. A
// request with another body is another request: the server has lost the record of the key, and refuses the answer to
// the request before.
func (s *serving) take(run *session, w, fetched *work) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.works[w.ID]
	has := known != nil && !known.reserved && w.Attempt > 0 && known.Attempt >= w.Attempt &&
		known.Ext.Digest == w.Ext.Digest
	cancelled := known != nil && known.reserved && known.err != nil
	if s.closing || has || cancelled || fetched != nil && fetched != known {
		return false
	}
	run.handlers.Add(1)
	if w.Attempt > 0 {
		s.works[w.ID] = w
	}
	if w.method = s.methods[w.Method]; w.method != nil {
		w.run = w.method.run
	}
	return true
}

// claim assigns one of the handlers to a request. If none is left, it returns the handler that refuses the request.
func (b *Bus) claim(w *work) (refuses handler) {
	if w.run == nil {
		return failWith(CodeNoMethod, "this node does not serve the method")
	}
	if c := w.Ext.Connection; c != "" && !b.bindings.has(c) {
		return failWith(CodeNotOwner, "the node does not own the connection any more")
	}
	if b.serving.running.Add(1) > int64(b.opts.Concurrency) {
		b.serving.running.Add(-1)
		return failWith(CodeOverloaded, "all handlers of the node are busy")
	}
	most := int64(b.serving.limit(w.method))
	if n := w.method.counts.running.Add(1); most > 0 && n > most {
		w.method.counts.running.Add(-1)
		b.serving.running.Add(-1)
		return failWith(CodeOverloaded, "all handlers of the method on the node are busy")
	}
	w.slot = true
	return nil
}

func (s *serving) limit(m *served) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return m.opts.Concurrency
}

// free records that the handler of a request has returned.
func (w *work) free(began time.Time, err error) {
	if !w.slot {
		return
	}
	w.bus.serving.running.Add(-1)
	w.method.counts.returned(began, err)
	w.bus.counts.handled.Add(1)
}

// leavingLoad is the load of a node that must get no more requests.
const leavingLoad = 999

// load is how busy this node is, in thousandths.
func (b *Bus) load() uint64 {
	if b.serving.isLeaving() {
		return leavingLoad
	}
	running := min(max(b.serving.running.Load(), 0), int64(b.opts.Concurrency))
	return uint64(running) * (leavingLoad - 1) / uint64(b.opts.Concurrency)
}

// reserve reserves the ids of requests that are to be fetched, so that none is fetched twice at the same time. It
// returns the reserved requests: those that the node does not have.
func (b *Bus) reserve(run *session, ids []string) (unknown []*work) {
	s := &b.serving
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		if s.works[id] == nil {
			w := b.newWork(run, &wire.Request{ID: id, Left: time.Hour})
			w.reserved = true
			s.works[id] = w
			unknown = append(unknown, w)
		}
	}
	return unknown
}

// release gives up the reserved ids of requests that could not be fetched.
func (s *serving) release(reserved []*work) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range reserved {
		if s.works[w.ID] == w {
			delete(s.works, w.ID)
		}
	}
}

// answered forgets a request whose answer is sent.
func (s *serving) answered(w *work) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.works[w.ID] == w {
		delete(s.works, w.ID)
	}
}

// spawn starts f, unless the node takes no requests any more.
func (s *serving) spawn(run *session, f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return false
	}
	run.handlers.Go(f)
	return true
}

// cancel ends the handler's context of a request.
func (s *serving) cancel(id string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.works[id]; w != nil {
		w.endLocked(err)
	}
}

// awaitIdle waits until no handler runs and all answers are sent, for d at most.
func (s *serving) awaitIdle(d time.Duration) {
	if d <= 0 {
		return
	}
	over := time.NewTimer(d)
	defer over.Stop()
	check := time.NewTicker(5 * time.Millisecond)
	defer check.Stop()
	for !s.idle() {
		select {
		case <-check.C:
		case <-over.C:
			return
		}
	}
}

func (s *serving) idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.works) == 0 && s.running.Load() == 0
}

// admit runs the handler of a request in a goroutine, or a handler that refuses it. If the request was fetched, fetched
// has its reserved id.
func (b *Bus) admit(s *session, q *wire.Request, fetched *work) {
	w := b.newWork(s, q)
	if !b.serving.take(s, w, fetched) {
		return
	}
	if refuses := b.claim(w); refuses != nil {
		w.run = refuses
	}
	send.Reuse(w)
}

// refuse answers a request that this node cannot read.
func (b *Bus) refuse(s *session, e *wire.UnreadableError) {
	if e.Attempt == 0 {
		return
	}
	code := CodeBadRequest
	if e.Version != 0 || e.Flags != 0 {
		code = CodeVersion
	}
	w := b.newWork(s, &wire.Request{ID: e.ID, Attempt: e.Attempt, Left: e.Left})
	if !b.serving.take(s, w, nil) {
		return
	}
	w.run = failWith(code, e.Error())
	send.Reuse(w)
}

func failWith(code, message string) handler {
	return func(context.Context, *work) ([]byte, error) {
		return nil, &RemoteError{Code: code, Message: message}
	}
}
