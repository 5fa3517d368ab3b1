package rpc

import (
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"strconv"
	"time"

	rpcscript "github.com/luatomic/luatomic/gen/rpc"
	"github.com/luatomic/luatomic/internal/clock"
	"github.com/luatomic/luatomic/internal/wire"
)

// StreamMethod is a method whose result comes in parts.
type StreamMethod[Req, Res any] struct {
	name string
}

// NewStreamMethod returns the method of that name, whose result comes in parts. It sends nothing. A bad name is
// reported when the method is served or called.
func NewStreamMethod[Req, Res any](name string) StreamMethod[Req, Res] {
	return StreamMethod[Req, Res]{name: name}
}

// Name is the name given to NewStreamMethod.
func (m StreamMethod[Req, Res]) Name() string { return m.name }

// Serve lets this node answer the method with h from now on. Each call of send gives the caller one part, which is
// stored and published in one script. While the caller has not read 256 parts, or 1 MiB of them, send waits. It fails
// if the caller has given up, and with a *RemoteError with CodeTooLarge if the part is larger than 1 MiB. After an
// error of package lua that leaves open whether the caller has the part, each later send returns that error, and the
// call fails. Calls of send may come from several goroutines; each waits for the one before it. Everything else is as
// in Method.Serve.
func (m StreamMethod[Req, Res]) Serve(
	b *Bus, h func(ctx context.Context, in Req, send func(Res) error) error,
) error {
	if h == nil {
		return noHandler(m.name)
	}
	return b.serve(m.name, nil, func(ctx context.Context, w *work) ([]byte, error) {
		if w.Flags&wire.FlagStream == 0 {
			return nil, &RemoteError{Code: CodeBadRequest,
				Message: "the result comes in parts; call it as a StreamMethod"}
		}
		in, err := decodeAs[Req](b.opts.Codec, w.Body)
		if err != nil {
			return nil, &RemoteError{Code: CodeBadRequest, Message: err.Error()}
		}
		s := sender{bus: b, work: w}
		err = h(ctx, in, func(part Res) error {
			body, err := b.opts.Codec.Marshal(part)
			if err != nil {
				return fmt.Errorf("the part cannot be encoded: %w", err)
			}
			return s.send(ctx, body)
		})
		if err != nil {
			return nil, err
		}
		return s.reply()
	})
}

