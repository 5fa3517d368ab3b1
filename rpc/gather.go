package rpc

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/lua"
)

// Part is one node's answer to a gather.
type Part[Res any] struct {
	Node   string
	Result Res
}

// Gather sends the request to all nodes that serve the method and yields their
// answers as they come, each with the node's name: a result, or the error of that
// node: a *RemoteError, or ErrNodeLost for one that died or could not be reached.
//
// The nodes expected are those alive in the step that publishes the request. The
// sequence ends when each of them has answered or is lost, after the slowest answer
// and not later. When the time is over or ctx ends, the last pair has an empty node
// and a *MissingError, and ErrNoResponders when nobody serves the method. To stop early,
// break: nodes that are not done are told. Cost: one round trip, and one of each node.
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
				yield(Part[Res]{}, b.missing(g, err))
				return
			}
			if !ok {
				return
			}
			p := Part[Res]{Node: a.node}
			if a.err == nil {
				a.err = m.result(b, a.body, &p.Result)
			}
			if !yield(p, a.err) {
				return
			}
		}
	}
}

// MissingError says which nodes have not answered a gather when it ended.
type MissingError struct {
	Method string
	Nodes  []string
	// Err is why it ended.
	Err error
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("luatomic: gather %q: %d nodes have not answered, their handlers may have run: %v", e.Method, len(e.Nodes), e.Err)
}

func (e *MissingError) Unwrap() error { return e.Err }

func (b *Bus) missing(g *gathering, err error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return &MissingError{Method: g.method, Nodes: slices.Sorted(maps.Keys(g.missing)), Err: err}
}

// gathering is a gather that waits for answers.
type gathering struct {
	bus        *Bus
	id, method string
	timer      *time.Timer
	changed    chan struct{}

	// Guarded by Bus.mu.
	since   time.Time
	sent    bool            // missing is what the server fixed
	quick   bool            // it was sent once, for sure
	missing map[string]bool // nodes expected that have not answered
	early   []response      // that came before it was known who is expected
	got     []response      // not yet handed over
}

// isGather tells the ids of gathers from those of calls by their end, which no name can
// forge: a number in small letters for a call, K for one with an idempotency key.
func isGather(id string) bool { return strings.HasSuffix(id, "G") }

func (m Method[Req, Res]) gather(ctx context.Context, b *Bus, in Req) (*gathering, error) {
	body, err := m.body(b, in)
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
	g := &gathering{
		bus: b, id: b.node + "." + strconv.FormatUint(b.serial.Add(1), 36) + "G", method: m.name,
		timer: timer, changed: make(chan struct{}, 1), since: time.Now(), missing: make(map[string]bool),
	}
	b.mu.Lock()
	b.gathers[g.id] = g
	b.mu.Unlock()
	if err := b.sendGather(ctx, g, &c, left); err != nil {
		b.endGather(g)
		return nil, err
	}
	return g, nil
}

func (b *Bus) sendGather(ctx context.Context, g *gathering, c *outgoing, left time.Duration) error {
	q := request{id: g.id, method: c.method, body: c.body}
	p := gen.RPCGatherParams{
		Nodes: b.keys.Nodes, Method: b.keys.Method(c.method), Gather: b.keys.Gather(g.id),
		Frame: b.seal(q.encode()), Caller: b.node, Outbox: b.keys.Outbox,
		Timeout: left, Keep: left + callGrace, Shard: b.shard,
	}
	if len(p.Frame) > inlineMax {
		p.Word = b.seal(encodeWord('L', g.id))
	}
	ctx, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	ups := b.ups.Load()
	rows, err := gen.RPCGather(ctx, b.client, p)
	if err != nil {
		return fmt.Errorf("luatomic: gather %q: %w", c.method, err)
	}
	if len(rows) == 0 {
		return &NoRespondersError{Method: c.method, Reason: "no node serves it"}
	}
	moving := b.moving()
	b.mu.Lock()
	for _, r := range rows {
		g.missing[r.Node] = true
		if !r.Heard && !moving {
			g.early = append(g.early, response{node: r.Node, err: &NoRespondersError{Method: c.method, Reason: "no subscriber: the node is not connected"}})
		}
	}
	g.sent, g.quick = true, time.Since(g.since) < quickly
	for _, a := range g.early {
		g.takeLocked(a)
	}
	g.early = nil
	b.mu.Unlock()
	again := b.ups.Load() != ups
	for _, r := range rows {
		if again && r.Heard || moving && !r.Heard {
			b.hint(r.Node, g.id)
		}
	}
	return nil
}

