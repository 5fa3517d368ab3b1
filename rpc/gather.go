package rpc

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	rpcscript "github.com/luatomic/luatomic/gen/rpc"
	"github.com/luatomic/luatomic/lua"
)

// Part is one node's answer to a gather.
type Part[Res any] struct {
	Node   string
	Result Res
}

// Gather sends the request to all nodes that serve the method and yields their answers as they arrive, each with the
// node's name. An answer is a result, or the error that a call to that node alone would return: ErrNodeLost if the node
// died, ErrNoResponders if it was unreachable.
//
// The expected nodes are those that are alive when a script lists them, 500 in a round trip. The sequence ends as soon
// as each of them has answered or is lost. At the deadline, or when ctx ends, the last pair has an empty node and a
// *MissingError. If no node serves the method, the last pair has ErrNoResponders. To stop early, break: the handlers of
// nodes that have not answered are cancelled. Options.WrapCall run once around the whole gather, while the answers are
// yielded; their headers go to each node, and their error is the last pair. Cost: a round trip for the list, and a call
// to each node, whose scripts share round trips. A body of 8 KiB or more is stored once. Run must be running.
func (m Method[Req, Res]) Gather(ctx context.Context, b *Bus, in Req) iter.Seq2[Part[Res], error] {
	return func(yield func(Part[Res], error) bool) {
		body, err := m.encode(b, in)
		if err != nil {
			yield(Part[Res]{}, err)
			return
		}
		c, stopped := outgoing{method: m.name, body: body}, false
		err = b.wrapped(ctx, &c, func(ctx context.Context) (Answered, error) {
			return Answered{}, m.yieldAnswers(ctx, b, &c, func(p Part[Res], err error) bool {
				stopped = !yield(p, err)
				return !stopped
			})
		})
		if err != nil && !stopped {
			yield(Part[Res]{}, err)
		}
	}
}

// yieldAnswers makes a call to each node and yields the answers. Its error says why it ended early.
func (m Method[Req, Res]) yieldAnswers(
	ctx context.Context, b *Bus, c *outgoing, yield func(Part[Res], error) bool,
) error {
	g, err := b.gather(ctx, c)
	if err != nil {
		return err
	}
	defer b.endGather(g)
	for len(g.missing) > 0 {
		w, err := g.next(ctx)
		if err != nil {
			return b.missing(g, m.name, err)
		}
		out, err := b.finish(w)
		p := Part[Res]{Node: w.Node}
		if err == nil {
			p.Result, err = m.decode(b, out.body)
		}
		if !yield(p, err) {
			return nil
		}
	}
	return nil
}

func (e *MissingError) Unwrap() error { return e.Err }

// missing is the error of a gather that ended early.
func (b *Bus) missing(g *gathering, method string, ended error) error {
	nodes := slices.Sorted(maps.Keys(g.missing))
	for _, node := range nodes {
		if why := b.pending.whyUnsent(g.missing[node]); why != "" {
			ended = fmt.Errorf("%w%s", ended, why)
			break
		}
	}
	return &MissingError{Method: method, Nodes: nodes, Err: ended}
}

// gathering has the calls to several nodes. It belongs to one goroutine.
type gathering struct {
	shared  string // names the body of all calls, where that travels by itself
	timer   *time.Timer
	came    chan *waiter
	missing map[string]*waiter // by node
}

// gatherWidth is how many goroutines send the calls of one gather.
const gatherWidth = 64

// gather calls all nodes of the method.
func (b *Bus) gather(ctx context.Context, c *outgoing) (*gathering, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	deadline, _ := b.limit(ctx)
	timer := time.NewTimer(time.Until(deadline))
	if err := b.awaitReady(ctx, timer.C); err != nil {
		return nil, err
	}
	rows, err := b.findAll(ctx, c, deadline)
	if err != nil {
		return nil, fmt.Errorf("luatomic: gather %q: %w", c.method, err)
	}
	g := &gathering{
		shared: c.shared, timer: timer, came: make(chan *waiter, len(rows)), missing: make(map[string]*waiter),
	}
	b.askAll(ctx, g, c, rows, deadline)
	if len(g.missing) == 0 {
		b.endGather(g)
		return nil, refusal(c.method, reasonOf(rows))
	}
	return g, nil
}

// findAll lists the nodes of the method. A large body is stored once for all of them, in the same round trip.
func (b *Bus) findAll(ctx context.Context, c *outgoing, deadline time.Time) ([]rpcscript.FindRow, error) {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	if len(c.body) < besideMin {
		return b.find(ctx, b.client, c.method)
	}
	c.shared, _ = b.newID(c)
	client := b.putBeside(ctx, c.shared, c.body, time.Until(deadline)+callGrace)
	rows, err := b.find(ctx, client, c.method)
	if body := b.unstored(ctx, client, err); body != nil {
		return nil, fmt.Errorf("%w: %w", lua.ErrNotExecuted, body)
	}
	return rows, err
}

// askAll makes a call to each node that is alive.
func (b *Bus) askAll(ctx context.Context, g *gathering, c *outgoing, rows []rpcscript.FindRow, deadline time.Time) {
	calls := make(chan *waiter, len(rows))
	for _, r := range rows {
		if r.State == rpcscript.FindStateDead {
			continue
		}
		one := *c
		one.Node = r.Node
		w := b.newWaiter(&one, deadline)
		w.notify = g.came
		g.missing[r.Node] = w
		b.pending.expect(w)
		if r.State == rpcscript.FindStateUnreachable && !b.moving(ctx) {
			b.pending.fail(w, refusal(c.method, rpcscript.DecideOutcomeNoSubscriber))
			continue
		}
		calls <- w
	}
	close(calls)
	for range min(len(calls), gatherWidth) {
		go func() {
			for w := range calls {
				b.place(ctx, w)
			}
		}()
	}
}

// next waits for an answer.
func (g *gathering) next(ctx context.Context) (*waiter, error) {
	select {
	case w := <-g.came: // also when the time is over at this moment
		delete(g.missing, w.Node)
		return w, nil
	default:
	}
	select {
	case w := <-g.came:
		delete(g.missing, w.Node)
		return w, nil
	case <-ctx.Done():
		return nil, endOf(ctx)
	case <-g.timer.C:
		return nil, context.DeadlineExceeded
	}
}

// endGather cancels the handlers of the nodes that have not answered. Answers that nobody has read are over, too.
func (b *Bus) endGather(g *gathering) {
	g.timer.Stop()
	if g.shared != "" {
		b.pending.discard(b.keys.Body(g.shared))
	}
	for _, w := range g.missing {
		if b.pending.forget(w) {
			b.giveUp(w)
		} else {
			_, _ = b.finish(w)
		}
	}
}
