package rpc

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/clock"
	"github.com/luatomic/luatomic/lua"
)

// resync looks, each time it is asked to, at what this process waits for: replies that
// it missed are in the records, nodes that missed a request get its name, and the
// calls of dead nodes go to others or are lost.
func (b *Bus) resync(ctx context.Context) {
	seen := b.ups.Load()
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.large:
			b.collectStored(ctx)
			continue
		case <-b.look:
		}
		if ups := b.ups.Load(); ups != seen {
			seen = ups
			b.counts.resyncs.Add(1)
			b.collect(ctx, b.waiting(0))
			b.collectParts(ctx, 0)
		}
		old := b.opts.Lease / 4
		if ids := b.waiting(old); len(ids) > 0 {
			b.rescue(ctx)
			b.collect(ctx, b.waiting(b.opts.Lease))
		}
		b.collectParts(ctx, old)
	}
}

// waiting are the calls that wait for longer than that.
func (b *Bus) waiting(longer time.Duration) []string {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	ids := make([]string, 0, len(b.waiters))
	for id, w := range b.waiters {
		if now.Sub(w.since) >= longer {
			ids = append(ids, id)
		}
	}
	return ids
}

// waitingFor are the calls and gathers that this node should have.
func (b *Bus) waitingFor(node string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var ids []string
	for id, w := range b.waiters {
		if w.node == node {
			ids = append(ids, id)
		}
	}
	for id, g := range b.gathers {
		if g.missing[node] {
			ids = append(ids, id)
		}
	}
	return ids
}

// collect reads the records of calls. Replies are handed over; what is pending is
// named to its node, which may have missed it.
func (b *Bus) collect(ctx context.Context, ids []string) {
	for _, id := range ids {
		b.collectChunks(ctx, id)
	}
	for len(ids) > 0 && ctx.Err() == nil {
		part := ids[:min(len(ids), maxKeys)]
		later, err := b.collectPart(ctx, part)
		if err != nil {
			b.failed(ctx, fmt.Errorf("luatomic: collect on bus %q: %w", b.name, err))
			return
		}
		ids = append(later, ids[len(part):]...)
	}
}

// collectPart says what did not fit into one reply.
func (b *Bus) collectPart(ctx context.Context, ids []string) (later []string, err error) {
	records := make([]string, len(ids))
	for i, id := range ids {
		records[i] = b.keys.Record(id)
	}
	ctx, cancel := context.WithTimeout(ctx, b.opts.Lease/3)
	defer cancel()
	rows, err := gen.RPCCollect(ctx, b.client, gen.RPCCollectParams{Records: records})
	var lost []response
	for i, row := range rows {
		switch row.State {
		case gen.RPCCollectStateDone:
			b.receiveStored(row.Frame)
		case gen.RPCCollectStateLater:
			later = append(later, ids[i])
		case gen.RPCCollectStateLost: // as another caller with the same key found
			b.mu.Lock()
			if w := b.waiters[ids[i]]; w != nil {
				lost = append(lost, response{id: w.id, err: lostCall(w.method, w.node)})
			}
			b.mu.Unlock()
		case gen.RPCCollectStatePending:
			b.mu.Lock()
			node := ""
			if w := b.waiters[ids[i]]; w != nil {
				node = w.node
			}
			b.mu.Unlock()
			if node != "" {
				b.hint(node, ids[i])
			}
		}
	}
	for _, r := range lost {
		b.deliver(r)
	}
	return later, err
}

// liveness is what is known of the nodes of a bus: whether the lease of each is good.
type liveness struct {
	lives map[string]bool
	all   bool // those that are not listed are gone
}

func (n *liveness) dead(node string) bool {
	lives, listed := n.lives[node]
	return !lives && (listed || n.all)
}

// shownNodes is how many nodes the server lists, those whose lease ends first.
const shownNodes = 1000

func (b *Bus) nodes(ctx context.Context) (*liveness, error) {
	ctx, cancel := context.WithTimeout(ctx, b.opts.Lease/3)
	defer cancel()
	rows, err := gen.RPCNodes(ctx, b.client, gen.RPCNodesParams{Nodes: b.keys.Nodes, About: b.keys.About})
	if err != nil {
		b.failed(ctx, fmt.Errorf("luatomic: nodes of bus %q: %w", b.name, err))
		return nil, err
	}
	out := &liveness{lives: make(map[string]bool, len(rows)), all: len(rows) < shownNodes}
	for _, r := range rows {
		out.lives[r.Node] = r.Left > 0
	}
	return out, nil
}

