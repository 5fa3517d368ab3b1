package rpc

import (
	"context"
	"strconv"

	"github.com/luatomic/luatomic/internal/wire"
)

// receive takes one message of the link. It runs for one message at a time.
func (b *Bus) receive(s *session, payload string) {
	if payload == "" {
		return
	}
	frame, err := wire.Decode(payload, &b.sealer)
	if err != nil {
		b.counts.refused.Add(1)
		b.report(s.ctx, err)
		return
	}
	switch f := frame.(type) {
	case *wire.Request:
		b.admit(s, f, false)
	case *wire.Answer:
		b.pending.deliver(f.ID, outcome{f.Body, remoteError(f.Failure)})
	case *wire.Part:
		b.pending.deliverPart(f)
	case *wire.Chunk:
		b.pending.deliverChunk(f)
	case *wire.Notice:
		b.heed(s, f)
	}
}

// receiveStored takes the answer, part or chunk that was read from a record.
func (b *Bus) receiveStored(frame []byte) error {
	decoded, err := wire.Decode(string(frame), &b.sealer)
	switch f := decoded.(type) {
	case *wire.Answer:
		b.pending.deliver(f.ID, outcome{f.Body, remoteError(f.Failure)})
	case *wire.Part:
		b.pending.deliverPart(f)
	case *wire.Chunk:
		b.pending.deliverChunk(f)
	case *wire.Request, *wire.Notice:
		err = wire.ErrMalformed
	}
	if err != nil {
		b.counts.refused.Add(1)
	}
	return err
}

// heed does what a notice asks for. Decode has checked the number of its texts.
func (b *Bus) heed(s *session, n *wire.Notice) {
	switch n.Kind {
	case wire.Echo:
		b.liveness.hasEchoed()
	case wire.ReplyStored:
		b.pending.markStored(n.Texts)
	case wire.RequestStored:
		b.fetch(s, n.Texts)
	case wire.Cancelled:
		b.serving.cancel(n.Texts[0], context.Canceled)
	case wire.ChunksRead:
		if read, err := strconv.ParseUint(n.Texts[1], 10, 62); err == nil {
			b.serving.credit(n.Texts[0], read)
		}
	case wire.Subscribed:
		b.liveness.resubscribed.Add(1)
		if ids := b.pending.expectedFrom(n.Texts[0]); len(ids) > 0 {
			b.outbox.remind(n.Texts[0], ids...)
		}
	case wire.Left:
		offer(b.pending.check)
	}
}
