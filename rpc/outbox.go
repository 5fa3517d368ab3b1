package rpc

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/lua"
)

// errands are what must be said and nobody waits for. Run says it, many in one round
// trip.
type errands struct {
	mu      sync.Mutex
	wake    chan struct{}
	givenUp []gen.RPCCancelParams
	hints   map[string][]string // ids by the node that should have them
	words   []word
}

// giveUp tells the server and the node that nobody waits any more. mark is for a
// request that may still be on its way: it is refused when it comes.
func (b *Bus) giveUp(method, id string, mark bool) {
	p := gen.RPCCancelParams{
		Record: b.keys.Record(id), Method: b.keys.Method(method),
		Outbox: b.keys.Outbox, Word: b.seal(encodeWord('X', id)), Shard: b.shard,
	}
	if mark {
		// What is sent with others is repeated for longer than its caller waits.
		p.Mark = max(replyKept, 2*(b.opts.Timeout+b.opts.Lease))
	}
	b.errands.mu.Lock()
	b.errands.givenUp = append(b.errands.givenUp, p)
	b.errands.mu.Unlock()
	offer(b.errands.wake)
}

// hint names requests to the node that should have them.
func (b *Bus) hint(node string, ids ...string) {
	b.errands.mu.Lock()
	if b.errands.hints == nil {
		b.errands.hints = make(map[string][]string)
	}
	b.errands.hints[node] = append(b.errands.hints[node], ids...)
	b.errands.mu.Unlock()
	offer(b.errands.wake)
}

// word is what is said on a channel.
type word struct {
	channel string
	kind    byte
	texts   []string
}

func (b *Bus) word(channel string, kind byte, texts ...string) {
	b.errands.mu.Lock()
	b.errands.words = append(b.errands.words, word{channel, kind, texts})
	b.errands.mu.Unlock()
	offer(b.errands.wake)
}

// runErrands goes until ctx ends, and then once more.
func (b *Bus) runErrands(ctx context.Context) {
	for {
		select {
		case <-b.errands.wake:
			b.flushErrands(ctx)
		case <-ctx.Done():
			b.flushErrands(ctx)
			return
		}
	}
}

// maxPart is how many calls share a round trip.
const maxPart = 200

func (b *Bus) flushErrands(ctx context.Context) {
	e := &b.errands
	e.mu.Lock()
	givenUp, hints, words := e.givenUp, e.hints, e.words
	e.givenUp, e.hints, e.words = nil, nil, nil
	e.mu.Unlock()
	// What was begun is said, also when the bus ends meanwhile.
	ctx, cancel := outlasting(ctx, b.opts.Lease)
	defer cancel()
	for _, w := range words {
		b.tell(ctx, w.channel, w.kind, w.texts...)
	}
	for node, ids := range hints {
		b.tell(ctx, b.keys.Outbox+node, 'L', ids...)
	}
	for len(givenUp) > 0 {
		batch := lua.NewBatch(b.client)
		n := min(len(givenUp), maxPart)
		for _, p := range givenUp[:n] {
			gen.RPCCancelIn(batch, p)
		}
		givenUp = givenUp[n:]
		if err := batch.Exec(ctx); err != nil {
			b.failed(ctx, fmt.Errorf("luatomic: give up calls on bus %q: %w", b.name, err))
		}
	}
}

// maxKeys is how many keys one script takes, and how many names one word.
const maxKeys = 500

// tell publishes a word. It is sent again by go-redis where that is needed: words are
// hints.
func (b *Bus) tell(ctx context.Context, channel string, kind byte, texts ...string) {
	for {
		n := min(len(texts), maxKeys)
		publish := b.client.Publish
		if b.shard {
			publish = b.client.SPublish
		}
		if err := publish(ctx, channel, b.seal(encodeWord(kind, texts[:n]...))).Err(); err != nil {
			b.failed(ctx, fmt.Errorf("luatomic: bus %q: %w", b.name, err))
			return
		}
		if texts = texts[n:]; len(texts) == 0 {
			return
		}
	}
}

// tidy takes away the records that callers are done with, when there were no calls to
// carry that.
func (b *Bus) tidy(ctx context.Context) {
	b.mu.Lock()
	records := b.finished
	b.finished = nil
	b.mu.Unlock()
	for len(records) > 0 {
		n := min(len(records), maxKeys)
		if err := b.client.Unlink(ctx, records[:n]...).Err(); err != nil {
			b.failed(ctx, fmt.Errorf("luatomic: tidy bus %q: %w", b.name, err))
			return
		}
		records = records[n:]
	}
}

// takeFinished moves up to n records into dst.
func (b *Bus) takeFinished(dst []string, n int) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	from := max(0, len(b.finished)-n)
	dst = append(dst, b.finished[from:]...)
	b.finished = b.finished[:from]
	return dst
}

// outlasting gives work that must end although ctx has ended a bound of its own.
func outlasting(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), d)
}
