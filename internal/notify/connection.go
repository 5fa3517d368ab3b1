package notify

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/internal/clock"
)

// connection is one connection to a server, with all its subscriptions.
type connection struct {
	exchange *exchange
	name     string
	client   redis.UniversalClient
	stop     context.CancelFunc
	requests requests

	mu      sync.Mutex
	ps      *redis.PubSub
	opened  time.Time
	renewed bool // ps was closed in order to be replaced
	topics  map[string]*topic
	leaving map[string][]*Hub // hubs that left a channel, in order, until the server has confirmed that
	failed  error             // why the last connection received nothing
	ended   bool

	comparing clock.Backoff // the delay between two comparisons
}

// topic is one channel, from the first Subscribe to the last Unsubscribe. resolved is closed when it is up or has
// failed.
type topic struct {
	shard    bool
	up       bool
	again    bool // it was up before, here or on the former server of its hash slot
	asked    bool // the request was sent on the current connection
	waits    bool // the server has refused it, and a timer will ask again
	err      error
	resolved chan struct{}
}

// confirmed reports whether the channel's subscription is confirmed now.
func (c *connection) confirmed(channel string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.topics[channel]
	return t != nil && t.up
}

// state reports whether the channel's subscription is confirmed, and if not, why the last attempt failed.
func (c *connection) state(channel string) (up bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.topics[channel]; t != nil {
		return t.up, t.err
	}
	return false, nil
}

// add creates the topic. Like drop it is called under the exchange's lock, so that drop removes no topic to which
// another caller has subscribed meanwhile.
func (c *connection) add(channel string, shard, again bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.topics[channel] == nil {
		c.topics[channel] = &topic{shard: shard, again: again, resolved: make(chan struct{})}
	}
}

// subscribe subscribes to the topic unless it is up, and returns when the server has confirmed that. If the connection
// failed last time, subscribe returns that error without waiting for the next attempt: a caller without permission to
// subscribe can poll instead of waiting each time.
func (c *connection) subscribe(ctx context.Context, channel string) error {
	c.mu.Lock()
	t := c.topics[channel]
	switch {
	case t == nil || c.ended: // dropped: the hash slot has moved again
		c.mu.Unlock()
		return ErrClosed
	case t.up:
		c.mu.Unlock()
		return nil
	case c.ps == nil && c.failed != nil:
		err := c.failed
		c.mu.Unlock()
		return err
	case t.err != nil:
		t.err, t.resolved = nil, make(chan struct{})
	}
	c.ask(channel, t)
	resolved := t.resolved
	c.mu.Unlock()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-resolved:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return t.err
}

// ask requests the subscription, unless it was requested or there is no connection. The caller holds the lock.
func (c *connection) ask(channel string, t *topic) {
	if c.ps != nil && !t.asked {
		t.asked = true
		c.requests.add(c.ps, request{subscribing, channel, t})
		go c.requests.flush() // it may dial: the caller can return before
	}
}

// drop deletes the topic, and unsubscribes at the server in the background, so that the caller does not wait for a
// dial. Messages that arrive before the server confirms that still reach the hub, unless it is nil.
func (c *connection) drop(channel string, h *Hub) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.topics[channel]
	if t == nil {
		return
	}
	delete(c.topics, channel)
	if !t.up && t.err == nil {
		t.err = ErrClosed
		close(t.resolved)
	}
	if c.ps == nil || !t.asked {
		return
	}
	c.leaving[channel] = append(c.leaving[channel], h)
	c.requests.add(c.ps, request{unsubscribing, channel, t})
	go c.requests.flush()
}

// The delays between two connections. After a connection breaks the delay is short, because waiters miss messages.
// After the server has refused a subscription it is long.
const (
	firstWait   = 10 * time.Millisecond
	brokenWait  = 250 * time.Millisecond
	refusedWait = 5 * time.Second
)

// ErrRenewed is the error of a connection that was replaced because its server no longer received the messages of its
// channels.
var ErrRenewed = errors.New("the subscription receives none of its messages, and is made again")

// run keeps the connection open and reconnects. It returns when ctx ends, when the client is closed, or when the
// connection is broken and no channel needs it.
func (c *connection) run(ctx context.Context) {
	retry := clock.Backoff{First: firstWait, Last: brokenWait}
	for ctx.Err() == nil {
		ps := c.open(ctx)
		stop := context.AfterFunc(ctx, func() { _ = ps.Close() }) // ends a blocked Receive
		received, err := c.receive(ctx, ps)
		stop()
		_ = ps.Close()
		c.disconnected(err, received, false)
		if renewed := c.wasRenewed(); !renewed && errors.Is(err, redis.ErrClosed) || c.exchange.retire(c) {
			break
		}
		if received {
			retry.Reset()
		}
		retry.Last = brokenWait
		var refusal redis.Error
		if errors.As(err, &refusal) {
			retry.Last = refusedWait
		}
		clock.Sleep(ctx, retry.Next())
	}
	c.disconnected(ErrClosed, false, true)
}

// renew replaces the connection. If the connection is younger than a second, renew returns false. It does not wait for
// a dial.
func (c *connection) renew() bool {
	c.mu.Lock()
	ps := c.ps
	if ps == nil || c.renewed {
		c.mu.Unlock()
		return true
	}
	if time.Since(c.opened) < time.Second {
		c.mu.Unlock()
		return false
	}
	c.renewed = true
	c.mu.Unlock()
	go func() { _ = ps.Close() }()
	return true
}

