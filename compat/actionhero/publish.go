package actionhero

import (
	"context"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"
)

// publication is a PUBLISH that go-redis does not retry: a message published twice runs its method twice.
type publication struct{ *redis.IntCmd }

func (publication) NoRetry() bool { return true }

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
	cmd  publication
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
	p.done = make(chan struct{})
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

// publish returns the number of receivers on this server. A message is not sent once ctx has ended.
func (n *Node) publish(ctx context.Context, text []byte) (int64, error) {
	p := &post{ctx: ctx, cmd: publication{redis.NewIntCmd(ctx, "publish", n.opts.Channel, text)}}
	if n.out.enter(p) {
		_ = n.client.Process(ctx, p.cmd)
		if part := n.out.next(); len(part) > 0 {
			go n.share(part)
		}
	} else {
		select {
		case <-p.done:
		case <-ctx.Done():
			return 0, fmt.Errorf("actionhero: publish: %w", context.Cause(ctx))
		}
	}
	if err := p.cmd.Err(); err != nil {
		return 0, fmt.Errorf("actionhero: publish: %w", err)
	}
	return p.cmd.Val(), nil
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
