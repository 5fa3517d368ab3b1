package rpc

import (
	"context"
	"errors"
	"strconv"

	"github.com/luatomic/luatomic/internal/wire"
)

// receive handles one message of the link. It runs for one message at a time.
func (b *Bus) receive(s *session, message string) {
	for message != "" {
		item, rest, err := wire.Next(message)
		if err != nil {
			b.refused(s, err)
			return
		}
		b.receiveItem(s, item)
		message = rest
	}
}

func (b *Bus) receiveItem(s *session, item string) {
	frame, err := wire.Decode(item, &b.sealer)
	if err != nil {
		b.refused(s, err)
		return
	}
	switch f := frame.(type) {
	case *wire.Request:
		b.admit(s, f, nil)
	case *wire.Notice:
		b.heed(s, f)
	default:
		b.deliver(frame)
	}
}

// refused counts a frame that is not accepted. If the frame is a request that cannot be read, it answers.
func (b *Bus) refused(s *session, err error) {
	b.counts.refused.Add(1)
	b.report(s.ctx, err)
	var e *wire.UnreadableError
	if !errors.As(err, &e) {
		return
	}
	if e.Request {
		b.refuse(s, e)
		return
	}
	method := b.pending.methodOf(e.ID)
	b.pending.deliver(e.ID, outcome{err: unreadable(method, "the handler may have run", err)})
}

// deliver passes an answer, or a part of one, to the call that waits for it.
func (b *Bus) deliver(frame wire.Frame) {
	switch f := frame.(type) {
	case *wire.Answer:
		b.directory.heard(f.Ext.Node, f.Ext.Load)
		switch {
		case f.Failure == nil && f.Ext.Beside != "":
			go b.collectBody(f)
		case f.Failure == nil || f.Ext.State == wire.StateDone:
			b.pending.deliver(f.ID, outcome{f.Body, remoteError(f), f.Ext})
		case f.Ext.State == wire.StateLost:
			b.pending.deliver(f.ID, outcome{err: leftHalfway(b.pending.methodOf(f.ID), f), ext: f.Ext})
		default:
			b.refusedBy(f)
		}
	case *wire.Chunk:
		b.pending.deliverChunk(f)
	}
}

// receiveStored handles the answer or chunk that was read from a record.
func (b *Bus) receiveStored(frame []byte) error {
	decoded, err := wire.Decode(string(frame), &b.sealer)
	switch decoded.(type) {
	case *wire.Request, *wire.Notice, *wire.Body:
		err = wire.ErrMalformed
	}
	if err != nil {
		b.counts.refused.Add(1)
		return err
	}
	b.deliver(decoded)
	return nil
}

// heed does what a notice asks for. Decode has checked the number of its texts.
func (b *Bus) heed(s *session, n *wire.Notice) {
	switch n.Kind {
	case wire.Echo:
		b.liveness.hasEchoed(len(n.Texts) > 0)
	case wire.PartStored:
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
	case wire.Moved:
		b.serving.spawn(s, func() { b.checkOwner(s, n.Texts[0]) })
	}
}
