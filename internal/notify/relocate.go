package notify

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/internal/clock"
	"github.com/luatomic/luatomic/internal/servers"
)

// A channel of a cluster or a Ring can lose its server: the master is replaced at another address, the hash slot moves,
// or the shard is down. The connection reconnects only to the server that it knows. So the hub looks for the server of
// a channel when a subscription has ended that the hub did not end, and when no server was found. It stops when the
// channel is subscribed at its server, or has no subscriber any more.

// maxSearchWait is the longest delay between two searches for a server.
const maxSearchWait = brokenWait

// Relocate looks for the server of the channel in the background. The caller must have called Subscribe.
func (h *Hub) Relocate(channel string) {
	if !h.Tagged() {
		return // there is one server, and its connection reconnects
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	if h.lostChannels == nil {
		h.lostChannels = make(map[string]struct{})
	}
	h.lostChannels[channel] = struct{}{}
	if h.stopSearch == nil {
		var ctx context.Context
		ctx, h.stopSearch = context.WithCancel(context.Background())
		go h.relocateAll(ctx)
	}
}

// relocateAll returns when each channel is subscribed at its server, or when ctx ends.
func (h *Hub) relocateAll(ctx context.Context) {
	retry := clock.Backoff{First: firstWait, Last: maxSearchWait}
	for channels := h.takeLost(); channels != nil; channels = h.takeLost() {
		servers.Reload(ctx, h.client) // it runs in the background: this pass may still read the old servers
		for channel := range channels {
			if !h.relocate(ctx, channel) {
				h.Relocate(channel)
			}
		}
		clock.Sleep(ctx, retry.Next())
	}
}

// takeLost takes the channels whose servers are to be found. It returns nil for none, and then ends the search.
func (h *Hub) takeLost() map[string]struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	channels := h.lostChannels
	h.lostChannels = nil
	if h.stopSearch != nil && (channels == nil || h.closed) {
		h.stopSearch()
		h.stopSearch, channels = nil, nil
	}
	return channels
}

// relocate subscribes at the server that has the channel now, without waiting for the confirmation. It reports whether
// nothing is left to do: the channel is subscribed there, the user has no permission, the channel has no subscriber, or
// the client is closed.
func (h *Hub) relocate(ctx context.Context, channel string) bool {
	x := h.attached()
	if x == nil || !x.hasSubscriber(h, channel) {
		return true
	}
	node, name, err := servers.Of(ctx, h.client, channel)
	if err != nil {
		return errors.Is(err, redis.ErrClosed)
	}
	now, cancel := context.WithCancel(ctx)
	cancel()
	if errors.Is(node.Ping(now).Err(), redis.ErrClosed) { // it sends nothing: its context has ended
		return true
	}
	c, err := x.assign(node, name, channel)
	if err != nil {
		return true
	}
	up, err := c.state(channel)
	if up || isForbidden(err) {
		return true
	}
	_ = c.subscribe(now, channel)
	return false
}