func (c *connection) wasRenewed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.renewed
	c.renewed = false
	return was
}

// open subscribes to all topics. It dials outside the lock, so that a Subscribe whose context ends can return.
func (c *connection) open(ctx context.Context) *redis.PubSub {
	ps := c.client.Subscribe(ctx)
	c.requests.reset(ps)
	c.mu.Lock()
	for channel, t := range c.topics {
		c.requests.add(ps, request{subscribing, channel, t})
		t.asked = true
	}
	c.ps, c.opened = ps, time.Now()
	c.mu.Unlock()
	c.requests.flush()
	return ps
}

// receive receives until the connection is broken, and reports whether it received anything.
func (c *connection) receive(ctx context.Context, ps *redis.PubSub) (received bool, err error) {
	comparing, end := context.WithCancel(ctx)
	defer end()
	go c.compare(comparing, ps)
	w := newWatch(ps, func() {
		c.requests.add(ps, request{kind: pinging})
		c.requests.flush()
	})
	for {
		m, err := w.next(ctx)
		if err != nil && refusesOne(err) {
			if r, ok := c.requests.answered(); ok {
				w.alive()
				c.refused(r, err)
				continue
			}
		}
		if err != nil {
			return received, err
		}
		received = true
		switch m := m.(type) {
		case *redis.Pong:
			_, err = c.requests.confirmed(pinging, "")
		case *redis.Subscription:
			err = c.subscription(m)
		case *redis.Message:
			c.message(m.Channel, m.Payload)
		}
		if err != nil {
			return received, err
		}
	}
}

// subscription handles the confirmation of a SUBSCRIBE or an UNSUBSCRIBE.
func (c *connection) subscription(m *redis.Subscription) error {
	if m.Kind == "sunsubscribe" && !c.requests.endsNext(m.Channel) {
		c.moved(m.Channel)
		return nil
	}
	if m.Kind == "subscribe" || m.Kind == "ssubscribe" {
		q, err := c.requests.confirmed(subscribing, m.Channel)
		if err == nil {
			c.confirm(m.Channel, q.topic)
		}
		return err
	}
	_, err := c.requests.confirmed(unsubscribing, m.Channel)
	if err == nil {
		c.unsubscribed(m.Channel)
	}
	return err
}

// moved ends the subscription of a sharded channel whose hash slot the server no longer has.
func (c *connection) moved(channel string) {
	c.mu.Lock()
	t := c.topics[channel]
	if t != nil && t.up {
		t.up, t.asked, t.resolved = false, false, make(chan struct{})
	}
	c.mu.Unlock()
	c.lost(channel, errMoved)
}

// lost reports that the channel's subscription failed or has ended, unless another connection has the channel now.
func (c *connection) lost(channel string, err error) {
	if c.exchange.connectionOf(channel) != c {
		return
	}
	for _, h := range c.exchange.users(channel) {
		h.lost(channel, err)
	}
}

// message passes a message to the hubs that subscribe to its channel, or else to those that are leaving it.
func (c *connection) message(channel, message string) {
	hubs := c.exchange.users(channel)
	if len(hubs) == 0 {
		c.mu.Lock()
		hubs = c.leavingHubs(channel)
		c.mu.Unlock()
	}
	for _, h := range hubs {
		h.receive(channel, message)
	}
}

// leavingHubs returns the hubs that left the channel and whose Unsubscribe has no answer, each once.
func (c *connection) leavingHubs(channel string) (hubs []*Hub) {
	for _, h := range c.leaving[channel] {
		if h != nil && !slices.Contains(hubs, h) {
			hubs = append(hubs, h)
		}
	}
	return hubs
}

// confirm handles the confirmation of a topic. If the topic was dropped meanwhile, a newer topic of the channel waits
// for its own confirmation.
func (c *connection) confirm(channel string, t *topic) {
	c.mu.Lock()
	if c.topics[channel] != t || t.up {
		c.mu.Unlock()
		return
	}
	again := t.again
	t.up, t.again = true, true
	if t.err == nil {
		close(t.resolved)
	}
	t.err = nil
	c.mu.Unlock()
	for _, h := range c.exchange.users(channel) {
		h.confirm(channel, again)
	}
}

// unsubscribed forgets the hub that left the channel first: no message for it can arrive any more.
func (c *connection) unsubscribed(channel string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leaving[channel] = c.leaving[channel][1:]; len(c.leaving[channel]) == 0 {
		delete(c.leaving, channel)
	}
}

// disconnected resolves all pending subscriptions with the error.
func (c *connection) disconnected(err error, received, ended bool) {
	channels, err := c.broken(err, received, ended)
	for _, channel := range channels {
		c.lost(channel, err)
	}
}

// broken notes that the connection is broken. It returns its channels and the reason.
func (c *connection) broken(err error, received, ended bool) (channels []string, reason error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.renewed {
		err = ErrRenewed
	}
	c.ps, c.failed, c.ended = nil, err, ended
	if received {
		c.failed = nil // it worked, and reconnects soon
	}
	clear(c.leaving)
	for channel, t := range c.topics {
		channels = append(channels, channel)
		t.asked = false
		if !t.up && t.err == nil {
			t.err = err
			close(t.resolved)
		}
		if t.up {
			t.up, t.err, t.resolved = false, nil, make(chan struct{})
		}
	}
	return channels, err
}
