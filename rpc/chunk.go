package rpc

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	rpcscript "github.com/luatomic/luatomic/gen/rpc"
	"github.com/luatomic/luatomic/internal/send"
	"github.com/luatomic/luatomic/internal/wire"
)

// errGivenUp is the error of a handler that sends parts after its caller gave up.
var errGivenUp = fmt.Errorf("luatomic: the caller gave up: %w", context.Canceled)

// sender numbers the parts of one stream.
type sender struct {
	bus  *Bus
	work *work

	mu     sync.Mutex // held while a part is sent
	sent   uint64
	failed error // of a part that the caller may have: its number is taken, and no part can follow it
}

// send gives the caller one part, and waits while too many parts are unread.
func (s *sender) send(ctx context.Context, body []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		return s.failed
	}
	if err := s.bus.sendChunk(ctx, s.work, s.sent+1, body); err != nil {
		if !isRefusal(err) && err != errGivenUp {
			s.failed = err
		}
		return err
	}
	s.sent++
	return s.bus.awaitCredit(ctx, s.work)
}

// reply is the reply to the call: how many parts there are. It is an error if that is not known.
func (s *sender) reply() ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return binary.AppendUvarint(nil, s.sent), s.failed
}

// sendChunk stores and publishes one part.
func (b *Bus) sendChunk(ctx context.Context, w *work, seq uint64, body []byte) error {
	if len(body) > maxReply {
		message := fmt.Sprintf("a part has %d bytes, at most %d", len(body), maxReply)
		return &RemoteError{Code: CodeTooLarge, Message: message}
	}
	c := wire.Chunk{ID: w.ID, Seq: seq, Body: body}
	frame := b.seal(c.Encode())
	var notice []byte
	if len(frame) > inlineMax {
		notice = b.notice(wire.PartStored, w.ID)
	}
	r, err := rpcscript.Chunk(ctx, b.client, rpcscript.ChunkParams{
		Record: b.keys.Record(w.ID), Chunks: b.keys.Chunks(w.ID), Node: b.Node(), Attempt: w.Attempt, Seq: int64(seq),
		Frame: frame, Notice: notice, Outbox: b.keys.Outbox, Shard: b.shard,
		Keep: max(time.Until(w.deadline), 0) + replyKept,
	})
	switch {
	case err != nil:
		return fmt.Errorf("luatomic: stream %q: %w", w.Method, err)
	case r != rpcscript.ChunkResultAccepted:
		return errGivenUp
	}
	b.serving.sent(w, len(body))
	return nil
}

// awaitCredit waits until the caller has read enough of what was sent. The notice of that can be lost, so awaitCredit
// asks the server from time to time.
func (b *Bus) awaitCredit(ctx context.Context, w *work) error {
	credit, open := w.creditSoFar()
	if open {
		return nil // most parts wait for nothing
	}
	tick := time.NewTicker(b.opts.Lease / 3)
	defer tick.Stop()
	for ; !open; _, open = w.creditSoFar() {
		select {
		case <-credit:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
			b.readCredit(ctx, w.ID)
		}
	}
	return nil
}

// readCredit asks the server which part the caller has read last.
func (b *Bus) readCredit(ctx context.Context, id string) {
	get := redis.NewStringCmd(ctx, "hget", b.keys.Chunks(id), "0")
	if b.reads.Do(ctx, get, 0) != send.Sent {
		return
	}
	if read, err := get.Uint64(); err == nil {
		b.serving.credit(id, read)
	}
}

// sent records the size of a part.
func (s *serving) sent(w *work, size int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.unread = append(w.unread, size)
	w.unreadBytes += size
	w.settleLocked()
}

// creditSoFar reports whether another part may be sent, and returns a channel that is filled when parts were read.
func (w *work) creditSoFar() (changed <-chan struct{}, open bool) {
	w.bus.serving.mu.Lock()
	defer w.bus.serving.mu.Unlock()
	if w.credit == nil {
		w.credit = make(chan struct{}, 1)
	}
	return w.credit, len(w.unread) < window && w.unreadBytes < windowBytes
}

// credit records the last part that the caller has read. It accepts one more than the parts known to be sent: when the
// server's answer is slow, the caller reads a part before it.
func (s *serving) credit(id string, read uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.works[id]
	if w == nil || read <= w.credited || read-w.read > uint64(len(w.unread))+1 {
		return
	}
	w.credited = read
	w.settleLocked()
	if w.credit != nil {
		offer(w.credit)
	}
}

// settleLocked forgets the parts that the caller has read.
func (w *work) settleLocked() {
	n := min(int(w.credited-w.read), len(w.unread))
	for _, size := range w.unread[:n] {
		w.unreadBytes -= size
	}
	w.read, w.unread = w.read+uint64(n), w.unread[n:]
}
