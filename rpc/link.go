package rpc

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/internal/clock"
	"github.com/luatomic/luatomic/internal/notify"
	"github.com/luatomic/luatomic/internal/servers"
)

// link is the subscription of this process to its own channel and to the channel of all, on the connection that all
// subscriptions of the client share. In a cluster the channels are sharded, and the link follows their slot.
type link struct {
	since atomic.Int64 // when both channels were confirmed, UnixNano; 0: they are not
	moved atomic.Int64 // when they were first confirmed at another server than before, as far as is known

	mu        sync.Mutex
	hub       *notify.Hub // nil where no Run is
	broken    chan error  // filled when the server of the link is in doubt
	channels  [2]string
	confirmed [2]bool
	at        string // the server of the last confirmed subscription
	uncounted bool   // since then the server of the bus had no subscriber here, or the connection was replaced for that
}

// lastLink is the longest delay before the link looks for its server again. It is short, because callers wait for
// missed messages.
const lastLink = 100 * time.Millisecond

// run keeps the link until ctx ends. It calls up when both channels are confirmed, the first time and after each break.
// It calls down when the link breaks or cannot be opened; the link may be up again by then.
func (l *link) run(
	ctx context.Context, client redis.UniversalClient, shard bool, up func(), down func(error), message func(string),
) {
	h, broken := notify.NewHub(client), make(chan error, 1)
	h.Shard = shard
	h.Message = func(_, payload string) { message(payload) }
	confirmed := func(channel string, again bool) {
		if l.confirm(channel, h.Server(channel), again) {
			up()
		}
	}
	h.Confirmed = confirmed
	h.Lost = func(channel string, err error) {
		if l.lose(channel, errors.Is(err, notify.ErrRenewed)) {
			down(err) // here, since the link may be up again before the loop reads it
			suspect(broken, err)
		}
	}
	l.use(h, broken)
	defer func() {
		l.use(nil, nil)
		h.Close()
	}()
	l.keep(ctx, client, h, confirmed, down)
}

func suspect(broken chan<- error, err error) {
	select {
	case broken <- err:
	default:
	}
}

// keep subscribes to both channels, and again when a subscription fails or ends.
func (l *link) keep(
	ctx context.Context, client redis.UniversalClient, h *notify.Hub, confirmed func(string, bool), down func(error),
) {
	retry := clock.Backoff{First: 10 * time.Millisecond, Last: lastLink}
	subscribe := h.Subscribe
	for ctx.Err() == nil {
		var err error
		for _, channel := range l.channels {
			if failed := subscribe(ctx, channel); failed != nil {
				err = failed
			} else if h.Subscribed(channel) { // another bus on the client may have subscribed to it before
				confirmed(channel, false)
			}
		}
		subscribe = h.Follow
		if err == nil {
			retry.Reset()
			select {
			case <-ctx.Done():
				return
			case err = <-l.broken:
				l.doubt(err)
			}
		}
		if err != nil {
			down(err)
		}
		clock.Sleep(ctx, retry.Next())
		servers.Reload(ctx, client) // the slot may have moved
	}
}

// use stores the hub of a Run. Nothing is confirmed yet.
func (l *link) use(h *notify.Hub, broken chan error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hub, l.broken, l.confirmed = h, broken, [2]bool{}
	l.since.Store(0)
}

// confirm records a channel that is subscribed; again says that messages may be lost. It reports whether both channels
// are confirmed from now on.
func (l *link) confirm(channel, server string, again bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.confirmed
	for i, c := range l.channels {
		l.confirmed[i] = l.confirmed[i] || c == channel
	}
	if l.confirmed != [2]bool{true, true} || before == l.confirmed && !again {
		return false
	}
	now := time.Now().UnixNano()
	if l.at != "" && l.at != server || l.uncounted {
		l.moved.Store(now)
	}
	l.at, l.uncounted = server, false
	l.since.Store(now)
	return true
}

// lose records a channel that is not subscribed. It reports true for the first one.
func (l *link) lose(channel string, uncounted bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.uncounted = l.uncounted || uncounted
	for i, c := range l.channels {
		if c == channel {
			l.confirmed[i] = false
		}
	}
	l.since.Store(0)
	return channel == l.channels[0]
}

// doubt records that the channels may not be subscribed at the server where their messages are published, until that is
// confirmed again: the slot may have moved while the connection to its former server still works. If err tells of a
// break, the break is over if both channels were confirmed since.
func (l *link) doubt(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil && l.isUp() {
		return
	}
	l.confirmed = [2]bool{}
	l.since.Store(0)
}

// replace looks for the server again and replaces a connection that is silent, or whose server no longer gets the
// messages. It returns false if the connection was replaced less than a second ago.
func (l *link) replace() bool {
	l.mu.Lock()
	h, broken := l.hub, l.broken
	l.mu.Unlock()
	if h == nil {
		return true
	}
	suspect(broken, nil)
	return h.Reconnect(l.channels[0])
}

// counted records whether the server of the bus has the subscription to the own channel.
func (l *link) counted(is bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.uncounted = !is
}

// isUp reports whether both channels are confirmed.
func (l *link) isUp() bool { return l.since.Load() != 0 }

// age is how long both channels have been confirmed. It is 0 if they are not.
func (l *link) age() time.Duration { return sinceNano(&l.since) }

// movedWithin reports whether the link changed to another server within the time, is about to, or is down.
func (l *link) movedWithin(d time.Duration) bool {
	l.mu.Lock()
	uncounted := l.uncounted
	l.mu.Unlock()
	return uncounted || !l.isUp() || l.moved.Load() != 0 && sinceNano(&l.moved) < d
}

func sinceNano(t *atomic.Int64) time.Duration {
	at := t.Load()
	if at == 0 {
		return 0
	}
	return time.Since(time.Unix(0, at))
}

// moving reports whether the server of the bus may have been replaced, or its slot moved, so recently that live nodes
// have not followed. A node follows with its next heartbeat, within a third of its lease, and in a cluster once its
// client knows the new state. Until then a missing subscriber does not mean that the node is dead.
func (b *Bus) moving(ctx context.Context) bool {
	if !b.shard {
		b.checkLink(ctx)
	}
	return b.link.movedWithin(max(b.opts.Lease/2, time.Second))
}

// checkLink has the server count the subscribers of this process, by a heartbeat that begins from now on, which calls
// share. In a cluster the client says where the link has to be.
func (b *Bus) checkLink(ctx context.Context) {
	_ = b.readClock(ctx, time.Now()) // where it fails, the link is as it is known
}
