package rpc

import (
	"context"
	"fmt"
	"sync"
	"time"

	rpcscript "github.com/luatomic/luatomic/gen/rpc"
	"github.com/luatomic/luatomic/internal/show"
	"github.com/luatomic/luatomic/internal/wire"
	"github.com/luatomic/luatomic/lua"
)

// outbox holds messages that no caller waits for. Run sends them in batches.
type outbox struct {
	filled chan struct{}

	mu        sync.Mutex
	cancelled []rpcscript.CancelParams
	reminders map[string][]string // ids of requests by the node that should have them
	notices   []outNotice
}

// outNotice is a notice for a channel.
type outNotice struct {
	channel string
	wire.Notice
}

func (o *outbox) init() { o.filled = make(chan struct{}, 1) }

// remind tells a node which stored requests it should have. The node fetches those that it does not know.
func (o *outbox) remind(node string, ids ...string) {
	o.mu.Lock()
	if o.reminders == nil {
		o.reminders = make(map[string][]string)
	}
	o.reminders[node] = append(o.reminders[node], ids...)
	o.mu.Unlock()
	offer(o.filled)
}

func (o *outbox) add(channel string, kind wire.NoticeKind, texts ...string) {
	o.mu.Lock()
	o.notices = append(o.notices, outNotice{channel, wire.Notice{Kind: kind, Texts: texts}})
	o.mu.Unlock()
	offer(o.filled)
}

// cancel lets the outbox withdraw a call soon, at the server and at the node.
func (b *Bus) cancel(w *waiter) {
	p := b.cancellation(w)
	b.outbox.mu.Lock()
	b.outbox.cancelled = append(b.outbox.cancelled, p)
	b.outbox.mu.Unlock()
	offer(b.outbox.filled)
}

// cancellation returns the parameters that cancel a call. A copy of the request that is still on its way is refused
// when it arrives: by the mark until the request's end, and by that end afterwards.
func (b *Bus) cancellation(w *waiter) rpcscript.CancelParams {
	return rpcscript.CancelParams{
		Record: w.record, Outbox: b.keys.Outbox, Notice: b.notice(wire.Cancelled, w.id), Shard: b.shard,
		Mark: max(time.Until(w.deadline), 0) + replyKept,
	}
}

// runOutbox sends until ctx ends, and then once more.
func (b *Bus) runOutbox(ctx context.Context) {
	for {
		select {
		case <-b.outbox.filled:
			b.flushOutbox(ctx)
		case <-ctx.Done():
			b.flushOutbox(ctx)
			return
		}
	}
}

func (b *Bus) flushOutbox(ctx context.Context) {
	o := &b.outbox
	o.mu.Lock()
	cancelled, reminders, notices := o.cancelled, o.reminders, o.notices
	o.cancelled, o.reminders, o.notices = nil, nil, nil
	o.mu.Unlock()
	// What was taken out is sent, also when the bus ends meanwhile.
	ctx, cancel := outlasting(ctx, b.opts.Lease)
	defer cancel()
	for _, n := range notices {
		b.publish(ctx, n.channel, n.Kind, n.Texts...)
	}
	for node, ids := range reminders {
		b.publish(ctx, b.keys.Outbox+node, wire.RequestStored, ids...)
	}
	b.sendCancelled(ctx, cancelled)
	b.removeFinished(ctx)
}

// maxBatch is how many scripts share a pipeline.
const maxBatch = 200

func (b *Bus) sendCancelled(ctx context.Context, cancelled []rpcscript.CancelParams) {
	for len(cancelled) > 0 {
		batch := lua.NewBatch(b.client)
		n := min(len(cancelled), maxBatch)
		for _, p := range cancelled[:n] {
			rpcscript.CancelIn(batch, p)
		}
		cancelled = cancelled[n:]
		if err := batch.Exec(ctx); err != nil {
			b.report(ctx, fmt.Errorf("luatomic: cancel calls on bus %q: %w", b.name, err))
		}
	}
}

// publish sends a notice, as several notices if it has many texts. go-redis sends it again if an answer is lost. A
// notice that comes twice does no harm.
func (b *Bus) publish(ctx context.Context, channel string, kind wire.NoticeKind, texts ...string) {
	send := b.client.Publish
	if b.shard {
		send = b.client.SPublish
	}
	for {
		n := min(len(texts), maxKeys)
		if err := send(ctx, channel, b.notice(kind, texts[:n]...)).Err(); err != nil {
			b.report(ctx, fmt.Errorf("luatomic: publish on bus %q: %w", b.name, show.Unquoted(err)))
			return
		}
		if texts = texts[n:]; len(texts) == 0 {
			return
		}
	}
}

// removeFinished removes the records that no caller needs any longer.
func (b *Bus) removeFinished(ctx context.Context) {
	records := b.pending.takeFinished(maxFinished)
	for len(records) > 0 {
		n := min(len(records), maxKeys)
		if err := b.client.Unlink(ctx, records[:n]...).Err(); err != nil {
			b.report(ctx, fmt.Errorf("luatomic: remove finished records of bus %q: %w", b.name, show.Unquoted(err)))
			return
		}
		records = records[n:]
	}
}
