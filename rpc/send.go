package rpc

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/lua"
)

// sender lets calls and replies that happen at one time share a round trip. While
// few are on their way, each goes out at once, by itself. What comes meanwhile waits,
// and goes out in one pipeline as soon as one of them is back.
type sender struct {
	mu     sync.Mutex
	active int // round trips on their way
	queue  []*post
}

// maxActive is how many round trips are on their way at most. More means less to
// share, fewer means longer waits.
const maxActive = 2

// post is one call of a script that may share a round trip.
type post struct {
	call    gen.RPCCallParams
	reply   gen.RPCReplyParams
	isReply bool
	sent    *lua.Future[gen.RPCCallResult]
	replied *lua.Future[gen.RPCReplyResult]
	done    chan struct{}
	records []string // reused for call.Discards
}

var postPool = sync.Pool{New: func() any { return &post{done: make(chan struct{}, 1)} }}

func (p *post) release() {
	p.call, p.reply, p.sent, p.replied, p.isReply = gen.RPCCallParams{}, gen.RPCReplyParams{}, nil, nil, false
	postPool.Put(p)
}

// enter reports whether the caller may go out alone. Otherwise p waits in the queue.
func (s *sender) enter(p *post) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.active < maxActive {
		s.active++
		return true
	}
	s.queue = append(s.queue, p)
	return false
}

// leave ends a round trip. What waits goes out in another goroutine.
func (b *Bus) leaveSender() {
	s := &b.out
	s.mu.Lock()
	if len(s.queue) == 0 {
		s.active--
		s.mu.Unlock()
		return
	}
	part := s.takeLocked()
	s.mu.Unlock()
	go b.sendParts(part)
}

func (s *sender) takeLocked() []*post {
	n := min(len(s.queue), maxPart)
	part := s.queue[:n:n]
	if s.queue = s.queue[n:]; len(s.queue) == 0 {
		s.queue = nil
	}
	return part
}

// sendParts sends parts until nothing waits.
func (b *Bus) sendParts(part []*post) {
	for len(part) > 0 {
		b.sendPart(part)
		s := &b.out
		s.mu.Lock()
		if part = s.takeLocked(); len(part) == 0 {
			s.active--
		}
		s.mu.Unlock()
	}
}

func (b *Bus) sendPart(part []*post) {
	// Each has a bound of its own and stops waiting then.
	ctx, cancel := context.WithTimeout(context.Background(), b.opts.Timeout+b.opts.Lease)
	defer cancel()
	batch := lua.NewBatch(b.client)
	for _, p := range part {
		if p.isReply {
			p.replied = gen.RPCReplyIn(batch, p.reply)
		} else {
			b.carry(p)
			p.sent = gen.RPCCallIn(batch, p.call)
		}
	}
	_ = batch.Exec(ctx) // each has its own
	for _, p := range part {
		p.done <- struct{}{}
	}
}

// carry lets a call take away records that are done with.
func (b *Bus) carry(p *post) {
	p.records = b.takeFinished(p.records[:0], 8)
	p.call.Discards = p.records
}