// takeLocked takes the first answer of each node that is expected.
func (g *gathering) takeLocked(a response) {
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
func (g *gathering) next(ctx context.Context) (a response, ok bool, err error) {
	for {
		g.bus.mu.Lock()
		if len(g.got) > 0 {
			a, g.got = g.got[0], g.got[1:]
			g.bus.mu.Unlock()
			return a, true, nil
		}
		over := len(g.missing) == 0
		g.bus.mu.Unlock()
		if over {
			return response{}, false, nil
		}
		select {
		case <-g.changed:
		case <-ctx.Done():
			return response{}, false, context.Cause(ctx)
		case <-g.timer.C:
			return response{}, false, context.DeadlineExceeded
		}
	}
}

// endGather ends the wait, and tells the nodes that have not answered.
func (b *Bus) endGather(g *gathering) {
	g.timer.Stop()
	b.mu.Lock()
	delete(b.gathers, g.id)
	missing := make([]string, 0, len(g.missing))
	for node := range g.missing {
		missing = append(missing, node)
	}
	b.mu.Unlock()
	if g.quick {
		b.discard(b.keys.Gather(g.id))
	}
	for _, node := range missing {
		b.word(b.keys.Outbox+node, 'X', g.id)
	}
}

func (b *Bus) receivePart(payload string) error {
	a, err := decodeAnswer(payload)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if g := b.gathers[a.id]; g != nil {
		g.takeLocked(a)
	}
	return nil
}

// collectParts reads the answers of gathers that wait for longer than that, names what
// is missing to its nodes, and marks the nodes that are dead.
func (b *Bus) collectParts(ctx context.Context, longer time.Duration) {
	now := time.Now()
	b.mu.Lock()
	var waiting []*gathering
	for _, g := range b.gathers {
		if g.sent && now.Sub(g.since) >= longer {
			waiting = append(waiting, g)
		}
	}
	b.mu.Unlock()
	if len(waiting) == 0 {
		return
	}
	nodes, err := b.nodes(ctx)
	if err != nil {
		return
	}
	for _, g := range waiting {
		b.collectGather(ctx, g, nodes)
	}
}

// collectGather reads the answers; with the nodes, it also looks after what is missing.
func (b *Bus) collectGather(ctx context.Context, g *gathering, nodes *liveness) {
	for {
		n, err := b.collectAnswers(ctx, g)
		if err != nil {
			b.failed(ctx, fmt.Errorf("luatomic: collect on bus %q: %w", b.name, err))
			return
		}
		if n == 0 {
			break
		}
	}
	if nodes == nil {
		return
	}
	b.mu.Lock()
	var missed []string
	for node := range g.missing {
		if nodes.dead(node) {
			g.takeLocked(response{id: g.id, node: node, err: lostCall(g.method, node)})
		} else {
			missed = append(missed, node)
		}
	}
	b.mu.Unlock()
	for _, node := range missed {
		b.hint(node, g.id)
	}
}

// collectAnswers reads as many of the missing answers as fit into one reply.
func (b *Bus) collectAnswers(ctx context.Context, g *gathering) (int, error) {
	b.mu.Lock()
	missing := make([]string, 0, len(g.missing))
	for node := range g.missing {
		missing = append(missing, node)
	}
	b.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, b.opts.Lease)
	defer cancel()
	rows, err := gen.RPCParts(ctx, b.client, gen.RPCPartsParams{Gather: b.keys.Gather(g.id), Wants: missing})
	for _, r := range rows {
		payload, err := b.open(string(r.Frame))
		if err == nil {
			err = b.receivePart(payload)
		}
		if err != nil {
			b.counts.refused.Add(1)
			return 0, err
		}
	}
	return len(rows), err
}

// replyPart sends this node's answer to a gather.
func (b *Bus) replyPart(ctx context.Context, w *work, a *response) (gen.RPCReplyResult, error) {
	a.node = b.node
	p := gen.RPCPartParams{
		Gather: b.keys.Gather(w.id), Method: b.keys.Method(w.method),
		Node: b.node, Frame: b.seal(a.encode()), Outbox: b.keys.Outbox, Shard: b.shard,
	}
	if len(p.Frame) > inlineMax {
		p.Word = b.seal(encodeWord('N', w.id))
	}
	outcome, err := gen.RPCPart(ctx, b.client, p)
	return gen.RPCReplyResult(outcome), err
}

// fetchPart gets the request of a gather that this node missed.
func (b *Bus) fetchPart(ctx context.Context, id string, handlers *sync.WaitGroup) bool {
	bounded, cancel := context.WithTimeout(ctx, b.opts.Lease)
	defer cancel()
	rows, err := gen.RPCParts(bounded, b.client, gen.RPCPartsParams{Gather: b.keys.Gather(id), Asking: lua.Some(b.node)})
	if err != nil {
		b.failed(ctx, fmt.Errorf("luatomic: fetch on bus %q: %w", b.name, err))
		return false
	}
	for _, r := range rows {
		if left := r.Left - callGrace; left > 0 {
			b.counts.fetched.Add(1)
			if err := b.admit(ctx, 1, left, string(r.Frame), true, handlers); err != nil {
				b.failed(ctx, err)
			}
		}
	}
	return true
}
