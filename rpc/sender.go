package rpc

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/lua"
)

// sender lets calls and replies that happen at the same time share a round trip. While few round trips are under way,
// each script is sent immediately and alone. What comes meanwhile waits, and is sent in one pipeline as soon as one of
// them returns.
type sender struct {
	client   lua.Client
	bound    time.Duration // of a shared round trip
	finished *pending      // whose records a call removes

	mu     sync.Mutex
	active int // round trips under way
	queue  []*post
}

const (
	// maxActive is how many round trips are under way at most. More means less to share, fewer means longer waits.
	maxActive = 2
	// maxPart is how many scripts share a round trip.
	maxPart = 200
	// maxDiscards is how many records one call removes.
	maxDiscards = 8
)

// post is one script that waits to share a round trip: a call, or a reply.
type post struct {
	call    gen.RPCCallParams
	reply   gen.RPCReplyParams
	isReply bool
	sent    *lua.Future[gen.RPCCallResult]
	replied *lua.Future[gen.RPCReplyResult]
	done    chan struct{} // filled when the round trip is over
}

// posts are used again, which saves two allocations a script under load. One whose caller gives up is not.
var posts = sync.Pool{New: func() any { return &post{done: make(chan struct{}, 1)} }}

func (p *post) release() {
	*p = post{done: p.done}
	posts.Put(p)
}

// enter returns nil when the script may be sent alone. Otherwise the post waits in the queue.
func (s *sender) enter(call *gen.RPCCallParams, reply *gen.RPCReplyParams) *post {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.active < maxActive {
		s.active++
		return nil
	}
	p := posts.Get().(*post)
	if p.isReply = reply != nil; p.isReply {
		p.reply = *reply
	} else {
		p.call = *call
	}
	s.queue = append(s.queue, p)
	return p
}

// returned ends the round trip of a script that was sent alone. What waits is sent by another goroutine.
func (s *sender) returned() {
	if part := s.next(); len(part) > 0 {
		go s.sendParts(part)
	}
}

func (s *sender) sendParts(part []*post) {
	for ; len(part) > 0; part = s.next() {
		s.sendPart(part)
	}
}

// next takes what waits for a round trip. Where nothing waits, one round trip less is under way.
func (s *sender) next() []*post {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(len(s.queue), maxPart)
	part := s.queue[:n:n]
	if s.queue = s.queue[n:]; len(s.queue) == 0 {
		s.queue = nil
	}
	if n == 0 {
		s.active--
	}
	return part
}

func (s *sender) sendPart(part []*post) {
	// Each post has a bound of its own and stops waiting then.
	ctx, cancel := context.WithTimeout(context.Background(), s.bound)
	defer cancel()
	batch := lua.NewBatch(s.client)
	for _, p := range part {
		if p.isReply {
			p.replied = gen.RPCReplyIn(batch, p.reply)
		} else {
			p.call.Discards = s.finished.takeFinished(maxDiscards)
			p.sent = gen.RPCCallIn(batch, p.call)
		}
	}
	_ = batch.Exec(ctx) // each post has its own error
	for _, p := range part {
		p.done <- struct{}{}
	}
}

// call sends a call, alone or with others.
func (s *sender) call(
	ctx context.Context, params *gen.RPCCallParams, expired <-chan time.Time,
) (gen.RPCCallResult, error) {
	p := s.enter(params, nil)
	if p == nil {
		defer s.returned()
		params.Discards = s.finished.takeFinished(maxDiscards)
		return gen.RPCCall(ctx, s.client, *params)
	}
	var cause error
	select {
	case <-p.done:
		r, err := p.sent.Get()
		p.release()
		return r, err
	case <-ctx.Done():
		cause = context.Cause(ctx)
	case <-expired:
		cause = context.DeadlineExceeded
	}
	return gen.RPCCallResult{}, fmt.Errorf("%w: %w", lua.ErrOutcomeUnknown, cause)
}

// replyTo sends a reply, alone or with others.
func (s *sender) replyTo(ctx context.Context, params *gen.RPCReplyParams) (gen.RPCReplyResult, error) {
	p := s.enter(nil, params)
	if p == nil {
		defer s.returned()
		return gen.RPCReply(ctx, s.client, *params)
	}
	<-p.done // the round trip is bounded
	r, err := p.replied.Get()
	p.release()
	return r, err
}
