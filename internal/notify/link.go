package notify

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/internal/clock"
)

// Link is a lasting subscription to a fixed set of channels over one connection. It calls Up when all of them are
// confirmed, the first time and after each broken connection: messages in between are lost, so the caller must check
// again.
//
// The functions are called one at a time, in the order of the events. They must not block.
type Link struct {
	Channels []string
	// Shard subscribes with SSUBSCRIBE. The client is a *redis.ClusterClient then, and all channels are in one slot:
	// the link connects to its owner.
	Shard bool
	// Up is called when all channels are confirmed.
	Up func()
	// Down is called when the connection broke or could not be opened.
	Down func(err error)
	// Message is called for each message.
	Message func(payload string)

	mu sync.Mutex
	ps *redis.PubSub

	to, at string       // the server of this subscription, and of the last confirmed one
	since  atomic.Int64 // when it was confirmed, UnixNano; 0: it is not
	moved  atomic.Int64 // when it was first confirmed at another server than before
}

// lastLink is the longest delay before a reconnect. It is short, because callers wait for the messages that were
// missed.
const lastLink = 100 * time.Millisecond

// Run keeps the subscription until ctx ends, across broken connections.
func (l *Link) Run(ctx context.Context, client redis.UniversalClient) {
	wait := firstWait
	for ctx.Err() == nil {
		ps, err := l.subscribe(ctx, client)
		if err != nil {
			l.broken(ctx, err, &wait)
			continue
		}
		l.mu.Lock()
		l.ps = ps
		l.mu.Unlock()
		stop := context.AfterFunc(ctx, func() { _ = ps.Close() }) // ends a blocked Receive
		l.receive(ctx, ps, &wait)
		stop()
		l.since.Store(0)
		_ = ps.Close()
	}
}

// subscribe uses the owner of the slot and not the ClusterClient: that one chooses a replica if it may read there,
// whose subscribers PUBLISH does not count.
func (l *Link) subscribe(ctx context.Context, client redis.UniversalClient) (*redis.PubSub, error) {
	cluster, ok := client.(*redis.ClusterClient)
	if !ok || !l.Shard {
		return client.Subscribe(ctx, l.Channels...), nil
	}
	if l.to != "" {
		cluster.ReloadState(ctx) // the slot may have moved since the last subscription
	}
	owner, err := cluster.MasterForKey(ctx, l.Channels[0])
	if err != nil {
		return nil, err
	}
	l.to = owner.Options().Addr
	return owner.SSubscribe(ctx, l.Channels...), nil
}

// Reset replaces the connection: for one that is silent, or whose server does not get the messages any more.
func (l *Link) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ps != nil {
		_ = l.ps.Close()
		l.ps = nil
	}
}

// Confirmed returns how long all channels have been confirmed; 0 if they are not.
func (l *Link) Confirmed() time.Duration { return age(&l.since) }

// Moved reports whether the link changed to another server within the time, or is down.
func (l *Link) Moved(within time.Duration) bool {
	return l.since.Load() == 0 || l.moved.Load() != 0 && age(&l.moved) < within
}

func age(t *atomic.Int64) time.Duration {
	at := t.Load()
	if at == 0 {
		return 0
	}
	return time.Since(time.Unix(0, at))
}

// replaced reports whether Reset replaced this subscription.
func (l *Link) replaced(ps *redis.PubSub) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ps != ps
}

func (l *Link) broken(ctx context.Context, err error, wait *time.Duration) {
	if ctx.Err() == nil && l.Down != nil {
		l.Down(err)
	}
	clock.Sleep(ctx, *wait)
	*wait = min(2**wait, lastLink)
}

func (l *Link) confirm() {
	now := time.Now().UnixNano()
	if l.at != "" && l.at != l.to {
		l.moved.Store(now)
	}
	l.at = l.to
	l.since.Store(now)
	l.Up()
}

// errMoved reports that the server does not serve the slot of the channels any more. The server itself ends their
// subscriptions.
var errMoved = errors.New("the slot of the channels has moved to another server")

// receive uses Receive and not Channel, which drops messages when it is full. After an error go-redis itself connects
// and subscribes again, to the same server. In a cluster receive returns instead, so that the owner of the slot is
// looked up again.
func (l *Link) receive(ctx context.Context, ps *redis.PubSub, wait *time.Duration) {
	confirmed := 0
	for ctx.Err() == nil {
		m, err := ps.Receive(ctx)
		if s, ok := m.(*redis.Subscription); ok && s.Kind == "sunsubscribe" {
			err = errMoved
		}
		if err != nil {
			confirmed = 0
			l.since.Store(0)
			if l.replaced(ps) {
				return
			}
			l.broken(ctx, err, wait)
			if l.Shard {
				return
			}
			continue
		}
		switch m := m.(type) {
		case *redis.Subscription:
			if confirmed++; confirmed == len(l.Channels) {
				*wait = firstWait
				l.confirm()
			}
		case *redis.Message:
			l.Message(m.Payload)
		}
	}
}
