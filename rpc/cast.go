package rpc

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	rpcscript "github.com/luatomic/luatomic/gen/rpc"
	"github.com/luatomic/luatomic/internal/wire"
	"github.com/luatomic/luatomic/lua"
)

// Cast sends the request to one live node and does not wait: it runs at most once, and there is no reply. It fails with
// ErrNoResponders when no node is subscribed. The handler's error goes to the node's own Options.OnError. A request
// above 64 KiB fails with lua.ErrTooLarge. An error that matches lua.ErrOutcomeUnknown leaves open whether it was sent.
// Cost: one round trip, and no key is written. It needs no Run.
func (m Method[Req, Res]) Cast(ctx context.Context, b *Bus, in Req) error {
	_, err := m.cast(ctx, b, in, false)
	return err
}

// CastAll sends the request to all live nodes that serve the method, 500 in a round trip, and returns how many were
// subscribed, even if an error ends it between two round trips. Everything else is as in Cast.
func (m Method[Req, Res]) CastAll(ctx context.Context, b *Bus, in Req) (int, error) {
	return m.cast(ctx, b, in, true)
}

func (m Method[Req, Res]) cast(ctx context.Context, b *Bus, in Req, all bool) (int, error) {
	body, err := m.encode(b, in)
	if err != nil {
		return 0, err
	}
	if err := (&outgoing{method: m.name}).check(); err != nil {
		return 0, err
	}
	q := wire.Request{Method: m.name, Body: body}
	frame := b.seal(q.Encode())
	if len(frame) > inlineMax {
		err := &lua.SizeError{What: "the request", N: len(frame), Max: inlineMax, Unit: "bytes"}
		return 0, fmt.Errorf("luatomic: cast %q: %w; Call takes up to 1 MiB", m.name, err)
	}
	return m.sendCast(ctx, b, frame, all)
}

func (m Method[Req, Res]) sendCast(ctx context.Context, b *Bus, frame []byte, all bool) (int, error) {
	deadline, _ := b.limit(ctx)
	left := max(time.Until(deadline), time.Millisecond)
	total, after, reason := 0, lua.Opt[string]{}, rpcscript.CastReason(0)
	for {
		r, err := rpcscript.Cast(ctx, b.client, rpcscript.CastParams{
			Nodes: b.keys.Nodes, Methods: b.keys.Methods, Method: m.name, After: after,
			Start: int64(rand.IntN(1 << 30)),
			Frame: frame, Outbox: b.keys.Outbox, Timeout: left, All: all, Shard: b.shard,
		})
		if err != nil {
			return total, fmt.Errorf("luatomic: cast %q: %w", m.name, err)
		}
		total += int(r.Sent)
		// A page without nodes knows nothing of those before it. The later reason is the one that is nearer to a node.
		after, reason = r.Last, max(reason, r.Reason)
		if _, more := after.Get(); !more || !all && total > 0 {
			if total == 0 {
				return 0, refusal(m.name, castReasons[reason])
			}
			return total, nil
		}
	}
}

var castReasons = map[rpcscript.CastReason]rpcscript.DecideOutcome{
	rpcscript.CastReasonNoLease:      rpcscript.DecideOutcomeNoLease,
	rpcscript.CastReasonNoSubscriber: rpcscript.DecideOutcomeNoSubscriber,
}
