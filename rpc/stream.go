package rpc

import (
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/luatomic/luatomic/gen"
)

// StreamMethod is a call whose result comes in parts.
type StreamMethod[Req, Res any] struct {
	name string
}

// NewStreamMethod names a method whose result comes in parts.
func NewStreamMethod[Req, Res any](name string) StreamMethod[Req, Res] {
	return StreamMethod[Req, Res]{name: name}
}

// Name is the name given to NewStreamMethod.
func (m StreamMethod[Req, Res]) Name() string { return m.name }

// Serve lets this node answer the method with h from now on. Each call of send gives
// the caller one part; while 256 parts have not been read it waits, a third of
// BusOptions.Lease at most, as the word that they were read can be lost. It fails when
// the caller has given up. All else is as in Method.Serve.
func (m StreamMethod[Req, Res]) Serve(b *Bus, h func(ctx context.Context, in Req, send func(Res) error) error) error {
	return b.serve(m.name, func(ctx context.Context, w *work) ([]byte, error) {
		var in Req
		if w.flags&flagStream == 0 {
			return nil, &RemoteError{Code: CodeBadRequest, Message: "the result comes in parts; call it as a StreamMethod"}
		}
		if err := b.opts.Codec.Unmarshal(w.body, &in); err != nil {
			return nil, &RemoteError{Code: CodeBadRequest, Message: err.Error()}
		}
		seq := uint64(0)
		err := h(ctx, in, func(part Res) error {
			body, err := b.opts.Codec.Marshal(part)
			if err == nil {
				err = b.sendChunk(ctx, w, seq+1, body)
			}
			if err == nil {
				seq++
			}
			return err
		})
		return binary.AppendUvarint(nil, seq), err
	})
}

// Call sends the request to one live node and yields the parts of its result in
// order. An error is the last pair; errors are those of Method.Call. To stop early,
// break: the handler's context ends then. The deadline bounds the whole of it.
func (m StreamMethod[Req, Res]) Call(ctx context.Context, b *Bus, in Req) iter.Seq2[Res, error] {
	return func(yield func(Res, error) bool) {
		var none Res
		body, err := b.opts.Codec.Marshal(in)
		if err != nil {
			yield(none, fmt.Errorf("luatomic: call %q: %w", m.name, err))
			return
		}
		stopped := false
		err = b.stream(ctx, &outgoing{method: m.name, body: body, flags: flagStream}, func(part []byte) bool {
			var out Res
			if err := b.opts.Codec.Unmarshal(part, &out); err != nil {
				stopped = true
				yield(none, fmt.Errorf("luatomic: call %q: a part is not a %T: %w", m.name, out, err))
				return false
			}
			stopped = !yield(out, nil)
			return !stopped
		})
		if err != nil && !stopped {
			yield(none, err)
		}
	}
}

// window is how many parts may be stored that the caller has not read.
const window = 256

// stream is the caller's side of a streaming reply. Its fields are guarded by Bus.mu.
type stream struct {
	parts   map[uint64][]byte // by number, not yet handed over
	read    uint64            // the last one handed over
	freed   uint64            // the last one taken away in Redis
	changed chan struct{}
}

func (b *Bus) stream(ctx context.Context, c *outgoing, yield func(part []byte) bool) error {
	if err := c.check(); err != nil {
		return err
	}
	left, _ := b.limit(ctx)
	ctx, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	if err := b.awaitReady(ctx, nil); err != nil {
		return err
	}
	b.counts.calls.Add(1)
	s := &stream{parts: make(map[uint64][]byte), changed: make(chan struct{}, 1)}
	w := b.expect(b.newID(c), c.method, false)
	b.mu.Lock()
	w.stream = s
	b.mu.Unlock()
	node, err := b.send(ctx, c, w.id, left, nil)
	if err != nil {
		err, never := unsent(err)
		b.endStream(c, w, !never)
		return err
	}
	b.asked(w, node)
	whole, err := b.readStream(ctx, w, s, yield)
	b.endStream(c, w, !whole)
	return err
}

// readStream hands over the parts in order until the reply has come and all parts that
// it counts.
func (b *Bus) readStream(ctx context.Context, w *waiter, s *stream, yield func([]byte) bool) (whole bool, err error) {
	last, ended := uint64(0), false
	for {
		for {
			part, ok := b.nextPart(ctx, w, s)
			if !ok {
				break
			}
			if !yield(part) {
				return ended, nil
			}
		}
		if ended && s.read >= last {
			return true, nil
		}
		select {
		case a := <-w.answer:
			if a.err != nil {
				return true, b.drainStream(ctx, w, s, a.err, yield)
			}
			n, size := binary.Uvarint(a.body)
			if size <= 0 {
				return true, errFrame
			}
			last, ended = n, true
			b.mu.Lock()
			missing := s.read+uint64(len(s.parts)) < last
			b.mu.Unlock()
			if missing {
				b.collectChunks(ctx, w.id)
			}
		case <-s.changed:
			if ended { // what did not fit before does now
				b.collectChunks(ctx, w.id)
			}
		case <-ctx.Done():
			return false, fmt.Errorf("luatomic: call %q: not all has come: %w", w.method, context.Cause(ctx))
		}
	}
}

// drainStream hands over what was sent before the failure. Nothing counts these parts:
// those that are stored and were not announced yet are fetched.
func (b *Bus) drainStream(ctx context.Context, w *waiter, s *stream, failure error, yield func([]byte) bool) error {
	for handed := true; handed; {
		b.collectChunks(ctx, w.id)
		handed = false
		for {
			part, ok := b.nextPart(ctx, w, s)
			if !ok {
				break
			}
			if handed = true; !yield(part) {
				return nil
			}
		}
	}
	return failure
}

