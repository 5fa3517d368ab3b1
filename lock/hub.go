package lock

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/luatomic/luatomic/internal/calls"
	"github.com/luatomic/luatomic/internal/keeper"
	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/internal/notify"
	"github.com/luatomic/luatomic/internal/send"
	"github.com/luatomic/luatomic/lua"
)

// hub is what a Locker and the Lockers made from it share: the waiters, the leases that are kept, and the connection on
// which both are notified. A message is one line:
//
//	g owner fence start length key   the lock at the key is granted to the owner, from start (us) for length (ms)
//	f owner                      the owner makes another attempt: the limit changed, or a permit was given back
//	n owner length               the owner is next in the queue, or out of it: it makes an attempt after length (ms)
//	r token key                  the lock at the key was taken away; that of a permit has no key
//	e                            the leader has changed; on a channel of its own, for observers of an election
type hub struct {
	client        lua.Client
	plain         plain
	permits       permits
	tokens        *keeper.Tokens
	prefix        string       // of the keys
	inbox         string       // channel of this process
	floor         keeper.Floor // the greatest fence that is known
	calls         *calls.Group // those that Close waits for: acquires, and what goes on behind a caller that has left
	subscriptions *notify.Hub
	waiters       *waiters
	keeper        *keeper.Keeper
	observers     observers
	subscribed    sync.Once // to the inbox
}

func newHub(client lua.Client, prefix string) *hub {
	s := notify.NewHub(client)
	tokens := keeper.NewTokens()
	h := &hub{
		client: client, plain: plain{client}, permits: permits{client}, tokens: tokens,
		prefix: prefix, inbox: keys.LockInbox(prefix) + tokens.Process(), subscriptions: s, waiters: newWaiters(s),
		keeper: keeper.NewKeeper(client, keeper.Causes{
			Lost: ErrLost, MaxHold: ErrMaxHold, Revoked: ErrRevoked, Released: ErrReleased,
		}),
		observers: observers{subscriptions: s}, calls: calls.New(),
	}
	s.Message, s.Confirmed = h.received, h.confirmed
	s.Lost = func(channel string, _ error) { h.waiters.lost(channel) }
	return h
}

// end closes the connections and ends the waiters and the renewals.
func (h *hub) end() {
	h.calls.Close()
	h.subscriptions.Close()
	h.keeper.Close()
	calls.Await(h.calls.Close()) // the last message may have begun a call
}

// enter begins an acquire, which makes all its requests under bound. Close ends bound, whatever the acquire waits for,
// and then waits for leave. After Close, enter returns ErrClosed.
func (h *hub) enter(ctx context.Context) (bound context.Context, leave func(), err error) {
	if !h.calls.Begin() {
		return nil, nil, ErrClosed
	}
	bound, free := h.calls.Bind(ctx, ErrClosed)
	return bound, func() {
		free()
		h.calls.End()
	}, nil
}

// open returns ErrClosed after Close: no keeper would renew a lease, and no message arrives.
func (h *hub) open() error {
	select {
	case <-h.calls.Closed():
		return ErrClosed
	default:
		return nil
	}
}

// confirmed is called when a channel is subscribed. Messages before that are lost. Before the first subscription, too,
// a lease may have been taken away: the keeper has it while the process subscribes. A waiter joins the queue only after
// the subscription.
func (h *hub) confirmed(channel string, again bool) {
	if channel == h.inbox {
		h.keeper.RenewAll()
	}
	if again {
		h.waiters.signalAll(channel)
	}
	h.observers.confirmed(channel, again)
}

// received passes one message to the waiter, the leases or the observers that it is for.
func (h *hub) received(channel, message string) {
	messageType, args, _ := strings.Cut(message, " ")
	token, args, _ := strings.Cut(args, " ")
	switch messageType {
	case "r":
		h.keeper.EndWhere(ErrRevoked, func(of keeper.Holder) bool {
			kept, ok := of.(interface{ hasToken(token, key string) bool })
			return ok && kept.hasToken(token, args)
		})
	case "e":
		h.observers.signal(channel)
	default:
		if !h.waiters.received(messageType, token, args) && messageType == "g" {
			h.giveBack(token, args)
		}
	}
}

