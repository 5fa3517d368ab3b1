package rpc

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/wire"
)

// Part is one node's answer to a gather.
type Part[Res any] struct {
	Node   string
	Result Res
}

// Gather sends the request to all nodes that serve the method and yields their answers as they come, each with the
// node's name: a result, or the error of that node: a *RemoteError, or ErrNodeLost for a node that died or could not be
// reached.
//
// The nodes expected are those alive in the script that publishes the request. The sequence ends as soon as each of
// them has answered or is lost. When the time is over or ctx ends, the last pair has an empty node and a *MissingError;
// it has ErrNoResponders when no node serves the method. To stop early, break: the handlers of nodes that have not
// answered are cancelled. Cost: one round trip, and one of each node. Run must be running.
func (m Method[Req, Res]) Gather(ctx context.Context, b *Bus, in Req) iter.Seq2[Part[Res], error] {
	return func(yield func(Part[Res], error) bool) {
		g, err := m.gather(ctx, b, in)
		if err != nil {
			yield(Part[Res]{}, err)
			return
		}
		defer b.endGather(g)
		for {
			a, ok, err := g.next(ctx)
			if err != nil {
				yield(Part[Res]{}, &MissingError{Method: g.method, Nodes: g.missingNodes(), Err: err})
				return
			}
			if !ok {
				return
			}
			p := Part[Res]{Node: a.node}
			if a.err == nil {
				a.err = m.decode(b, a.body, &p.Result)
			}
			if !yield(p, a.err) {
				return
			}
		}
	}
}

// MissingError says which nodes had not answered a gather when it ended. Their handlers may have run.
type MissingError struct {
	Method string
	Nodes  []string // sorted
	// Err is why it ended.
	Err error
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("luatomic: gather %q: %d nodes have not answered, their handlers may have run: %v",
		e.Method, len(e.Nodes), e.Err)
}

func (e *MissingError) Unwrap() error { return e.Err }

// gathering is a gather that waits for answers.
type gathering struct {
	pending    *pending
	id, method string
	timer      *time.Timer
	changed    chan struct{}

	// Guarded by pending.mu.
	since   time.Time
	sent    bool            // missing is what the server fixed
	quick   bool            // as in waiter
	missing map[string]bool // nodes expected that have not answered
	early   []nodeOutcome   // that came before it was known which nodes are expected
	got     []nodeOutcome   // not yet yielded
}

// nodeOutcome is the outcome of one node.
type nodeOutcome struct {
	node string
	outcome
}

// isGather distinguishes the ids of gathers from those of calls by their end, which no name can forge: a digit or a
// small letter for a call, K for a call with an idempotency key.
func isGather(id string) bool { return strings.HasSuffix(id, "G") }

func (m Method[Req, Res]) gather(ctx context.Context, b *Bus, in Req) (*gathering, error) {
	body, err := m.encode(b, in)
	if err != nil {
		return nil, err
	}
	c := outgoing{method: m.name, body: body}
	if err := c.check(); err != nil {
		return nil, err
	}
	left, _ := b.limit(ctx)
	timer := time.NewTimer(left)
	if err := b.awaitReady(ctx, timer.C); err != nil {
		return nil, err
	}
	b.counts.calls.Add(1)
	g := b.pending.expectGather(b.newID(&c)+"G", m.name, timer)
	if err := b.dispatchGather(ctx, g, &c, left); err != nil {
		b.endGather(g)
		return nil, err
	}
	return g, nil
}