// nextPart takes the next part, and tells the node now and then how far it is.
func (b *Bus) nextPart(ctx context.Context, w *waiter, s *stream) ([]byte, bool) {
	b.mu.Lock()
	part, ok := s.parts[s.read+1]
	if !ok {
		b.mu.Unlock()
		return nil, false
	}
	delete(s.parts, s.read+1)
	s.read++
	free, node := uint64(0), w.node
	if s.read-s.freed >= window/4 {
		free, s.freed = s.read-s.freed, s.read
	}
	b.mu.Unlock()
	if free > 0 {
		b.freeChunks(ctx, w.id, node, s.read, free)
	}
	return part, true
}

func (b *Bus) freeChunks(ctx context.Context, id, node string, read, n uint64) {
	_, err := gen.RPCRead(ctx, b.client, gen.RPCReadParams{
		Chunks: b.keys.Chunks(id), Read: int64(read), Count: int64(n),
		Word: b.seal(encodeWord('K', id, strconv.FormatUint(read, 10))), Channel: b.keys.Outbox + node, Shard: b.shard,
	})
	if err != nil {
		b.failed(ctx, fmt.Errorf("luatomic: stream on bus %q: %w", b.name, err))
	}
}

func (b *Bus) endStream(c *outgoing, w *waiter, giveUp bool) {
	b.forget(w) // it is not used again
	if giveUp {
		b.giveUp(c.method, w.id, true)
	}
	b.discard(b.keys.Chunks(w.id))
	if !giveUp {
		b.done(w, c)
	}
}

func (b *Bus) receiveChunk(payload string) error {
	c, err := decodeChunk(payload)
	if err == nil {
		b.takeChunk(c)
	}
	return err
}

func (b *Bus) takeChunk(c chunk) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.waiters[c.id]
	if w == nil || w.stream == nil || c.seq <= w.stream.read || c.seq > w.stream.read+2*window {
		return
	}
	w.stream.parts[c.seq] = c.body
	offer(w.stream.changed)
}

// collectChunks reads the parts of a streaming reply that were missed.
func (b *Bus) collectChunks(ctx context.Context, id string) {
	for {
		b.mu.Lock()
		w := b.waiters[id]
		if w == nil || w.stream == nil {
			b.mu.Unlock()
			return
		}
		from := w.stream.read + 1
		for w.stream.parts[from] != nil {
			from++
		}
		full := from > w.stream.read+2*window // it takes none until some are read
		b.mu.Unlock()
		if full {
			return
		}
		frames, err := gen.RPCRead(ctx, b.client, gen.RPCReadParams{Chunks: b.keys.Chunks(id), From: int64(from), Count: maxKeys})
		if err != nil {
			b.failed(ctx, fmt.Errorf("luatomic: stream on bus %q: %w", b.name, err))
			return
		}
		for _, f := range frames {
			payload, err := b.open(string(f))
			if err != nil || b.receiveChunk(payload) != nil {
				b.counts.refused.Add(1)
				return
			}
		}
		if len(frames) == 0 {
			return
		}
	}
}

// sendChunk stores one part, and waits while too many have not been read.
func (b *Bus) sendChunk(ctx context.Context, w *work, seq uint64, body []byte) error {
	if len(body) > maxReply {
		return &RemoteError{Code: CodeTooLarge, Message: fmt.Sprintf("a part has %d bytes, at most %d", len(body), maxReply)}
	}
	c := chunk{id: w.id, seq: seq, body: body}
	left := time.Minute
	if deadline, ok := ctx.Deadline(); ok {
		left = max(time.Until(deadline), 0) + replyKept
	}
	p := gen.RPCChunkParams{
		Record: b.keys.Record(w.id), Chunks: b.keys.Chunks(w.id), Node: b.node, Attempt: w.attempt, Seq: int64(seq),
		Frame: b.seal(c.encode()), Outbox: b.keys.Outbox, Keep: left, Shard: b.shard,
	}
	if len(p.Frame) > inlineMax {
		p.Word = b.seal(encodeWord('N', w.id))
	}
	r, err := gen.RPCChunk(ctx, b.client, p)
	switch {
	case err != nil:
		return fmt.Errorf("luatomic: stream %q: %w", w.method, err)
	case r.State != gen.RPCChunkStateAccepted:
		return errGivenUp
	case r.Stored < window:
		return nil
	}
	return b.awaitCredit(ctx, w, seq)
}

// awaitCredit waits until the caller has read up to a window before seq. The word of
// that can be lost, so it goes on after a while, and the next part counts what is
// stored.
func (b *Bus) awaitCredit(ctx context.Context, w *work, seq uint64) error {
	timer := time.NewTimer(b.opts.Lease / 3)
	defer timer.Stop()
	for {
		b.mu.Lock()
		if w.credit == nil {
			w.credit = make(chan struct{}, 1)
		}
		credit, read := w.credit, w.read
		b.mu.Unlock()
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

// credit notes how far the caller has read.
func (b *Bus) credit(id, read string) {
	n, err := strconv.ParseUint(read, 10, 62)
	b.mu.Lock()
	defer b.mu.Unlock()
	if w := b.works[id]; err == nil && w != nil && n > w.read {
		w.read = n
		if w.credit != nil {
			offer(w.credit)
		}
	}
}
