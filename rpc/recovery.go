package rpc

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/wire"
	"github.com/luatomic/luatomic/lua"
)

// runRecovery checks what this process waits for, each time it is asked to: it reads replies that were missed from
// their records, names requests to nodes that missed them, and has the server decide about the calls of dead nodes.
func (b *Bus) runRecovery(ctx context.Context) {
	seen := b.liveness.resubscribed.Load()
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.pending.arrived:
			b.readStored(ctx)
			continue
		case <-b.pending.check:
		}
		if now := b.liveness.resubscribed.Load(); now != seen {
			seen = now
			b.counts.resyncs.Add(1)
			b.readRecords(ctx, b.pending.olderThan(0))
			b.checkGathers(ctx, 0)
		}
		old := b.opts.Lease / 4
		if ids := b.pending.olderThan(old); len(ids) > 0 {
			b.rescue(ctx)
			b.readRecords(ctx, b.pending.olderThan(b.opts.Lease))
		}
		b.checkGathers(ctx, old)
	}
}

// readStored reads the replies that were too large to be published.
func (b *Bus) readStored(ctx context.Context) {
	calls, gathers := b.pending.takeStored()
	b.readRecords(ctx, calls)
	for _, g := range gathers {
		b.checkGather(ctx, g, nil)
	}
}

// readRecords reads the records of calls. Replies are delivered; a request that is pending is named to its node, which
// may have missed it.
func (b *Bus) readRecords(ctx context.Context, ids []string) {
	for _, id := range ids {
		b.readChunks(ctx, id)
	}
	for len(ids) > 0 && ctx.Err() == nil {
		part := ids[:min(len(ids), maxKeys)]
		later, err := b.readSome(ctx, part)
		if err != nil {
			b.report(ctx, fmt.Errorf("luatomic: read records of bus %q: %w", b.name, err))
			return
		}
		ids = append(later, ids[len(part):]...)
	}
}

// readSome returns the ids that did not fit into one reply of the server.
func (b *Bus) readSome(ctx context.Context, ids []string) (later []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, b.opts.Lease/3)
	defer cancel()
	rows, err := gen.RPCCollect(ctx, b.client, gen.RPCCollectParams{Records: b.records(ids)})
	for i, row := range rows {
		switch row.State {
		case gen.RPCCollectStateDone:
			_ = b.receiveStored(row.Frame) // a frame that is refused is counted
		case gen.RPCCollectStateLater:
			later = append(later, ids[i])
		case gen.RPCCollectStateLost: // another caller with the same key found that
			if w := b.pending.find(ids[i]); w != nil {
				b.pending.deliver(w.id, outcome{err: lostCall(w.method, w.node)})
			}
		case gen.RPCCollectStatePending:
			if w := b.pending.find(ids[i]); w != nil && w.node != "" {
				b.outbox.remind(w.node, ids[i])
			}
		}
	}
	return later, err
}

// roster is what is known of the nodes of a bus: whether the lease of each is good.
type roster struct {
	alive    map[string]bool
	complete bool // a node that is not listed is dead
}

func (r *roster) dead(node string) bool {
	alive, listed := r.alive[node]
	return !alive && (listed || r.complete)
}

// shownNodes is how many nodes the server lists, those whose lease ends first.
const shownNodes = 1000

func (b *Bus) readRoster(ctx context.Context) (*roster, error) {
	ctx, cancel := context.WithTimeout(ctx, b.opts.Lease/3)
	defer cancel()
	rows, err := gen.RPCNodes(ctx, b.client, gen.RPCNodesParams{Nodes: b.keys.Nodes, About: b.keys.About})
	if err != nil {
		b.report(ctx, fmt.Errorf("luatomic: list nodes of bus %q: %w", b.name, err))
		return nil, err
	}
	out := &roster{alive: make(map[string]bool, len(rows)), complete: len(rows) < shownNodes}
	for _, r := range rows {
		out.alive[r.Node] = r.Left > 0
	}
	return out, nil
}