func (p *pending) expectGather(id, method string, timer *time.Timer) *gathering {
	g := &gathering{
		pending: p, id: id, method: method, timer: timer,
		changed: make(chan struct{}, 1), since: time.Now(), missing: make(map[string]bool),
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gathers[id] = g
	return g
}

func (b *Bus) dispatchGather(ctx context.Context, g *gathering, c *outgoing, left time.Duration) error {
	q := wire.Request{ID: g.id, Method: c.method, Body: c.body}
	frame := b.seal(q.Encode())
	ctx, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	resubscribed := b.liveness.resubscribed.Load()
	rows, err := gen.RPCGather(ctx, b.client, gen.RPCGatherParams{
		Nodes: b.keys.Nodes, Method: b.keys.Method(c.method), Gather: b.keys.Gather(g.id),
		Frame: frame, Notice: b.ifLarge(frame, wire.RequestStored, g.id), Caller: b.node, Outbox: b.keys.Outbox,
		Timeout: left, Keep: left + callGrace, Shard: b.shard,
	})
	if err != nil {
		return fmt.Errorf("luatomic: gather %q: %w", c.method, err)
	}
	if len(rows) == 0 {
		return &NoRespondersError{Method: c.method, Reason: "no node serves it"}
	}
	moving := b.moving()
	g.fix(rows, moving)
	missed := b.liveness.resubscribed.Load() != resubscribed
	for _, r := range rows {
		if missed && r.Subscribed || moving && !r.Subscribed {
			b.outbox.remind(r.Node, g.id)
		}
	}
	return nil
}

// fix notes which nodes the server expects. A node without a subscriber is not connected, unless the bus moves.
func (g *gathering) fix(rows []gen.RPCGatherRow, moving bool) {
	g.pending.mu.Lock()
	defer g.pending.mu.Unlock()
	for _, r := range rows {
		g.missing[r.Node] = true
		if !r.Subscribed && !moving {
			err := &NoRespondersError{Method: g.method, Reason: "no subscriber: the node is not connected"}
			g.early = append(g.early, nodeOutcome{r.Node, outcome{err: err}})
		}
	}
	g.sent, g.quick = true, time.Since(g.since) < quickly
	for _, a := range g.early {
		g.takeLocked(a)
	}
	g.early = nil
}

// takeLocked takes the first answer of each node that is expected.
func (g *gathering) takeLocked(a nodeOutcome) {
	if !g.sent {
		g.early = append(g.early, a)
		return
	}
	if g.missing[a.node] {
		delete(g.missing, a.node)
		g.got = append(g.got, a)
		offer(g.changed)
	}
}

// next waits for an answer. ok is false when all have answered.
func (g *gathering) next(ctx context.Context) (a nodeOutcome, ok bool, err error) {
	for {
		a, ok, over := g.poll()
		if ok || over {
			return a, ok, nil
		}
		select {
		case <-g.changed:
		case <-ctx.Done():
			return nodeOutcome{}, false, context.Cause(ctx)
		case <-g.timer.C:
			return nodeOutcome{}, false, context.DeadlineExceeded
		}
	}
}

func (g *gathering) poll() (a nodeOutcome, ok, over bool) {
	g.pending.mu.Lock()
	defer g.pending.mu.Unlock()
	if len(g.got) > 0 {
		a, g.got = g.got[0], g.got[1:]
		return a, true, false
	}
	return nodeOutcome{}, false, len(g.missing) == 0
}

// missingNodes returns the nodes that have not answered, sorted.
func (g *gathering) missingNodes() []string {
	g.pending.mu.Lock()
	defer g.pending.mu.Unlock()
	return slices.Sorted(maps.Keys(g.missing))
}

// giveUpDead counts the dead nodes as lost and returns the other nodes that have not answered.
func (g *gathering) giveUpDead(nodes *roster) (alive []string) {
	g.pending.mu.Lock()
	defer g.pending.mu.Unlock()
	for node := range g.missing {
		if nodes.dead(node) {
			g.takeLocked(nodeOutcome{node, outcome{err: lostCall(g.method, node)}})
		} else {
			alive = append(alive, node)
		}
	}
	return alive
}

func (p *pending) gathersOlderThan(d time.Duration) []*gathering {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	var waiting []*gathering
	for _, g := range p.gathers {
		if g.sent && now.Sub(g.since) >= d {
			waiting = append(waiting, g)
		}
	}
	return waiting
}

// endGather ends the wait, and cancels the handlers of the nodes that have not answered.
func (b *Bus) endGather(g *gathering) {
	g.timer.Stop()
	b.pending.forgetGather(g)
	if g.quick {
		b.pending.discard(b.keys.Gather(g.id))
	}
	for _, node := range g.missingNodes() {
		b.outbox.add(b.keys.Outbox+node, wire.Cancelled, g.id)
	}
}

func (p *pending) forgetGather(g *gathering) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.gathers, g.id)
}
