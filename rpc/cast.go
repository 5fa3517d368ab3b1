package rpc

import (
	"context"
	"fmt"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/wire"
	"github.com/luatomic/luatomic/lua"
)

// Cast sends the request to one live node and does not wait: it runs at most once, and there is no answer. It fails
// with ErrNoResponders when no node is subscribed. The handler's error goes to the node's own Options.OnError. A
// request above 64 KiB fails with lua.ErrTooLarge. An error that matches lua.ErrOutcomeUnknown leaves open whether it
// was sent. Cost: one round trip, and no key is written. It needs no Run.
func (m Method[Req, Res]) Cast(ctx context.Context, b *Bus, in Req) error {
	_, err := m.cast(ctx, b, in, false)
	return err
}

// CastAll sends the request to all live nodes that serve the method, and returns how many received it. All else is as
// in Cast.
func (m Method[Req, Res]) CastAll(ctx context.Context, b *Bus, in Req) (int, error) {
	return m.cast(ctx, b, in, true)
}

func (m Method[Req, Res]) cast(ctx context.Context, b *Bus, in Req, all bool) (int, error) {
	body, err := m.encode(b, in)
	if err != nil {
		return 0, err
	}
	c := outgoing{method: m.name, body: body}
	if err := c.check(); err != nil {
		return 0, err
	}
	q := wire.Request{Method: m.name, Body: body}
	frame := b.seal(q.Encode())
	if len(frame) > inlineMax {
		err := &lua.SizeError{What: "the request", N: len(frame), Max: inlineMax, Unit: "bytes"}
		return 0, fmt.Errorf("luatomic: cast %q: %w; Call takes up to 1 MiB", m.name, err)
	}
	left, _ := b.limit(ctx)
	r, err := gen.RPCCast(ctx, b.client, gen.RPCCastParams{
		Nodes: b.keys.Nodes, Method: b.keys.Method(m.name), Frame: frame,
		Outbox: b.keys.Outbox, Timeout: left, All: all, Shard: b.shard,
	})
	if err != nil {
		return 0, fmt.Errorf("luatomic: cast %q: %w", m.name, err)
	}
	if r.Sent == 0 {
		err, _ := unwrapNotSent(refusal(m.name, gen.RPCDirectOutcome(r.Reason)))
		return 0, err
	}
	return int(r.Sent), nil
}