// rescue has the server decide about the calls of dead nodes.
func (b *Bus) rescue(ctx context.Context) {
	nodes, err := b.nodes(ctx)
	if err != nil {
		return
	}
	type call struct {
		id, method string
		again      bool
	}
	var calls []call
	b.mu.Lock()
	for id, w := range b.waiters {
		if w.node != "" && !nodes.lives[w.node] {
			calls = append(calls, call{id, w.method, w.again})
		}
	}
	b.mu.Unlock()
	for part := range slices.Chunk(calls, maxPart) {
		bounded, cancel := context.WithTimeout(ctx, b.opts.Lease/3)
		batch := lua.NewBatch(b.client)
		futures := make([]*lua.Future[gen.RPCRescueResult], len(part))
		for i, c := range part {
			futures[i] = gen.RPCRescueIn(batch, gen.RPCRescueParams{
				Nodes: b.keys.Nodes, Method: b.keys.Method(c.method), Record: b.keys.Record(c.id),
				Again: c.again, Outbox: b.keys.Outbox, Grace: callGrace, Keep: replyKept,
				Word: b.seal(encodeWord('L', c.id)), Caller: b.node, Shard: b.shard, Trust: b.moving(),
			})
		}
		err := batch.Exec(bounded)
		cancel()
		if err != nil {
			b.failed(ctx, fmt.Errorf("luatomic: rescue calls on bus %q: %w", b.name, err))
		}
		for i, f := range futures {
			if r, err := f.Get(); err == nil {
				b.rescued(part[i].id, part[i].method, r)
			}
		}
	}
}

func (b *Bus) rescued(id, method string, r gen.RPCRescueResult) {
	switch r.Outcome {
	case gen.RPCRescueOutcomeDone:
		b.receiveStored(r.Frame)
	case gen.RPCRescueOutcomeLost:
		b.deliver(response{id: id, err: lostCall(method, r.Node)})
	case gen.RPCRescueOutcomeMoved, gen.RPCRescueOutcomeAlive:
		b.mu.Lock()
		for w := b.waiters[id]; w != nil; w = w.next {
			w.node = r.Node
		}
		b.mu.Unlock()
		b.hint(r.Node, id)
	}
}

// fetch gets requests that this node should have and does not know. Their names are
// taken first, so that none is fetched twice at a time.
func (b *Bus) fetch(ctx context.Context, ids []string, handlers *sync.WaitGroup) {
	b.mu.Lock()
	unknown := ids[:0]
	for _, id := range ids {
		if b.works[id] == nil {
			b.works[id] = &work{bus: b, parent: ctx, fetched: true}
			unknown = append(unknown, id)
		}
	}
	b.mu.Unlock()
	if len(unknown) == 0 {
		return
	}
	b.spawn(handlers, func() {
		retry := clock.Backoff{First: 10 * time.Millisecond, Last: time.Second}
		for ctx.Err() == nil && !b.fetchOnce(ctx, unknown, handlers) {
			clock.Sleep(ctx, retry.Next())
		}
		b.release(unknown)
	})
}

// collectStored reads what words said is stored.
func (b *Bus) collectStored(ctx context.Context) {
	b.mu.Lock()
	ids := b.stored
	b.stored = nil
	var calls []string
	gathers := make(map[string]*gathering)
	for _, id := range ids {
		if g := b.gathers[id]; g != nil {
			gathers[id] = g
		} else if b.waiters[id] != nil {
			calls = append(calls, id)
		}
	}
	b.mu.Unlock()
	b.collect(ctx, calls)
	for _, g := range gathers {
		b.collectGather(ctx, g, nil)
	}
}

// spawn starts f for as long as Run takes on work.
func (b *Bus) spawn(handlers *sync.WaitGroup, f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closing {
		handlers.Go(f)
	}
}

// release forgets the names of requests that were not there.
func (b *Bus) release(ids []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range ids {
		if w := b.works[id]; w != nil && w.fetched {
			delete(b.works, id)
		}
	}
}

func (b *Bus) fetchOnce(ctx context.Context, ids []string, handlers *sync.WaitGroup) bool {
	var calls []string
	for _, id := range ids {
		if !isGather(id) {
			calls = append(calls, id)
		} else if !b.fetchPart(ctx, id, handlers) {
			return false
		}
	}
	for len(calls) > 0 {
		later, err := b.fetchCalls(ctx, calls, handlers)
		if err != nil {
			b.failed(ctx, fmt.Errorf("luatomic: fetch on bus %q: %w", b.name, err))
			return false
		}
		calls = later
	}
	return true
}

func (b *Bus) fetchCalls(ctx context.Context, ids []string, handlers *sync.WaitGroup) (later []string, err error) {
	records := make([]string, len(ids))
	for i, id := range ids {
		records[i] = b.keys.Record(id)
	}
	bounded, cancel := context.WithTimeout(ctx, b.opts.Lease/3)
	defer cancel()
	rows, err := gen.RPCCollect(bounded, b.client, gen.RPCCollectParams{Records: records, Node: lua.Some(b.node)})
	for i, row := range rows {
		switch {
		case row.State == gen.RPCCollectStateLater:
			later = append(later, ids[i])
		case row.State == gen.RPCCollectStatePending && row.Left > callGrace:
			b.counts.fetched.Add(1)
			if err := b.admit(ctx, row.Attempt, row.Left-callGrace, string(row.Frame), true, handlers); err != nil {
				b.failed(ctx, err)
			}
		}
	}
	return later, err
}
