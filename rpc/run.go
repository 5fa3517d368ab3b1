package rpc

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/luatomic/luatomic/gen"
)

// Run connects the bus until ctx ends: it subscribes, announces the methods that
// are served, runs handlers, and hands replies to the calls that wait. When the
// connection breaks, or is silent, it subscribes again, and both sides make up for
// what was said meanwhile. When ctx ends the node is withdrawn from its methods, its
// handlers have BusOptions.Grace to end, then their contexts end, their answers go
// out, and Run returns the cause. It may be called again then; a second one meanwhile
// fails at once.
func (b *Bus) Run(ctx context.Context) error {
	if !b.runs.CompareAndSwap(false, true) {
		return fmt.Errorf("luatomic: bus %q runs already; call Run once at a time", b.name)
	}
	defer b.runs.Store(false)
	var loops, handlers sync.WaitGroup
	// The link outlives the handlers, and they outlive the moment when others learn that
	// no more calls are taken.
	linked, unlink := context.WithCancel(context.WithoutCancel(ctx))
	defer unlink()
	handling, stop := context.WithCancel(linked)
	defer stop()
	b.mu.Lock()
	b.leaving, b.closing = false, false
	b.mu.Unlock()
	up := make(chan struct{}, 1)
	b.link.Up = func() { b.linkUp(up) }
	b.link.Down = func(err error) { b.failed(ctx, fmt.Errorf("luatomic: bus %q: %w", b.name, err)) }
	b.link.Message = func(payload string) { b.hear(handling, payload, &handlers) }
	loops.Go(func() { b.link.Run(linked, b.client) })
	loops.Go(func() { b.runErrands(linked) })
	loops.Go(func() { b.resync(linked) })
	loops.Go(func() { b.announce(linked, up) })

	<-ctx.Done()
	left := b.leave(ctx, true)
	over := time.Now().Add(b.opts.Grace)
	if left {
		b.drain(ctx)
	}
	b.awaitIdle(time.Until(over))
	b.mu.Lock()
	b.closing = true
	b.mu.Unlock()
	stop()
	handlers.Wait()
	unlink()
	loops.Wait()
	if left {
		b.leave(ctx, false)
	}
	return context.Cause(ctx)
}

// drain waits for a word that the node tells itself: what was sent to it before has
// come when it hears that. A server that is slow has the whole grace for it: what comes
// when the node takes nothing any more is lost.
func (b *Bus) drain(ctx context.Context) {
	ctx, cancel := outlasting(ctx, max(b.opts.Grace, 200*time.Millisecond))
	defer cancel()
	select {
	case <-b.echo:
	default:
	}
	again := time.NewTicker(200 * time.Millisecond) // the link may break and come back
	defer again.Stop()
	for {
		b.tell(ctx, b.keys.Outbox+b.node, 'P')
		select {
		case <-b.echo:
			return
		case <-again.C:
		case <-ctx.Done():
			return
		}
	}
}

func offer(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (b *Bus) failed(ctx context.Context, err error) {
	if b.opts.OnError != nil && ctx.Err() == nil {
		b.opts.OnError(err)
	}
}

// hear sorts what comes over the link. It runs for one message at a time.
func (b *Bus) hear(ctx context.Context, payload string, handlers *sync.WaitGroup) {
	if payload == "" {
		return
	}
	var err error
	if kind := payload[0]; kind >= '0' && kind <= '9' {
		err = b.receiveRequest(ctx, payload, handlers)
	} else if payload, err = b.open(payload); err == nil && payload != "" {
		switch kind {
		case 'R', 'E':
			err = b.receiveAnswer(payload)
		case 'r', 'e':
			err = b.receivePart(payload)
		case 'C':
			err = b.receiveChunk(payload)
		default:
			err = b.receiveWord(ctx, payload, handlers)
		}
	}
	if err != nil {
		b.counts.refused.Add(1)
		b.failed(ctx, err)
	}
}

func (b *Bus) receiveAnswer(payload string) error {
	a, err := decodeAnswer(payload)
	if err == nil {
		b.deliver(a)
	}
	return err
}

// receiveStored takes the frame of a reply that was read from its record.
func (b *Bus) receiveStored(frame []byte) {
	payload, err := b.open(string(frame))
	if err == nil {
		err = b.receiveAnswer(payload)
	}
	if err != nil {
		b.counts.refused.Add(1)
	}
}

func (b *Bus) receiveWord(ctx context.Context, payload string, handlers *sync.WaitGroup) error {
	texts, err := decodeWord(payload)
	if err != nil {
		return err
	}
	switch kind := payload[0]; {
	case kind == 'P':
		b.heard.Store(time.Now().UnixNano())
		offer(b.echo)
	case kind == 'N':
		b.mu.Lock()
		b.stored = append(b.stored, texts...)
		b.mu.Unlock()
		offer(b.large)
	case kind == 'L':
		b.fetch(ctx, texts, handlers)
	case kind == 'X' && len(texts) == 1:
		b.cancelWork(texts[0])
	case kind == 'K' && len(texts) == 2:
		b.credit(texts[0], texts[1])
	case kind == 'U' && len(texts) == 1:
		b.ups.Add(1)
		if ids := b.waitingFor(texts[0]); len(ids) > 0 {
			b.hint(texts[0], ids...)
		}
	case kind == 'D' && len(texts) == 1:
		offer(b.look)
	default:
		return errFrame
	}
	return nil
}

// announce keeps the node's lease. It starts only once the node can be reached.
func (b *Bus) announce(ctx context.Context, up <-chan struct{}) {
	select {
	case <-ctx.Done():
		return
	case <-up:
	}
	tick := time.NewTicker(b.opts.Lease / 3)
	defer tick.Stop()
	for {
		if err := b.join(ctx); err != nil {
			b.failed(ctx, err)
		} else {
			b.announced.Do(func() { close(b.ready) })
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			b.checkLink()
			offer(b.look)
			b.tidy(ctx)
			b.renew(ctx)
		case <-b.beat:
		case <-up:
		}
	}
}

// linkUp tells the others that the node can be reached again, and has both sides look
// at what was said meanwhile. The first time nothing was.
func (b *Bus) linkUp(up chan<- struct{}) {
	offer(up)
	select {
	case <-b.ready:
		b.ups.Add(1)
		b.heard.Store(time.Now().UnixNano())
		b.word(b.keys.All, 'U', b.node)
		offer(b.look)
	default:
	}
}

// checkLink gives up a link on which the node has not heard itself for a lease: nobody
// can reach it there. It speaks and looks each third of a lease, and the last word may
// be on its way still.
func (b *Bus) checkLink() {
	heard := b.heard.Load()
	if heard != 0 && time.Since(time.Unix(0, heard)) > b.opts.Lease*5/6 {
		b.heard.Store(time.Now().UnixNano())
		b.link.Reset()
	}
}

func (b *Bus) methods() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	names := slices.Sorted(maps.Keys(b.handlers))
	for i, name := range names {
		names[i] = b.keys.Method(name)
	}
	return names
}

