package wake

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Link is a lasting subscription to a fixed set of channels over one connection.
// It says when all of them are confirmed, the first time and after each broken
// connection: what was published in between is lost, and it is time to look.
//
// The functions are called one at a time, in the order of what happened. They must
// not block.
type Link struct {
	Channels []string
	// Up is called when all channels are confirmed.
	Up func()
	// Down is called when the connection broke or could not be made.
	Down func(err error)
	// Message is called for each message.
	Message func(payload string)

	mu sync.Mutex
	ps *redis.PubSub
}

// lastLink is how long it waits at most before it connects again: somebody waits for
// what was missed.
const lastLink = 100 * time.Millisecond

// Run subscribes and listens until ctx ends, across broken connections.
func (l *Link) Run(ctx context.Context, client redis.UniversalClient) {
	wait := firstWait
	for ctx.Err() == nil {
		ps := client.Subscribe(ctx, l.Channels...)
		l.mu.Lock()
		l.ps = ps
		l.mu.Unlock()
		stop := context.AfterFunc(ctx, func() { _ = ps.Close() }) // ends a Receive at once
		l.listen(ctx, ps, &wait)
		stop()
		_ = ps.Close()
	}
}

// Reset gives up the connection and makes a new one: for one that is silent, or that
// leads to a server which the messages do not pass any more.
func (l *Link) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ps != nil {
		_ = l.ps.Close()
		l.ps = nil
	}
}

// replaced reports whether Reset gave up this subscription.
func (l *Link) replaced(ps *redis.PubSub) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ps != ps
}

// listen uses Receive and not Channel, which drops messages when it is full. go-redis
// connects and subscribes again by itself after an error.
func (l *Link) listen(ctx context.Context, ps *redis.PubSub, wait *time.Duration) {
	confirmed := 0
	for ctx.Err() == nil {
		m, err := ps.Receive(ctx)
		if err != nil {
			confirmed = 0
			if l.replaced(ps) {
				return
			}
			if ctx.Err() == nil && l.Down != nil {
				l.Down(err)
			}
			sleep(ctx, *wait)
			*wait = min(2**wait, lastLink)
			continue
		}
		switch m := m.(type) {
		case *redis.Subscription:
			if confirmed++; confirmed == len(l.Channels) {
				*wait = firstWait
				l.Up()
			}
		case *redis.Message:
			l.Message(m.Payload)
		}
	}
}
