package rpc

import (
	"context"
	"fmt"
	"time"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/wire"
)

// errGivenUp is the error of a handler that sends parts after its caller gave up.
var errGivenUp = fmt.Errorf("luatomic: the caller gave up: %w", context.Canceled)

// sendChunk stores and publishes one part, and waits while too many parts have not been read.
func (b *Bus) sendChunk(ctx context.Context, w *work, seq uint64, body []byte) error {
	if len(body) > maxReply {
		message := fmt.Sprintf("a part has %d bytes, at most %d", len(body), maxReply)
		return &RemoteError{Code: CodeTooLarge, Message: message}
	}
	keep := time.Minute
	if deadline, ok := ctx.Deadline(); ok {
		keep = max(time.Until(deadline), 0) + replyKept
	}
	c := wire.Chunk{ID: w.ID, Seq: seq, Body: body}
	frame := b.seal(c.Encode())
	r, err := gen.RPCChunk(ctx, b.client, gen.RPCChunkParams{
		Record: b.keys.Record(w.ID), Chunks: b.keys.Chunks(w.ID), Node: b.node, Attempt: w.Attempt, Seq: int64(seq),
		Frame: frame, Notice: b.ifLarge(frame, wire.ReplyStored, w.ID), Outbox: b.keys.Outbox, Keep: keep, Shard: b.shard,
	})
	switch {
	case err != nil:
		return fmt.Errorf("luatomic: stream %q: %w", w.Method, err)
	case r.State != gen.RPCChunkStateAccepted:
		return errGivenUp
	case r.Stored < window:
		return nil
	}
	return w.awaitCredit(ctx, seq, b.opts.Lease/3)
}

// awaitCredit waits until the caller has read up to a window before seq, at most d: the notice of that can be lost. The
// next part counts again what is stored.
func (w *work) awaitCredit(ctx context.Context, seq uint64, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		credit, read := w.creditSoFar()
		if seq < read+window {
			return nil
		}
		select {
		case <-credit:
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (w *work) creditSoFar() (changed <-chan struct{}, read uint64) {
	w.serving.mu.Lock()
	defer w.serving.mu.Unlock()
	if w.credit == nil {
		w.credit = make(chan struct{}, 1)
	}
	return w.credit, w.read
}

// credit notes how many chunks the caller has read.
func (s *serving) credit(id string, read uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.works[id]; w != nil && read > w.read {
		w.read = read
		if w.credit != nil {
			offer(w.credit)
		}
	}
}
