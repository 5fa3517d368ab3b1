package notify

import (
	"context"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Signal is the subscription of one waiter, to one channel or to some, that needs to know only that there was a
// message. It has no goroutine and no connection of its own.
type Signal struct {
	hub      *Hub
	channels []string
	hints    map[string]func(message string) // what messages of other channels do
	received chan struct{}

	mu        sync.Mutex // guards following
	following int        // goroutines that subscribe
}

// NewSignal returns a signal on the channels. Nothing is sent before Start.
func NewSignal(client redis.UniversalClient, channels ...string) *Signal {
	s := &Signal{hub: NewHub(client), channels: channels, received: make(chan struct{}, 1)}
	s.hints = make(map[string]func(string))
	s.hub.Message = func(channel, message string) {
		if hint := s.hints[channel]; hint != nil {
			hint(message)
		} else {
			s.signal()
		}
	}
	s.hub.Confirmed = func(channel string, _ bool) {
		if s.hints[channel] == nil {
			s.signal()
		}
	}
	return s
}

// Hint subscribes to one more channel, whose messages are given to f and end no wait. A lost one is not noticed: f must
// be a shortcut to what happens anyway. It must not block. Hint comes before Start.
func (s *Signal) Hint(channel string, f func(message string)) { s.hints[channel] = f }

func (s *Signal) signal() {
	select {
	case s.received <- struct{}{}:
	default: // a pending notification suffices
	}
}

// Start subscribes in the background.
func (s *Signal) Start(ctx context.Context) {
	s.follow(slices.AppendSeq(slices.Clone(s.channels), maps.Keys(s.hints)), func(channel string) {
		_ = s.hub.Subscribe(ctx, channel) // where it fails, the hub goes on
	})
}

// follow calls subscribe for each channel in the background, unless the last call is not over.
func (s *Signal) follow(channels []string, subscribe func(channel string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.following > 0 {
		return
	}
	s.following = len(channels)
	for _, channel := range channels {
		go func() {
			defer s.followed()
			subscribe(channel)
		}()
	}
}

func (s *Signal) followed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.following--
}

// Confirmed reports whether a notification on each channel reaches the waiter now, hints aside. If the slot of the
// channels has moved to another server, the subscription follows in the background.
func (s *Signal) Confirmed(ctx context.Context) bool {
	missing := s.missing(ctx, nil, slices.Values(s.channels))
	confirmed := len(missing) == 0
	missing = s.missing(ctx, missing, maps.Keys(s.hints))
	if len(missing) > 0 {
		s.follow(missing, func(channel string) { _ = s.hub.Follow(ctx, channel) }) // the next call tries again
	}
	return confirmed
}

// missing appends those of the channels whose messages do not arrive now.
func (s *Signal) missing(ctx context.Context, to []string, channels iter.Seq[string]) []string {
	for channel := range channels {
		if !s.hub.InPlace(ctx, channel) {
			to = append(to, channel)
		}
	}
	return to
}

// Stop ends the subscription.
func (s *Signal) Stop() { s.hub.Close() }

// Received receives after each notification, and after each confirmed subscription: notifications before it are lost,
// so the waiter must check.
func (s *Signal) Received() <-chan struct{} { return s.received }

// exact is the last part of a wait, slept exactly and without receiving notifications.
const exact = time.Millisecond

// Wait returns after d, or earlier when a notification arrives or ctx ends.
func (s *Signal) Wait(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	end := time.Now().Add(d)
	t := time.NewTimer(d - exact)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-s.received:
	case <-t.C:
		sleepExactly(time.Until(end))
	}
}