// rescue has the server decide about the calls of nodes that are not alive.
func (b *Bus) rescue(ctx context.Context) {
	nodes, err := b.readRoster(ctx)
	if err != nil {
		return
	}
	for part := range slices.Chunk(b.pending.askedOf(func(node string) bool { return !nodes.alive[node] }), maxPart) {
		b.rescueSome(ctx, part)
	}
}

// askedOf returns copies of the calls whose node is one of those.
func (p *pending) askedOf(those func(node string) bool) []waiter {
	p.mu.Lock()
	defer p.mu.Unlock()
	var calls []waiter
	for id, w := range p.calls {
		if w.node != "" && those(w.node) {
			calls = append(calls, waiter{id: id, record: w.record, method: w.method, idempotent: w.idempotent})
		}
	}
	return calls
}

func (b *Bus) rescueSome(ctx context.Context, calls []waiter) {
	bounded, cancel := context.WithTimeout(ctx, b.opts.Lease/3)
	defer cancel()
	batch := lua.NewBatch(b.client)
	futures := make([]*lua.Future[gen.RPCRescueResult], len(calls))
	for i, w := range calls {
		futures[i] = gen.RPCRescueIn(batch, gen.RPCRescueParams{
			Nodes: b.keys.Nodes, Method: b.keys.Method(w.method), Record: w.record,
			Again: w.idempotent, Outbox: b.keys.Outbox, Grace: callGrace, Keep: replyKept,
			Notice: b.notice(wire.RequestStored, w.id), Caller: b.node, Shard: b.shard, Trust: b.moving(),
		})
	}
	if err := batch.Exec(bounded); err != nil {
		b.report(ctx, fmt.Errorf("luatomic: rescue calls of bus %q: %w", b.name, err))
	}
	for i, f := range futures {
		if r, err := f.Get(); err == nil {
			b.rescued(calls[i].id, calls[i].method, r)
		}
	}
}

func (b *Bus) rescued(id, method string, r gen.RPCRescueResult) {
	switch r.Outcome {
	case gen.RPCRescueOutcomeDone:
		_ = b.receiveStored(r.Frame) // a frame that is refused is counted
	case gen.RPCRescueOutcomeLost:
		b.pending.deliver(id, outcome{err: lostCall(method, r.Node)})
	case gen.RPCRescueOutcomeMoved, gen.RPCRescueOutcomeAlive:
		b.pending.moved(id, r.Node)
		b.outbox.remind(r.Node, id)
	}
}

// checkGathers reads the answers of gathers that wait for at least d, names the request to nodes that have not
// answered, and gives up the nodes that are dead.
func (b *Bus) checkGathers(ctx context.Context, d time.Duration) {
	waiting := b.pending.gathersOlderThan(d)
	if len(waiting) == 0 {
		return
	}
	nodes, err := b.readRoster(ctx)
	if err != nil {
		return
	}
	for _, g := range waiting {
		b.checkGather(ctx, g, nodes)
	}
}

// checkGather reads the answers; with the nodes, it also deals with those that have not answered.
func (b *Bus) checkGather(ctx context.Context, g *gathering, nodes *roster) {
	for {
		n, err := b.readParts(ctx, g)
		if err != nil {
			b.report(ctx, fmt.Errorf("luatomic: read gather on bus %q: %w", b.name, err))
			return
		}
		if n == 0 {
			break
		}
	}
	if nodes == nil {
		return
	}
	for _, node := range g.giveUpDead(nodes) {
		b.outbox.remind(node, g.id)
	}
}

// readParts reads as many of the missing answers as fit into one reply of the server.
func (b *Bus) readParts(ctx context.Context, g *gathering) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, b.opts.Lease)
	defer cancel()
	rows, err := gen.RPCParts(ctx, b.client, gen.RPCPartsParams{Gather: b.keys.Gather(g.id), Wants: g.missingNodes()})
	for _, r := range rows {
		if err := b.receiveStored(r.Frame); err != nil {
			return 0, err
		}
	}
	return len(rows), err
}
