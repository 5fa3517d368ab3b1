package notify

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"
)

// requests are the requests of a connection. They are written in the order in which they were added, and the server
// answers them in that order. An answer does not say which request it is for: a confirmation names only the channel, to
// which another caller may have subscribed meanwhile, and an error does not name even that.
type requests struct {
	writing sync.Mutex // held while one is written

	mu      sync.Mutex // guards all below
	ps      *redis.PubSub
	queued  []request // not written yet
	pending []request // written, without an answer
}

type request struct {
	kind    requestKind
	channel string
	topic   *topic // what the request is about; nil for a PING
}

type requestKind uint8

const (
	subscribing requestKind = iota
	unsubscribing
	pinging
)

// reset starts anew on a new connection.
func (r *requests) reset(ps *redis.PubSub) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ps, r.queued, r.pending = ps, nil, nil
}

// add queues the request, unless ps was replaced. The next flush writes it.
func (r *requests) add(ps *redis.PubSub, q request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ps == ps {
		r.queued = append(r.queued, q)
	}
}

// flush writes the queued requests, and may block. It reports no error: the receiver gets it too.
func (r *requests) flush() {
	r.writing.Lock()
	defer r.writing.Unlock()
	for {
		ps, q, ok := r.next()
		if !ok {
			return
		}
		q.write(ps)
	}
}

// next moves the first queued request to the pending ones.
func (r *requests) next() (ps *redis.PubSub, q request, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queued) == 0 {
		return nil, request{}, false
	}
	q, r.queued = r.queued[0], r.queued[1:]
	r.pending = append(r.pending, q)
	return r.ps, q, true
}

func (q request) write(ps *redis.PubSub) {
	ctx, act := context.Background(), ps.Subscribe
	switch {
	case q.kind == pinging:
		_ = ps.Ping(ctx)
		return
	case q.kind == unsubscribing && q.topic.shard:
		act = ps.SUnsubscribe
	case q.kind == unsubscribing:
		act = ps.Unsubscribe
	case q.topic.shard:
		act = ps.SSubscribe
	}
	_ = act(ctx, q.channel)
}

// endsNext reports whether the oldest request without an answer unsubscribes from the channel. If not, the server has
// ended the subscription by itself, because a hash slot has moved.
func (r *requests) endsNext(channel string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.pending) > 0 && r.pending[0].kind == unsubscribing && r.pending[0].channel == channel
}

// answered removes and returns the oldest request without an answer: the server has answered it.
func (r *requests) answered() (request, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.pending) == 0 {
		return request{}, false
	}
	first := r.pending[0]
	r.pending = r.pending[1:]
	return first, true
}

// confirmed returns the request that a confirmation answers, or errOutOfStep.
func (r *requests) confirmed(kind requestKind, channel string) (request, error) {
	q, ok := r.answered()
	if !ok || q.kind != kind || q.channel != channel {
		return request{}, errOutOfStep
	}
	return q, nil
}