// postCall sends a call, alone or with others.
func (b *Bus) postCall(ctx context.Context, params *gen.RPCCallParams, expired <-chan time.Time) (gen.RPCCallResult, error) {
	p := postPool.Get().(*post)
	p.call = *params
	if b.out.enter(p) {
		b.carry(p)
		r, err := gen.RPCCall(ctx, b.client, p.call)
		p.release()
		b.leaveSender()
		return r, err
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

func (b *Bus) postReply(ctx context.Context, params *gen.RPCReplyParams) (gen.RPCReplyResult, error) {
	p := postPool.Get().(*post)
	p.reply, p.isReply = *params, true
	if b.out.enter(p) {
		r, err := gen.RPCReply(ctx, b.client, p.reply)
		p.release()
		b.leaveSender()
		return r, err
	}
	<-p.done // the round trip is bounded
	r, err := p.replied.Get()
	p.release()
	return r, err
}

// send hands the call to the server and says which node has it.
func (b *Bus) send(ctx context.Context, c *outgoing, id string, left time.Duration, expired <-chan time.Time) (node string, err error) {
	q := request{id: id, method: c.method, flags: c.flags, body: c.body}
	if c.Key != "" {
		q.keep = c.Keep
	}
	frame := b.seal(q.encode())
	var word []byte
	if len(frame) > inlineMax {
		word = b.seal(encodeWord('L', id))
	}
	if expired != nil {
		// The script may be repeated for as long as the call waits.
		ctx = &bounded{ctx, time.Now().Add(left)}
	}
	params := gen.RPCCallParams{
		Nodes: b.keys.Nodes, Method: b.keys.Method(c.method), Record: b.keys.Record(id),
		Frame: frame, Word: word, Caller: b.node, Outbox: b.keys.Outbox,
		Timeout: left, Keep: left + callGrace, Shard: b.shard,
	}
	for range 4 {
		r, err := b.ask(ctx, c, &params, expired)
		if err != nil {
			return "", fmt.Errorf("luatomic: call %q: %w", c.method, err)
		}
		switch r.Outcome {
		case gen.RPCDirectOutcomeSent:
			return r.Node, nil
		case gen.RPCDirectOutcomeKnown:
			if c.Key == "" {
				return r.Node, nil // sent by an attempt whose answer was lost
			}
			node, again, err := b.attach(ctx, c, id)
			if !again {
				return node, err
			}
		case gen.RPCDirectOutcomeNoSubscriber:
			if params.Trust || !b.moving() {
				return "", refusal(c.method, r.Outcome)
			}
			params.Trust = true
		default:
			return "", refusal(c.method, r.Outcome)
		}
	}
	return "", fmt.Errorf("luatomic: call %q: the calls with this key end one after the other: %w", c.method, ErrNodeLost)
}

// moving reports whether the slot of the bus may have moved so short a time ago that
// nodes which are well have not followed: within a third of its lease each has announced
// itself and found out, once its client knows the new state of the cluster. That a node
// does not listen says nothing then.
func (b *Bus) moving() bool { return b.shard && b.link.Moved(max(b.opts.Lease/2, time.Second)) }

// targeted calls have one node that may answer, whatever becomes of it.
func (c *outgoing) targeted() bool { return c.Node != "" || c.Connection != "" }

// ask runs the script that sends the call.
func (b *Bus) ask(ctx context.Context, c *outgoing, p *gen.RPCCallParams, expired <-chan time.Time) (gen.RPCDirectResult, error) {
	if !c.targeted() {
		r, err := b.postCall(ctx, p, expired)
		return gen.RPCDirectResult{Outcome: gen.RPCDirectOutcome(r.Outcome), Node: r.Node}, err
	}
	direct := gen.RPCDirectParams{
		Nodes: p.Nodes, Method: p.Method, Record: p.Record, Frame: p.Frame, Word: p.Word, Caller: p.Caller, Outbox: p.Outbox,
		Timeout: p.Timeout, Keep: p.Keep, Shard: p.Shard, Trust: p.Trust,
	}
	if c.Connection != "" {
		direct.Bindings = []string{b.keys.Connection(c.Connection)}
	} else {
		direct.Target = lua.Some(c.Node)
	}
	return gen.RPCDirect(ctx, b.client, direct)
}

// attach joins a call that is known by its idempotency key. again says that it is
// gone by now, or lost, and may be made anew.
func (b *Bus) attach(ctx context.Context, c *outgoing, id string) (node string, again bool, err error) {
	r, err := gen.RPCAttach(ctx, b.client, gen.RPCAttachParams{Record: b.keys.Record(id), Caller: b.node})
	switch {
	case err != nil:
		return "", false, fmt.Errorf("luatomic: call %q: %w", c.method, err)
	case r.State == gen.RPCAttachStateGone, r.State == gen.RPCAttachStateLost:
		return "", true, nil
	case r.State == gen.RPCAttachStateDone:
		b.receiveStored(r.Frame)
	}
	return r.Node, false, nil
}

func lostCall(method, node string) error {
	return fmt.Errorf("luatomic: call %q: the handler may have run: %w: %s", method, ErrNodeLost, node)
}