// request makes the request of one acquire.
func (h *hub) request(name string, k keys.Lock, token string, opts *Options, scripts protocol) request {
	return request{
		name: name, keys: k, token: token, opts: opts, scripts: scripts, floor: &h.floor, calls: h.calls,
		channel: h.channelOf(k),
	}
}

// channelOf is the prefix of the channels on which processes are notified of the lock. The name of a process follows
// it.
func (h *hub) channelOf(k keys.Lock) string {
	if h.subscriptions.Tagged() {
		return k.Channel("")
	}
	return keys.LockInbox(h.prefix)
}

// notifyForced notifies the process of the token, if there is one, that its lease was taken away, and the observers of
// an election that the leader has changed.
func (h *hub) notifyForced(ctx context.Context, r *request, token string) {
	h.notifyRevoked(ctx, token, r.keys.Record)
	h.publish(ctx, r.keys.Observers(), "e")
}

// notifyRevoked notifies the process of the token that its lease was taken away. The script has published on the server
// of the lock. But on a cluster or a Ring a process is subscribed to its inbox, which may be on another server.
func (h *hub) notifyRevoked(ctx context.Context, token, key string) {
	process, _, ok := strings.Cut(token, ".")
	if !ok || !h.subscriptions.Tagged() {
		return
	}
	// where it fails, the next renewal reports the loss
	h.publish(ctx, keys.LockInbox(h.prefix)+process, "r "+token+" "+key)
}

// publishMost is how long a caller waits at most for a message that is sent beside its call.
const publishMost = time.Second

// publish publishes a message on which the result of the call does not depend. It waits for the reply until ctx ends,
// at most.
func (h *hub) publish(ctx context.Context, channel, message string) {
	ctx, cancel := context.WithTimeout(ctx, publishMost)
	defer cancel()
	_ = behind(ctx, h.calls, func(ctx context.Context) error { return h.client.Publish(ctx, channel, message).Err() })
}

// publishBehind sends a message that nobody waits for. Close waits for it.
func (h *hub) publishBehind(ctx context.Context, channel, message string) {
	h.calls.Add()
	send.Go(func() {
		defer h.calls.End()
		_ = h.client.Publish(keeper.Detach(ctx), channel, message).Err()
	})
}

// giveBack gives back a grant that nobody waits for: its acquire was withdrawn before it joined the queue, or joined it
// twice. args are the arguments of the grant's message.
func (h *hub) giveBack(token, args string) {
	fields := strings.SplitN(args, " ", 4)
	if len(fields) < 4 {
		return
	}
	k, plain, err := keys.LockOf(h.prefix, fields[3])
	if err != nil {
		return
	}
	var scripts protocol = &h.permits
	if plain {
		scripts = &h.plain
	}
	r := h.request("", k, token, &Options{}, scripts)
	h.calls.Add()
	go func() {
		defer h.calls.End()
		// Where it fails, the grant ends with its claim.
		_ = scripts.giveBack(context.Background(), &r)
	}()
}

// inboxTimeout bounds the first subscription to the inbox.
const inboxTimeout = 10 * time.Second

// subscribeInbox subscribes to the channel of this process, in the background. A message on it notifies the holder of a
// kept lease that the lease was taken away. Keep does not wait for the subscription. It calls subscribeInbox after the
// keeper has the lease, so that the confirmation renews the lease.
func (h *hub) subscribeInbox() {
	first := false
	h.subscribed.Do(func() { first = true })
	if first {
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), inboxTimeout)
			defer cancel()
			// If it fails, the subscriptions try again, and the next renewal notices a loss.
			_ = h.subscriptions.Subscribe(ctx, h.inbox)
		}()
	} else if h.subscriptions.Tagged() && !h.subscriptions.Current(context.Background(), h.inbox) {
		h.subscriptions.Relocate(h.inbox)
	}
}
