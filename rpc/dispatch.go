package rpc

import (
	"context"
	"fmt"
	"time"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/wire"
	"github.com/luatomic/luatomic/lua"
)

// dispatch hands the call to the server, and notes which node has it.
func (b *Bus) dispatch(
	ctx context.Context, c *outgoing, w *waiter, left time.Duration, expired <-chan time.Time,
) error {
	q := wire.Request{ID: w.id, Method: c.method, Flags: c.flags, Body: c.body}
	if c.Key != "" {
		q.Keep = c.Keep
	}
	frame := b.seal(q.Encode())
	if expired != nil {
		// go-redis may send the script again for as long as the call waits.
		ctx = &bounded{ctx, time.Now().Add(left)}
	}
	params := gen.RPCCallParams{
		Nodes: b.keys.Nodes, Method: b.keys.Method(c.method), Record: w.record,
		Frame: frame, Notice: b.ifLarge(frame, wire.RequestStored, w.id), Caller: b.node, Outbox: b.keys.Outbox,
		Timeout: left, Keep: left + callGrace, Shard: b.shard,
	}
	node, err := b.place(ctx, c, w.id, &params, expired)
	if err != nil {
		return err
	}
	if b.pending.askedNode(w, node, b.liveness.resubscribed.Load()) {
		b.outbox.remind(node, w.id)
	}
	return nil
}

// place finds a node for the call. It tries again where a cluster moves the bus, and where an earlier call with the
// same idempotency key ended at this moment.
func (b *Bus) place(
	ctx context.Context, c *outgoing, id string, params *gen.RPCCallParams, expired <-chan time.Time,
) (node string, err error) {
	for range 4 {
		r, err := b.ask(ctx, c, params, expired)
		if err != nil {
			return "", fmt.Errorf("luatomic: call %q: %w", c.method, err)
		}
		switch r.Outcome {
		case gen.RPCDirectOutcomeSent:
			return r.Node, nil
		case gen.RPCDirectOutcomeKnown:
			if c.Key == "" {
				return r.Node, nil // an earlier attempt sent it, whose answer was lost
			}
			node, ended, err := b.waitForSameKey(ctx, c, params.Record)
			if !ended {
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
	return "", fmt.Errorf(
		"luatomic: call %q: the calls with this key ended one after the other; call again: %w", c.method, ErrNodeLost)
}

// moving reports whether the slot of the bus may have moved so recently that live nodes have not followed. Each follows
// within a third of its lease, with its next heartbeat, once its client knows the new state of the cluster. Until then
// a missing subscriber does not mean that the node is dead.
func (b *Bus) moving() bool { return b.shard && b.link.Moved(max(b.opts.Lease/2, time.Second)) }

// ask runs the script that sends the call.
func (b *Bus) ask(
	ctx context.Context, c *outgoing, p *gen.RPCCallParams, expired <-chan time.Time,
) (gen.RPCDirectResult, error) {
	if !c.targeted() {
		r, err := b.sender.call(ctx, p, expired)
		return gen.RPCDirectResult{Outcome: gen.RPCDirectOutcome(r.Outcome), Node: r.Node}, err
	}
	direct := gen.RPCDirectParams{
		Nodes: p.Nodes, Method: p.Method, Record: p.Record, Frame: p.Frame, Notice: p.Notice,
		Caller: p.Caller, Outbox: p.Outbox, Timeout: p.Timeout, Keep: p.Keep, Shard: p.Shard, Trust: p.Trust,
	}
	if c.Connection != "" {
		direct.Bindings = []string{b.keys.Connection(c.Connection)}
	} else {
		direct.Target = lua.Some(c.Node)
	}
	return gen.RPCDirect(ctx, b.client, direct)
}

// waitForSameKey makes this process one of the callers of a call that has its idempotency key. ended reports that this
// call is finished or lost by now, and may be made anew.
func (b *Bus) waitForSameKey(ctx context.Context, c *outgoing, record string) (node string, ended bool, err error) {
	r, err := gen.RPCAttach(ctx, b.client, gen.RPCAttachParams{Record: record, Caller: b.node})
	switch {
	case err != nil:
		return "", false, fmt.Errorf("luatomic: call %q: %w", c.method, err)
	case r.State == gen.RPCAttachStateMissing, r.State == gen.RPCAttachStateLost:
		return "", true, nil
	case r.State == gen.RPCAttachStateDone:
		_ = b.receiveStored(r.Frame) // a frame that is refused is counted
	}
	return r.Node, false, nil
}
