package rpc

import (
	"context"
	"fmt"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/lua"
)

// Cast sends the request to one live node and does not wait: at most once, no answer.
// It ends with ErrNoResponders when nobody is there to hear it. The handler's error
// goes to the node's own OnError. A request above 64 KiB is too large for it. An error
// that matches lua.ErrOutcomeUnknown leaves open whether it was sent.
func (m Method[Req, Res]) Cast(ctx context.Context, b *Bus, in Req) error {
	_, err := m.cast(ctx, b, in, false)
	return err
}

// CastAll sends the request to all live nodes that serve the method, at most once
// each, and says how many heard it.
func (m Method[Req, Res]) CastAll(ctx context.Context, b *Bus, in Req) (int, error) {
	return m.cast(ctx, b, in, true)
}

func (m Method[Req, Res]) cast(ctx context.Context, b *Bus, in Req, all bool) (int, error) {
	body, err := m.body(b, in)
	if err != nil {
		return 0, err
	}
	c := outgoing{method: m.name, body: body}
	if err := c.check(); err != nil {
		return 0, err
	}
	q := request{method: m.name, body: body}
	frame := b.seal(q.encode())
	if len(frame) > inlineMax {
		return 0, fmt.Errorf("luatomic: cast %q: %w", m.name, &lua.SizeError{What: "the request", N: len(frame), Max: inlineMax, Unit: "bytes"})
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
		err, _ := unsent(refusal(m.name, gen.RPCDirectOutcome(r.Reason)))
		return 0, err
	}
	return int(r.Sent), nil
}