// Call sends the request to one live node and yields the parts of its result in order. An error is the last pair. The
// errors are those of Method.Call. To stop early, break: then the handler's context ends. The deadline bounds the whole
// stream. Cost: one round trip of the node for each part, and one of the caller for each 64 parts.
func (m StreamMethod[Req, Res]) Call(ctx context.Context, b *Bus, in Req) iter.Seq2[Res, error] {
	return func(yield func(Res, error) bool) {
		var none Res
		body, err := b.opts.Codec.Marshal(in)
		if err != nil {
			yield(none, fmt.Errorf("luatomic: call %q: the request cannot be encoded: %w", m.name, err))
			return
		}
		stopped := false
		c := outgoing{method: m.name, body: body, flags: wire.FlagStream}
		err = b.stream(ctx, &c, func(part []byte) bool {
			out, err := decodeAs[Res](b.opts.Codec, part)
			if err != nil {
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

const (
	// window is how many chunks may be stored that the caller has not read. windowBytes is how large they may be
	// together, without the last one.
	window      = 256
	windowBytes = 1 << 20
)

// stream is the caller's side of a streaming reply. Its fields are guarded by pending.mu.
type stream struct {
	chunks  map[uint64][]byte // by number, not yet yielded
	read    uint64            // the last one yielded
	freed   uint64            // the last one removed from Redis
	held    int               // bytes that were yielded and not removed
	checked int64             // liveness.resubscribed before the last look at Redis that found none to be missed
	changed chan struct{}

	reads context.Context // of its scripts: ends with its reader, and with Run, after which no chunk comes
	end   context.CancelCauseFunc
}

func newStream(ctx context.Context) *stream {
	s := &stream{chunks: make(map[uint64][]byte), changed: make(chan struct{}, 1), checked: neverChecked}
	s.reads, s.end = context.WithCancelCause(ctx)
	return s
}

func (b *Bus) stream(ctx context.Context, c *outgoing, yield func(part []byte) bool) error {
	if err := c.check(); err != nil {
		return err
	}
	deadline, _ := b.limit(ctx)
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	if err := b.awaitReady(ctx, nil); err != nil {
		return err
	}
	w := b.newWaiter(c, deadline)
	w.stream = newStream(ctx)
	defer w.stream.end(nil)
	b.pending.expect(w)
	b.placeFirst(ctx, w)
	whole := false
	defer func() { b.endStream(w, !whole) }() // also where the reader's loop panics
	var err error
	whole, err = b.readStream(ctx, w, yield)
	return err
}

// readStream yields the chunks in order, until the reply has come and all chunks that it counts.
func (b *Bus) readStream(ctx context.Context, w *waiter, yield func([]byte) bool) (whole bool, err error) {
	last, ended := uint64(0), false
	answered := w.answered
	for {
		cut := context.Cause(w.stream.reads) // before the last chunks are yielded
		if _, more := b.yieldChunks(w, yield); !more {
			return ended, nil
		}
		switch {
		case ended && w.stream.read >= last:
			return true, nil
		case ended && cut != nil && ctx.Err() == nil:
			return true, cut
		}
		select {
		case <-answered:
			answered = nil
			if w.out.err != nil {
				return true, b.drainStream(w, w.out.err, yield)
			}
			n, size := binary.Uvarint(w.out.body)
			if size <= 0 || size < len(w.out.body) {
				return true, fmt.Errorf("luatomic: call %q: the reply does not count parts, its handler has run; "+
					"is the method served as a StreamMethod? %w", w.method, wire.ErrMalformed)
			}
			last, ended = n, true
			if b.pending.lacksChunks(w.stream, last) {
				b.readChunks(w.stream.reads, w.id)
			}
		case <-w.stream.changed:
			if ended { // chunks that did not fit before do now
				b.readChunks(w.stream.reads, w.id)
			}
		case <-ctx.Done():
			return false, fmt.Errorf("luatomic: call %q: some parts have not come: %w%s", w.method, endOf(ctx),
				b.pending.whyUnsent(w))
		}
	}
}

// drainStream yields what was sent before the failure. No count of these chunks has come, so it also reads those that
// are stored and not yet published.
func (b *Bus) drainStream(w *waiter, failure error, yield func([]byte) bool) error {
	for {
		b.readChunks(w.stream.reads, w.id)
		n, more := b.yieldChunks(w, yield)
		if !more {
			return nil
		}
		if n == 0 {
			return failure
		}
	}
}

// yieldChunks yields the chunks that have come. It reports false when the reader stops.
func (b *Bus) yieldChunks(w *waiter, yield func([]byte) bool) (n int, more bool) {
	for ; ; n++ {
		body, ok, free := b.pending.nextChunk(w)
		if !ok {
			return n, true
		}
		if free.count > 0 {
			b.freeChunks(w.stream.reads, w, free)
		}
		if !yield(body) {
			return n, false
		}
	}
}

// readMark is what the caller of a stream has read.
type readMark struct {
	node  string
	last  uint64
	count uint64 // chunks to be removed
}

// nextChunk takes the next chunk. After each quarter of a window, the chunks that were read are to be removed from
// Redis.
func (p *pending) nextChunk(w *waiter) (body []byte, ok bool, free readMark) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := w.stream
	if body, ok = s.chunks[s.read+1]; !ok {
		return nil, false, readMark{}
	}
	s.read++
	s.held += len(body)
	delete(s.chunks, s.read)
	if s.read-s.freed >= window/4 || s.held >= windowBytes/4 {
		free = readMark{node: w.node, last: s.read, count: s.read - s.freed}
		s.freed, s.held = s.read, 0
	}
	return body, true, free
}

func (p *pending) lacksChunks(s *stream, last uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return s.read+uint64(len(s.chunks)) < last
}

// deliverChunk passes a chunk to its stream, which takes at most two windows.
func (p *pending) deliverChunk(c *wire.Chunk) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.streamLocked(c.ID)
	if s == nil || c.Seq <= s.read || c.Seq > s.read+2*window {
		return
	}
	s.chunks[c.Seq] = c.Body
	offer(s.changed)
}

// streamLocked returns the stream of a call that waits, or nil.
func (p *pending) streamLocked(id string) *stream {
	if w := p.calls[id]; w != nil {
		return w.stream
	}
	return nil
}

// firstGap returns the number of the first chunk that has not come. ok is false if the stream has ended, or takes no
// chunks until some are read.
func (p *pending) firstGap(id string) (seq uint64, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.streamLocked(id); s != nil {
		return s.gapLocked()
	}
	return 0, false
}

func (s *stream) gapLocked() (seq uint64, ok bool) {
	for seq = s.read + 1; s.chunks[seq] != nil; seq++ {
	}
	return seq, seq <= s.read+2*window
}

// doubtedGap is firstGap for a stream that may have missed this chunk: a later one has come, or a node has subscribed
// anew since Redis was asked.
func (p *pending) doubtedGap(id string, resubscribed int64) (seq uint64, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.streamLocked(id)
	if s == nil {
		return 0, false
	}
	seq, ok = s.gapLocked()
	return seq, ok && (s.checked != resubscribed || s.read+uint64(len(s.chunks)) >= seq)
}

// neverChecked makes the next heartbeat look for chunks that a stream has missed.
const neverChecked = -1

// noteChecked records when Redis had no chunk that the stream lacked.
func (p *pending) noteChecked(id string, resubscribed int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.streamLocked(id); s != nil {
		s.checked = resubscribed
	}
}

// freeChunks removes chunks that were read and notifies the node. It tries until the reply has come: until then the
// node sends only as many parts as may be unread, and nothing else tells it that these were read.
func (b *Bus) freeChunks(ctx context.Context, w *waiter, m readMark) {
	p := rpcscript.ReadParams{
		Chunks: b.keys.Chunks(w.id), Read: int64(m.last), Count: int64(m.count), Shard: b.shard,
		Notice: b.notice(wire.ChunksRead, w.id, strconv.FormatUint(m.last, 10)), Channel: b.keys.Outbox + m.node,
	}
	retry := clock.Backoff{First: 20 * time.Millisecond, Last: time.Second}
	for tries := 0; ; tries++ {
		_, err := rpcscript.Read(ctx, b.client, p)
		if err == nil {
			return
		}
		if tries == 0 {
			b.report(ctx, fmt.Errorf("luatomic: remove parts of a stream on bus %q: %w", b.name, err))
		}
		select {
		case <-time.After(retry.Next()):
		case <-w.answered:
			return
		case <-ctx.Done():
			return
		}
	}
}

// readChunks reads the missed chunks of a streaming reply, until a read fills no gap. If it fails, a heartbeat makes it
// run again, because the message that announced a large chunk does not come twice.
func (b *Bus) readChunks(ctx context.Context, id string) {
	for before := uint64(0); ; {
		from, ok := b.pending.firstGap(id)
		if !ok || from == before {
			return
		}
		before = from
		frames, err := rpcscript.Read(ctx, b.client, rpcscript.ReadParams{
			Chunks: b.keys.Chunks(id), From: int64(from), Count: maxKeys,
		})
		if err != nil {
			b.pending.noteChecked(id, neverChecked)
			b.report(ctx, fmt.Errorf("luatomic: read parts of a stream on bus %q: %w", b.name, err))
			return
		}
		for _, f := range frames {
			if b.receiveStored(f) != nil {
				return
			}
		}
	}
}

func (b *Bus) endStream(w *waiter, cancel bool) {
	b.pending.forget(w)
	b.pending.discard(b.keys.Chunks(w.id))
	if cancel {
		b.giveUp(w)
	} else {
		_, _ = b.finish(w)
	}
}
