package rpc

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/luatomic/luatomic/internal/clock"
	"github.com/luatomic/luatomic/internal/wire"
	"github.com/luatomic/luatomic/lua"
)

// session is one Run of a bus.
type session struct {
	node     string          // the name of this incarnation
	run      context.Context // Run's
	ctx      context.Context // of the handlers: ends after Run's context and the grace
	detached context.Context // ctx without its end
	handlers sync.WaitGroup
}

// Run connects the bus until ctx ends: it subscribes, announces the methods that are served, runs handlers, and
// delivers replies to waiting calls. If the connection breaks or is silent it subscribes again, and callers and nodes
// read from the records what they missed.
//
// When ctx ends, the node withdraws from its methods. Its handlers have Options.Grace to finish. Then their contexts
// end, their replies are sent, and Run returns the cause of ctx' end. A call that a handler has not finished by then
// goes to another node if the method is Idempotent, and ends with ErrNodeLost otherwise. So does a call whose handler
// returns context.Canceled or the cause of ctx' end after that end. Waiting calls of this process end with an error;
// new ones wait for the next Run. Run may then be called again, as a node of another name. A second concurrent Run
// fails immediately.
func (b *Bus) Run(ctx context.Context) error {
	if !b.liveness.running.CompareAndSwap(false, true) {
		return fmt.Errorf("luatomic: bus %q runs already; call Run once at a time", b.name)
	}
	defer b.liveness.running.Store(false)
	defer b.liveness.end()
	// The link outlives the handlers. The handlers outlive the moment at which other processes learn that this node
	// takes no more calls.
	linked, unlink := context.WithCancel(context.WithoutCancel(ctx))
	defer unlink()
	handling, stop := context.WithCancel(linked)
	defer stop()
	s := b.newSession(ctx, handling)
	loops := b.start(ctx, linked, s)

	<-ctx.Done()
	withdrawn := b.leave(ctx, true)
	over := time.Now().Add(b.opts.Grace)
	if withdrawn {
		b.drain(ctx)
	}
	b.serving.awaitIdle(time.Until(over))
	b.serving.setState(true, true)
	stop()
	s.handlers.Wait()
	b.abandonCalls()
	unlink()
	loops.Wait()
	if withdrawn {
		b.leave(ctx, false)
	}
	return context.Cause(ctx)
}

// newSession begins a Run, as a node that no process has seen before.
func (b *Bus) newSession(run, ctx context.Context) *session {
	if b.ran {
		b.rename()
	}
	b.ran = true
	b.liveness.setEnded(false)
	b.pending.reopen()
	b.serving.setState(false, false)
	b.directory.forget()
	b.bindings.forget()
	b.link.channels = [2]string{b.keys.Outbox + b.Node(), b.keys.All}
	return &session{node: b.Node(), run: run, ctx: ctx, detached: context.WithoutCancel(ctx)}
}

// abandonCalls ends the calls that wait, and those that begin before the next Run, because no reply reaches this
// process any more.
func (b *Bus) abandonCalls() {
	abandoned := fmt.Errorf("luatomic: bus %q: %w; the handler may have run", b.name, errEnded)
	refused := fmt.Errorf("luatomic: bus %q: %w: %w", b.name, lua.ErrNotExecuted, errEnded)
	for _, w := range b.pending.abandon(abandoned, refused) {
		if w.Key == "" {
			b.cancel(w)
		}
	}
}

// start starts the loops of a session. They end with linked.
func (b *Bus) start(ctx, linked context.Context, s *session) *sync.WaitGroup {
	up := make(chan struct{}, 1)
	down := func(err error) {
		if b.liveness.linkDown(err, b.link.isUp) {
			b.report(ctx, fmt.Errorf("luatomic: bus %q: %w", b.name, err))
		}
	}
	message := func(payload string) { b.receive(s, payload) }
	var loops sync.WaitGroup
	loops.Go(func() { b.link.run(linked, b.client, b.shard, func() { b.linkUp(up) }, down, message) })
	loops.Go(func() { b.runOutbox(linked) })
	loops.Go(func() { b.runStored(linked) })
	loops.Go(func() { b.runRecovery(linked) })
	loops.Go(func() { b.sendHeartbeats(linked, up) })
	return &loops
}

// missedNamed is how long callers have to name what a broken subscription of this node has missed. It takes them a
// round trip.
const missedNamed = 500 * time.Millisecond

// drain waits for an echo of its own: then everything that was sent to the node before has been received. The echo of a
// heartbeat, which has no text, may be ahead of the last requests. A slow server has the whole grace, because a request
// that arrives after the node has closed is lost. If the subscription was broken, drain first lets callers name what it
// missed.
func (b *Bus) drain(ctx context.Context) {
	ctx, cancel := outlasting(ctx, max(b.opts.Grace, 200*time.Millisecond))
	defer cancel()
	select {
	case <-b.liveness.echo:
	default:
	}
	again := time.NewTicker(200 * time.Millisecond) // the link may break and come back
	defer again.Stop()
	for {
		b.publish(ctx, b.keys.Outbox+b.Node(), wire.Echo, "drain")
		select {
		case <-b.liveness.echo:
			at := b.liveness.rejoined.Load()
			left := time.Until(time.Unix(0, at).Add(missedNamed))
			if at == 0 || left <= 0 {
				return
			}
			clock.Sleep(ctx, left)
		case <-again.C:
		case <-ctx.Done():
			return
		}
	}
}