// eachMethods calls f for the keys of all methods in parts, once where there are
// none.
func eachMethods(methods []string, f func(methods []string) error) error {
	if len(methods) <= maxKeys {
		return f(methods)
	}
	for part := range slices.Chunk(methods, maxKeys) {
		if err := f(part); err != nil {
			return err
		}
	}
	return nil
}

// join announces the node, and listens whether it hears itself.
func (b *Bus) join(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, b.opts.Lease)
	defer cancel()
	b.announcing <- struct{}{}
	defer func() { <-b.announcing }()
	text := b.about()
	word := b.seal(encodeWord('P'))
	methods := b.methods()
	b.mu.Lock()
	if b.leaving {
		methods = nil // it stays until its handlers are done, and gets no more calls
	}
	b.mu.Unlock()
	err := eachMethods(methods, func(methods []string) error {
		r, err := gen.RPCJoin(ctx, b.client, gen.RPCJoinParams{
			Nodes: b.keys.Nodes, About: b.keys.About, Methods: methods,
			Node: b.node, Lease: b.opts.Lease, Stay: 2 * b.opts.Lease,
			Load: b.busy.Load() - int64(b.opts.Concurrency), Text: text,
			Outbox: b.keys.Outbox, Word: word, Shard: b.shard,
		})
		switch {
		case err == nil && r.Heard > 0 && b.heard.Load() == 0:
			b.heard.Store(time.Now().UnixNano()) // from here on it must be heard
		case err == nil && r.Heard == 0:
			b.unheard()
		}
		if r.Heard > 0 {
			b.deaf.Store(0)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("luatomic: announce on bus %q: %w", b.name, err)
	}
	return nil
}

// unheard gives up a link that leads to a server which is a replica now, where the node
// hears itself and gets no calls, or which its keys are leaving. A new link that does so
// too is left alone for twice as long each time.
func (b *Bus) unheard() {
	confirmed, deaf := b.link.Confirmed(), time.Duration(b.deaf.Load())
	switch {
	case confirmed == 0: // it is down; the node announces itself when it is up
	case confirmed < deaf:
		time.AfterFunc(deaf-confirmed, func() { offer(b.beat) })
	default:
		b.deaf.Store(int64(min(max(2*deaf, 5*time.Millisecond), b.opts.Lease/3)))
		b.link.Reset()
	}
}

// leave withdraws the node, although ctx has ended. If it fails the lease ends by
// itself. A node that stays finishes what it has begun.
func (b *Bus) leave(ctx context.Context, stay bool) bool {
	ctx, cancel := outlasting(ctx, time.Second)
	defer cancel()
	b.mu.Lock()
	b.leaving = true
	b.mu.Unlock()
	select {
	case b.announcing <- struct{}{}: // an announcement on its way would bring the methods back
		defer func() { <-b.announcing }()
	case <-time.After(500 * time.Millisecond): // a server that is silent does not hold it up for long
	}
	err := eachMethods(b.methods(), func(methods []string) error {
		_, err := gen.RPCLeave(ctx, b.client, gen.RPCLeaveParams{
			Nodes: b.keys.Nodes, About: b.keys.About, Methods: methods, Node: b.node, Stay: stay,
		})
		return err
	})
	if err == nil && !stay {
		b.tidy(ctx)
		b.tell(ctx, b.keys.All, 'D', b.node)
	}
	if err != nil {
		b.failed(ctx, fmt.Errorf("luatomic: leave bus %q: %w", b.name, err))
	}
	return err == nil
}
