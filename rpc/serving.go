package rpc

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/luatomic/luatomic/internal/wire"
	"github.com/luatomic/luatomic/lua"
)

// serving are the methods that this node serves and the requests that it works on.
type serving struct {
	running atomic.Int64 // handlers that run

	mu      sync.Mutex
	methods map[string]*served
	works   map[string]*work // by id, until their answer is settled
	leaving bool             // the node announces no methods any more
	closing bool             // the node takes no requests any more
}

type handler func(ctx context.Context, w *work) ([]byte, error)

// served is a method of this node.
type served struct {
	run    handler // guarded by serving.mu
	key    string  // of the nodes of the method
	counts handlerCounts
}

func (s *serving) init() {
	s.methods, s.works = make(map[string]*served), make(map[string]*work)
}

func (b *Bus) serve(method string, run handler) error {
	if err := lua.CheckName("method name", method); err != nil {
		return fmt.Errorf("luatomic: %w", err)
	}
	b.serving.handle(method, b.keys.Method(method), run)
	offer(b.liveness.heartbeat)
	return nil
}

func (s *serving) handle(method, key string, run handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.methods[method] == nil {
		s.methods[method] = &served{key: key}
	}
	s.methods[method].run = run
}

// announced returns the names of the methods, none once the node leaves: it stays until its handlers are done, and gets
// no more calls.
func (s *serving) announced() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leaving {
		return nil
	}
	return slices.Sorted(maps.Keys(s.methods))
}

// leave ends the announcements. It returns the names of the methods that were announced.
func (s *serving) leave() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaving = true
	return slices.Sorted(maps.Keys(s.methods))
}

func (s *serving) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = true
}

func (s *serving) reopen() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaving, s.closing = false, false
}

// take registers a request. It reports false for one that the node has already, for one that was fetched while another
// way brought it (it may have been answered since), and when the node is closing: the caller finds that it has left.
func (s *serving) take(run *session, w *work, fetched bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.works[w.ID]
	if s.closing || known != nil && !known.reserved && w.Attempt > 0 || known == nil && fetched {
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

// reserve takes the names of requests that are to be fetched, so that none is fetched twice at a time. It returns those
// that the node does not have.
func (s *serving) reserve(run *session, ids []string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	unknown := ids[:0]
	for _, id := range ids {
		if s.works[id] == nil {
			s.works[id] = &work{serving: s, parent: run.ctx, reserved: true}
			unknown = append(unknown, id)
		}
	}
	return unknown
}

// release gives up the names of requests that could not be fetched.
func (s *serving) release(ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		if w := s.works[id]; w != nil && w.reserved {
			delete(s.works, id)
		}
	}
}

// settled forgets a request whose answer is settled.
func (s *serving) settled(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.works, id)
}

// spawn starts f, unless the node takes no requests any more.
func (s *serving) spawn(run *session, f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closing {
		run.handlers.Go(f)
	}
}

// cancel ends the handler's context of a request.
func (s *serving) cancel(id string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.works[id]; w != nil {
		w.endLocked(err)
	}
}

// awaitIdle waits until no handler runs and all answers are settled, at most d.
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

// admit runs the handler of a request in a goroutine, or a handler that refuses it.
func (b *Bus) admit(s *session, q *wire.Request, fetched bool) {
	w := &work{Request: q, bus: b, serving: &b.serving, parent: s.ctx, deadline: time.Now().Add(q.Left)}
	if !b.serving.take(s, w, fetched) {
		return
	}
	switch {
	case w.run == nil:
		w.run = failWith(CodeNoMethod, "this node does not serve the method")
	case b.serving.running.Add(1) > int64(b.opts.Concurrency):
		b.serving.running.Add(-1)
		w.run = failWith(CodeOverloaded, "all handlers of the node are busy")
	default:
		w.slot = true
		w.method.counts.running.Add(1)
	}
	go w.answer(s)
}

func failWith(code, message string) handler {
	return func(context.Context, *work) ([]byte, error) {
		return nil, &RemoteError{Code: code, Message: message}
	}
}
