package actionhero

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/luatomic/luatomic/internal/clock"
	"github.com/luatomic/luatomic/internal/send"
)

// outbox lets concurrent messages share a round trip. While few round trips are in flight, each message is sent alone
// without delay. Later messages wait, and are sent in one pipeline as soon as a round trip ends.
type outbox struct {
	mu     sync.Mutex
	active int // round trips in flight
	queue  []*post
}

// post is a waiting message.
type post struct {
	ctx  context.Context
	cmd  send.OnceCommand
	done chan struct{}
}

const (
	maxActive = 2
	maxShared = 64 // messages of one round trip
)

// enter reports whether the message may be sent alone. Otherwise it waits.
func (o *outbox) enter(p *post) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.active < maxActive {
		o.active++
		return true
	}
	o.queue = append(o.queue, p)
	return false
}

// next returns the messages to send now; none ends the round trip.
func (o *outbox) next() []*post {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := min(len(o.queue), maxShared)
	part := o.queue[:n:n]
	if o.queue = o.queue[n:]; len(o.queue) == 0 {
		o.queue = nil
	}
	if n == 0 {
		o.active--
	}
	return part
}

// leave forgets a message that waits.
func (o *outbox) leave(p *post) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.queue = slices.DeleteFunc(o.queue, func(other *post) bool { return other == p })
}

// publish returns the number of receivers on this server. A message is not sent once ctx has ended; one that is on its
// way then may arrive. It is sent once: a message published twice runs its method twice.
func (n *Node) publish(ctx context.Context, text []byte) (int64, error) {
	if err := send.CheckClient(n.client); err != nil {
		return 0, fmt.Errorf("actionhero: publish: %w", err)
	}
	p := &post{ctx: ctx, cmd: send.NewOnce(ctx, "publish", n.opts.Channel, text), done: make(chan struct{})}
	if n.out.enter(p) {
		send.Go(func() { // go-redis does not heed ctx while it waits for the reply
			_ = n.client.Process(ctx, p.cmd)
			close(p.done)
			n.share(n.out.next())
		})
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		n.out.leave(p)
		return 0, fmt.Errorf("actionhero: publish: %w", clock.EndOf(ctx))
	}
	receivers, err := p.cmd.Int64()
	if err != nil {
		return 0, fmt.Errorf("actionhero: publish: %w", err)
	}
	return receivers, nil
}

// share sends waiting messages until there are none.
func (n *Node) share(part []*post) {
	for ; len(part) > 0; part = n.out.next() {
		pipe := n.client.Pipeline()
		for _, p := range part {
			if err := p.ctx.Err(); err != nil {
				p.cmd.SetErr(err)
				continue
			}
			_ = pipe.Process(context.Background(), p.cmd)
		}
		_, _ = pipe.Exec(context.Background()) // each has its own error
		for _, p := range part {
			close(p.done)
		}
	}
}
