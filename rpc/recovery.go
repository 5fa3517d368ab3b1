package rpc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/redis/go-redis/v9"

	rpcscript "github.com/luatomic/luatomic/gen/rpc"
	"github.com/luatomic/luatomic/internal/servers"
	"github.com/luatomic/luatomic/internal/show"
	"github.com/luatomic/luatomic/lua"
)

// runStored reads parts that are stored and were announced. It is a loop of its own, so that these reads delay no
// decision about calls.
func (b *Bus) runStored(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.pending.arrived:
			for _, id := range b.pending.takeStored() {
				b.readChunks(ctx, id)
			}
		}
	}
}

// runRecovery checks the calls of this process each time that it is asked to. It reads missed replies from their
// records, names requests to nodes that missed them, and asks the server to decide about the calls of dead nodes.
func (b *Bus) runRecovery(ctx context.Context) {
	seen := b.liveness.resubscribed.Load()
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.pending.check:
		}
		if now := b.liveness.resubscribed.Load(); now != seen {
			seen = now
			b.counts.resyncs.Add(1)
			b.readMissed(ctx, b.pending.olderThan(0))
		}
		if ids := b.pending.olderThan(b.opts.Lease / 4); len(ids) > 0 {
			b.rescue(ctx)
			b.readMissed(ctx, b.pending.olderThan(b.opts.Lease/2))
		}
	}
}

// readMissed reads what calls may have missed: parts of streams, and records.
func (b *Bus) readMissed(ctx context.Context, ids []string) {
	for part := range slices.Chunk(ids, maxKeys) {
		missed, err := b.missedChunks(ctx, part)
		for _, id := range missed {
			b.readChunks(ctx, id)
		}
		if err != nil {
			b.report(ctx, fmt.Errorf("luatomic: look for parts of streams on bus %q: %w", b.name, show.Unquoted(err)))
			break
		}
	}
	b.readRecords(ctx, ids)
}

// missedChunks returns the streams that have missed chunks: the first chunk that has not come is stored. It asks about
// all streams in one round trip. It skips a stream that it has asked about and that can have missed nothing since.
func (b *Bus) missedChunks(ctx context.Context, ids []string) (missed []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, b.opts.Lease/3)
	defer cancel()
	resubscribed := b.liveness.resubscribed.Load()
	var streams []string
	var stored []*redis.BoolCmd
	for _, id := range ids {
		if gap, ok := b.pending.doubtedGap(id, resubscribed); ok {
			streams = append(streams, id)
			stored = append(stored, redis.NewBoolCmd(ctx, "hexists", b.keys.Chunks(id), gap))
		}
	}
	if len(streams) > 0 {
		err = servers.ReadAll(ctx, b.client, stored)
	}
	for i, id := range streams {
		switch {
		case stored[i].Val():
			missed = append(missed, id)
		case err == nil:
			b.pending.noteChecked(id, resubscribed)
		}
	}
	return missed, err
}

// readRecords reads the records of calls. It delivers replies. It names a pending request to its node, which may have
// missed it.
func (b *Bus) readRecords(ctx context.Context, ids []string) {
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

// readSome reads records and returns the ids that did not fit into one reply of the server.
func (b *Bus) readSome(ctx context.Context, ids []string) (later []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, b.opts.Lease/3)
	defer cancel()
	calls := make([][]atNode, len(ids)) // as they are before the records are read
	for i, id := range ids {
		calls[i] = b.pending.atNodes(id)
	}
	rows, err := b.collect(ctx, ids, lua.Opt[string]{})
	for i, row := range rows {
		if row.State == rpcscript.CollectStateLater {
			later = append(later, ids[i])
			continue
		}
		b.recorded(ids[i], calls[i], row)
	}
	return later, err
}

// recorded handles what the record of a call said. calls are the calls that a node had when the record was read. An end
// that no node has sent ends only these, not a later call with the same idempotency key.
func (b *Bus) recorded(id string, calls []atNode, row rpcscript.CollectRow) {
	switch row.State {
	case rpcscript.CollectStateDone, rpcscript.CollectStateRefused, rpcscript.CollectStateLost:
		if len(row.Frame) == 0 { // another caller with the same key found that the node is dead
			for _, call := range calls {
				b.pending.lose(call, lostCall(call.method, row.Node))
			}
		} else if err := b.receiveStored(row.Frame); err != nil {
			b.pending.deliver(id,
				outcome{err: fmt.Errorf("luatomic: call %q: the reply that is stored cannot be read: %w",
					b.pending.methodOf(id), err)})
		}
	case rpcscript.CollectStatePending:
		if len(calls) > 0 {
			b.outbox.remind(row.Node, id)
		}
	case rpcscript.CollectStateMissing: // Redis has lost it, so no reply can be accepted any more
		for _, call := range calls {
			b.pending.lose(call, fmt.Errorf("luatomic: call %q: its record is lost, the handler may have run: "+
				"%w: %s", call.method, ErrNodeLost, call.node))
		}
	}
}

// rescue asks the server to decide about the calls of nodes that do not seem to be alive.
func (b *Bus) rescue(ctx context.Context) {
	byNode := b.pending.byNode()
	for names := range slices.Chunk(slices.Sorted(maps.Keys(byNode)), maxKeys) {
		leases, err := b.readLeases(ctx, names)
		if err != nil {
			b.report(ctx, fmt.Errorf("luatomic: read leases of bus %q: %w", b.name, err))
			return
		}
		now := float64(b.liveness.clock.after(0))
		for i, name := range names {
			if leases[i] > now {
				continue
			}
			for _, first := range byNode[name] {
				for _, w := range b.pending.refuse(first.id, name, nil, true) {
					go b.place(context.WithoutCancel(ctx), w)
				}
			}
		}
	}
}

// readLeases returns the ends of the nodes' leases in one round trip, and 0 for a node without a lease. The result is
// only a hint: the script that decides reads the lease itself.
func (b *Bus) readLeases(ctx context.Context, names []string) ([]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, b.opts.Lease/3)
	defer cancel()
	scores := make([]*redis.FloatCmd, len(names))
	for i, name := range names {
		scores[i] = redis.NewFloatCmd(ctx, "zscore", b.keys.Nodes, name)
	}
	if err := servers.ReadAll(ctx, b.client, scores); err != nil && !errors.Is(err, redis.Nil) {
		return nil, err
	}
	leases := make([]float64, len(names))
	for i, s := range scores {
		leases[i] = s.Val()
	}
	return leases, nil
}
