package rpc

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/wire"
)

// liveness keeps this node reachable: heartbeats renew its lease, and the echo of each shows that its subscription
// works.
type liveness struct {
	running      atomic.Bool   // Run is running
	heartbeat    chan struct{} // asks for a heartbeat out of turn
	announcing   chan struct{} // full while a heartbeat or a leave is under way
	echo         chan struct{} // filled by each echo
	echoed       atomic.Int64  // when the last echo came or was first due, UnixNano; 0: none is due
	resetBackoff atomic.Int64  // how long a new link may go without a receiver before it is replaced, ns
	resubscribed atomic.Int64  // how often this or another node subscribed anew

	ready     chan struct{} // closed once subscribed and announced
	announced sync.Once
}

func (l *liveness) init() {
	l.heartbeat, l.announcing = make(chan struct{}, 1), make(chan struct{}, 1)
	l.echo, l.ready = make(chan struct{}, 1), make(chan struct{})
}

func (l *liveness) hasEchoed() {
	l.echoed.Store(time.Now().UnixNano())
	offer(l.echo)
}

// sendHeartbeats keeps the node's lease. It starts only once the node can be reached.
func (b *Bus) sendHeartbeats(ctx context.Context, up <-chan struct{}) {
	select {
	case <-ctx.Done():
		return
	case <-up:
	}
	tick := time.NewTicker(b.opts.Lease / 3)
	defer tick.Stop()
	for {
		if err := b.announce(ctx); err != nil {
			b.report(ctx, err)
		} else {
			b.liveness.announced.Do(func() { close(b.liveness.ready) })
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			b.replaceSilentLink()
			offer(b.pending.check)
			b.removeFinished(ctx)
			b.renewBindings(ctx)
		case <-b.liveness.heartbeat:
		case <-up:
		}
	}
}

// linkUp reports that the node can be reached again, and has both sides check what they missed. The first time
// nothing can have been missed.
func (b *Bus) linkUp(up chan<- struct{}) {
	offer(up)
	select {
	case <-b.liveness.ready:
		b.liveness.resubscribed.Add(1)
		b.liveness.echoed.Store(time.Now().UnixNano())
		b.outbox.add(b.keys.All, wire.Subscribed, b.node)
		offer(b.pending.check)
	default:
	}
}

// replaceSilentLink gives up a link on which no echo came for a lease: nothing reaches the node there. Heartbeats and
// this check come each third of a lease, and the last echo may still be on its way.
func (b *Bus) replaceSilentLink() {
	echoed := b.liveness.echoed.Load()
	if echoed != 0 && time.Since(time.Unix(0, echoed)) > b.opts.Lease*5/6 {
		b.liveness.echoed.Store(time.Now().UnixNano())
		b.link.Reset()
	}
}

// announce sends one heartbeat: it renews the lease and publishes an echo.
func (b *Bus) announce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, b.opts.Lease)
	defer cancel()
	b.liveness.announcing <- struct{}{}
	defer func() { <-b.liveness.announcing }()
	params := gen.RPCJoinParams{
		Nodes: b.keys.Nodes, About: b.keys.About, Node: b.node,
		Lease: b.opts.Lease, Stay: 2 * b.opts.Lease,
		Text: b.describe(), Outbox: b.keys.Outbox, Notice: b.notice(wire.Echo), Shard: b.shard,
	}
	methods := b.methodKeys(b.serving.announced())
	err := inParts(methods, func(methods []string) error {
		params.Methods, params.Load = methods, b.serving.running.Load()-int64(b.opts.Concurrency)
		r, err := gen.RPCJoin(ctx, b.client, params)
		b.noteReceivers(r.Receivers, err)
		return err
	})
	if err != nil {
		return fmt.Errorf("luatomic: announce on bus %q: %w", b.name, err)
	}
	return nil
}

// noteReceivers takes how many subscribers the server counted for an echo.
func (b *Bus) noteReceivers(receivers int64, err error) {
	l := &b.liveness
	switch {
	case receivers > 0:
		l.resetBackoff.Store(0)
		if err == nil {
			l.echoed.CompareAndSwap(0, time.Now().UnixNano()) // from now on echoes must come
		}
	case err == nil:
		b.replaceUnreachableLink()
	}
}

// replaceUnreachableLink gives up a link without a receiver: it leads to a server that is a replica now, where the node
// receives its own echo and no calls, or that its keys are leaving. The time that a new link may stay so doubles each
// time.
func (b *Bus) replaceUnreachableLink() {
	confirmed, backoff := b.link.Confirmed(), time.Duration(b.liveness.resetBackoff.Load())
	switch {
	case confirmed == 0: // it is down; a heartbeat follows when it is up
	case confirmed < backoff:
		time.AfterFunc(backoff-confirmed, func() { offer(b.liveness.heartbeat) })
	default:
		b.liveness.resetBackoff.Store(int64(min(max(2*backoff, 5*time.Millisecond), b.opts.Lease/3)))
		b.link.Reset()
	}
}

// leave withdraws the node from its methods, although ctx has ended. With stay it remains alive and finishes what it
// has begun. It reports success; without it the lease ends by itself.
func (b *Bus) leave(ctx context.Context, stay bool) bool {
	ctx, cancel := outlasting(ctx, time.Second)
	defer cancel()
	methods := b.serving.leave()
	select {
	case b.liveness.announcing <- struct{}{}: // a heartbeat under way would bring the methods back
		defer func() { <-b.liveness.announcing }()
	case <-time.After(500 * time.Millisecond): // a silent server does not delay the stop for longer
	}
	err := inParts(b.methodKeys(methods), func(methods []string) error {
		_, err := gen.RPCLeave(ctx, b.client, gen.RPCLeaveParams{
			Nodes: b.keys.Nodes, About: b.keys.About, Methods: methods, Node: b.node, Stay: stay,
		})
		return err
	})
	if err != nil {
		b.report(ctx, fmt.Errorf("luatomic: leave bus %q: %w", b.name, err))
		return false
	}
	if !stay {
		b.removeFinished(ctx)
		b.publish(ctx, b.keys.All, wire.Left, b.node)
	}
	return true
}

func (b *Bus) methodKeys(names []string) []string {
	methods := make([]string, len(names))
	for i, name := range names {
		methods[i] = b.keys.Method(name)
	}
	return methods
}

// maxKeys is how many keys one script takes, and how many texts one notice.
const maxKeys = 500

// inParts calls f for at most maxKeys keys at a time, and once where there are none.
func inParts(keys []string, f func(keys []string) error) error {
	if len(keys) <= maxKeys {
		return f(keys)
	}
	for part := range slices.Chunk(keys, maxKeys) {
		if err := f(part); err != nil {
			return err
		}
	}
	return nil
}
