package notify

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/internal/clock"
	"github.com/luatomic/luatomic/internal/servers"
)

// A channel of a cluster or a Ring can lose its server: the master is replaced at another address, the slot moves, the
// shard is down. Its connection reconnects to the server that it knows. So the hub looks for the server again whenever
// a subscription has ended that it did not end, and where there was no server to begin with, until the channel is
// subscribed at the one that has it, or not wanted any more.

// lastPlace is the longest delay before a hub looks for a server again.
const lastPlace = brokenWait

// Place has the hub look for the server of the channel, in the background. The caller must have called Subscribe.
func (h *Hub) Place(channel string) {
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
	if h.stopPlacing == nil {
		var ctx context.Context
		ctx, h.stopPlacing = context.WithCancel(context.Background())
		go h.placeAll(ctx)
	}
}

// placeAll ends when each channel is in its place, or with ctx.
func (h *Hub) placeAll(ctx context.Context) {
	retry := clock.Backoff{First: firstWait, Last: lastPlace}
	for channels := h.takeLost(); channels != nil; channels = h.takeLost() {
		servers.Reload(ctx, h.client) // behind this: what is read now may be as it was
		for channel := range channels {
			if !h.place(ctx, channel) {
				h.Place(channel)
			}
		}
		clock.Sleep(ctx, retry.Next())
	}
}

// takeLost takes the channels to look after, nil for none: then nobody does from now on.
func (h *Hub) takeLost() map[string]struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	channels := h.lostChannels
	h.lostChannels = nil
	if h.stopPlacing != nil && (channels == nil || h.closed) {
		h.stopPlacing()
		h.stopPlacing, channels = nil, nil
	}
	return channels
}

// place asks the server that has the channel now for the subscription, and does not wait for it. It reports whether
// nothing is left to do: the channel is subscribed there, the server has refused it to the user, nobody wants it, or
// the client is closed.
func (h *Hub) place(ctx context.Context, channel string) bool {
	x := h.attached()
	if x == nil || !x.wanted(h, channel) {
		return true
	}
	node, name, err := servers.Of(ctx, h.client, channel)
	if err != nil {
		return errors.Is(err, redis.ErrClosed)
	}
	now, cancel := context.WithCancel(ctx)
	cancel()
	if errors.Is(node.Ping(now).Err(), redis.ErrClosed) { // nothing is sent: now is over
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
