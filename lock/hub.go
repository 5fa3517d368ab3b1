package lock

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/internal/lease"
	"github.com/luatomic/luatomic/internal/notify"
	"github.com/luatomic/luatomic/lua"
)

// hub is what the Lockers of a process share: the waiters, the leases that are kept, and the connection on which both
// are notified. A message is one line:
//
//	g owner fence start length   the lock is granted to the owner, from start (us) for length (ms)
//	f owner                      the owner makes another attempt: the limit changed, or a permit was given back
//	n owner length               the owner is next in the queue: it makes an attempt after length (ms)
//	r token key                  the lock at the key was taken away; that of a permit has no key
//	e                            the leader has changed; on a channel of its own, for observers of an election
type hub struct {
	client        lua.Client
	plain         plain
	permits       permits
	tokens        *lease.Tokens
	inbox         string // channel of this process
	subscriptions *notify.Hub
	waiters       *waiters
	keeper        *lease.Keeper
	observers     observers
	subscribed    sync.Once // to the inbox
	closed        chan struct{}
	close         sync.Once
}

func newHub(client lua.Client, prefix string) *hub {
	s := notify.NewHub(client)
	tokens := lease.NewTokens()
	h := &hub{
		client: client, plain: plain{client}, permits: permits{client}, tokens: tokens,
		inbox: keys.LockInbox(prefix) + tokens.Process(), subscriptions: s, waiters: newWaiters(s),
		keeper:    lease.NewKeeper(client, lease.Causes{Lost: ErrLost, MaxHold: ErrMaxHold, Released: ErrReleased}),
		observers: observers{subscriptions: s}, closed: make(chan struct{}),
	}
	s.Heard, s.Up = h.received, h.resubscribed
	return h
}

// ErrClosed is what an Acquire that waits returns when its Locker is closed.
var ErrClosed = errors.New("luatomic: locker closed")

// end ends the connections, the waiters and the renewals.
func (h *hub) end() {
	h.close.Do(func() { close(h.closed) })
	h.subscriptions.Close()
	h.keeper.Close()
}

// resubscribed is called when a channel is subscribed again: messages of the meantime are lost.
func (h *hub) resubscribed(channel string) {
	h.waiters.signalAll(channel)
	h.observers.signal(channel)
	if channel == h.inbox {
		h.keeper.RenewAll()
	}
}

// received takes one message to the waiter, the leases or the observers that it is for.
func (h *hub) received(channel, message string) {
	messageType, args, _ := strings.Cut(message, " ")
	token, args, _ := strings.Cut(args, " ")
	switch messageType {
	case "r":
		h.keeper.EndWhere(ErrRevoked, func(of lease.Holder) bool {
			kept, ok := of.(interface{ hasToken(token, key string) bool })
			return ok && kept.hasToken(token, args)
		})
	case "e":
		h.observers.signal(channel)
	default:
		h.waiters.received(messageType, token, args)
	}
}

// inboxTimeout bounds the first subscription to the inbox.
const inboxTimeout = 10 * time.Second

// subscribeInbox subscribes to the channel of this process, in the background: a lease that is kept needs to know
// when it is taken away, and does not wait for that.
func (h *hub) subscribeInbox() {
	h.subscribed.Do(func() {
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), inboxTimeout)
			defer cancel()
			// Where it fails, the next renewal notices the loss.
			_ = h.subscriptions.Join(ctx, h.inbox)
		}()
	})
}
