package luatomic

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/gen"
)

// Run connects the bus until ctx ends: it subscribes, announces the methods that
// are served, runs handlers, and hands replies to the calls that wait. It returns
// the cause of ctx' end, after it has withdrawn the node and cancelled the
// handlers' contexts. When the connection breaks it subscribes again, and calls
// whose reply was announced meanwhile collect it then.
func (b *Bus) Run(ctx context.Context) error {
	ps := b.client.Subscribe(ctx, b.inbox, b.keys.Outbox+b.node)
	stop := context.AfterFunc(ctx, func() { _ = ps.Close() }) // ends a Receive at once
	defer stop()
	defer ps.Close()

	var wg sync.WaitGroup
	subscribed := make(chan struct{}, 1)
	wg.Add(1)
	go func() {
		defer wg.Done()
		b.announce(ctx, subscribed)
	}()
	b.receive(ctx, ps, subscribed, &wg)
	b.leave(ctx)
	wg.Wait()
	return context.Cause(ctx)
}

// receive reads messages until ctx ends. Each confirmed subscription, the first
// and those after a reconnect, is followed by a collect. It uses Receive and not
// Channel, which drops messages when it is full.
func (b *Bus) receive(ctx context.Context, ps *redis.PubSub, subscribed chan<- struct{}, wg *sync.WaitGroup) {
	retry := backoff{first: 10 * time.Millisecond, last: time.Second}
	for ctx.Err() == nil {
		m, err := ps.Receive(ctx)
		if err != nil {
			b.failed(ctx, fmt.Errorf("luatomic: bus %q: %w", b.name, err))
			pause(ctx, retry.next())
			continue
		}
		retry.reset()
		switch m := m.(type) {
		case *redis.Subscription:
			if m.Channel == b.inbox {
				wg.Add(1)
				go func() {
					defer wg.Done()
					b.collect(ctx)
				}()
			} else {
				offer(subscribed)
			}
		case *redis.Message:
			if m.Channel == b.inbox {
				b.deliver(ctx, m.Payload)
			} else {
				b.dispatch(ctx, m.Payload, wg)
			}
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

// announce keeps the node's lease. It starts only once the node can be reached.
func (b *Bus) announce(ctx context.Context, subscribed <-chan struct{}) {
	select {
	case <-ctx.Done():
		return
	case <-subscribed:
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
		case <-b.beat:
		case <-subscribed:
		}
	}
}

// maxMethods is how many keys one announcement takes.
const maxMethods = 500

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
func (b *Bus) eachMethods(f func(methods []string) error) error {
	methods := b.methods()
	if len(methods) <= maxMethods {
		return f(methods)
	}
	for part := range slices.Chunk(methods, maxMethods) {
		if err := f(part); err != nil {
			return err
		}
	}
	return nil
}

func (b *Bus) join(ctx context.Context) error {
	err := b.eachMethods(func(methods []string) error {
		_, err := gen.RPCJoin(ctx, b.client, gen.RPCJoinParams{
			Nodes: b.keys.Nodes, Methods: methods,
			Node: b.node, Lease: b.opts.Lease, Load: int64(len(b.slots)),
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("luatomic: announce on bus %q: %w", b.name, err)
	}
	return nil
}

// leave withdraws the node, although ctx has ended. If it fails the lease ends by
// itself.
func (b *Bus) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	err := b.eachMethods(func(methods []string) error {
		_, err := gen.RPCLeave(ctx, b.client, gen.RPCLeaveParams{Nodes: b.keys.Nodes, Methods: methods, Node: b.node})
		return err
	})
	if err != nil {
		b.failed(ctx, fmt.Errorf("luatomic: leave bus %q: %w", b.name, err))
	}
}

func (b *Bus) serve(method string, h handler) {
	b.mu.Lock()
	b.handlers[method] = h
	b.mu.Unlock()
	offer(b.beat)
}

// expect registers a waiter for the reply to id.
func (b *Bus) expect(id string) <-chan reply {
	c := make(chan reply, 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pending[id] = c
	return c
}

func (b *Bus) forget(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.pending, id)
}

// deliver hands a reply to its waiter. One that nobody waits for is too late, or
// was collected already.
func (b *Bus) deliver(ctx context.Context, frame string) {
	r, err := decodeReply(frame)
	if err != nil {
		b.failed(ctx, err)
		return
	}
	b.mu.Lock()
	c := b.pending[r.id]
	delete(b.pending, r.id)
	b.mu.Unlock()
	if c != nil {
		c <- r
	}
}

// collect reads the records of all calls that wait: replies announced while the
// subscription was down are there.
func (b *Bus) collect(ctx context.Context) {
	b.mu.Lock()
	ids := slices.Collect(maps.Keys(b.pending))
	b.mu.Unlock()
	for part := range slices.Chunk(ids, maxMethods) {
		records := make([]string, len(part))
		for i, id := range part {
			records[i] = b.keys.Record(id)
		}
		rows, err := gen.RPCCollect(ctx, b.client, gen.RPCCollectParams{Records: records})
		if err != nil {
			b.failed(ctx, fmt.Errorf("luatomic: collect on bus %q: %w", b.name, err))
			return
		}
		for _, row := range rows {
			if row.State == gen.RPCCollectStateDone {
				b.deliver(ctx, string(row.Frame))
			}
		}
	}
}

// dispatch runs the handler of a request in a goroutine, or answers at once where
// it cannot.
func (b *Bus) dispatch(ctx context.Context, frame string, wg *sync.WaitGroup) {
	q, err := decodeRequest(frame)
	if err != nil {
		b.failed(ctx, err)
		return
	}
	var run handler
	select {
	case b.slots <- struct{}{}:
		b.mu.Lock()
		run = b.handlers[q.method]
		b.mu.Unlock()
		if run == nil {
			run = failWith(CodeNoMethod, "this node does not serve the method")
		}
	default:
		run = failWith(CodeOverloaded, "all handlers of the node are busy")
		b.answerAside(ctx, q, run, wg)
		return
	}
	wg.Add(1)
	go func() {
		defer wg.Done()
		defer func() { <-b.slots }()
		b.answer(ctx, q, run)
	}()
}

func failWith(code, message string) handler {
	return func(context.Context, []byte) ([]byte, error) {
		return nil, &RemoteError{Code: code, Message: message}
	}
}

// answerAside answers without a slot.
func (b *Bus) answerAside(ctx context.Context, q request, run handler, wg *sync.WaitGroup) {
	wg.Add(1)
	go func() {
		defer wg.Done()
		b.answer(ctx, q, run)
	}()
}

// maxReply leaves room for the frame in the limit of one call.
const maxReply = MaxBatchBytes - 1024

func (b *Bus) answer(ctx context.Context, q request, run handler) {
	bounded, cancel := context.WithTimeout(ctx, q.timeout)
	defer cancel()
	body, err := guarded(bounded, run, q.body)
	if err == nil && len(body) > maxReply {
		err = &RemoteError{Code: CodeTooLarge, Message: fmt.Sprintf("the result has %d bytes, at most %d", len(body), maxReply)}
	}
	frame := encodeReply(q.id, body)
	if err != nil {
		frame = encodeFailure(q.id, remote(err))
	}
	// The answer must go out although the handler used up its time or Run ends.
	send, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.opts.Lease)
	defer cancel()
	_, err = gen.RPCReply(send, b.client, gen.RPCReplyParams{
		Record: b.keys.Record(q.id), Method: b.keys.Method(q.method),
		Node: b.node, Attempt: 1, Frame: frame, Keep: replyKept,
	})
	if err != nil {
		b.failed(ctx, fmt.Errorf("luatomic: reply to %q on bus %q: %w", q.method, b.name, err))
	}
}

// replyKept is how long a caller that was cut off can collect a reply.
const replyKept = 10 * time.Second

// guarded turns a panic into an error, so that a bad request cannot end the node.
func guarded(ctx context.Context, run handler, body []byte) (out []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			out, err = nil, &RemoteError{Code: CodeInternal, Message: "the handler panicked"}
		}
	}()
	return run(ctx, body)
}

// maxMessage bounds the text of an error on the wire.
const maxMessage = 1024

func remote(err error) *RemoteError {
	var e *RemoteError
	if !errors.As(err, &e) {
		e = &RemoteError{Code: CodeError, Message: err.Error()}
	}
	if len(e.Message) > maxMessage || len(e.Code) > maxMessage {
		e = &RemoteError{Code: e.Code[:min(len(e.Code), maxMessage)], Message: e.Message[:min(len(e.Message), maxMessage)]}
	}
	return e
}
