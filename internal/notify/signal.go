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

// Signal is the subscription of one waiter to one or more channels. It reports that there was a message, and not which.
// It has no goroutine and no connection of its own.
type Signal struct {
	hub      *Hub
	channels []string
	hints    map[string]func(message string) // handlers for the messages of other channels
	received chan struct{}

	mu        sync.Mutex // guards following
	following int        // goroutines that subscribe
}

// NewSignal returns a signal on the channels. It sends nothing before Start.
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

// Hint subscribes to one more channel and passes its messages to f. They do not end a wait. A lost message is not
// noticed, so f must only hasten what happens anyway. It must not block. Call Hint before Start.
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
		_ = s.hub.Subscribe(ctx, channel) // after an error the hub tries again by itself
	})
}

// follow calls subscribe for each channel in the background, unless an earlier follow still runs.
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

// Confirmed reports whether the subscriptions are confirmed now, except those of hints. If the hash slot of a channel
// has moved to another server, the subscription follows in the background.
func (s *Signal) Confirmed(ctx context.Context) bool {
	missing := s.missing(ctx, nil, slices.Values(s.channels))
	confirmed := len(missing) == 0
	missing = s.missing(ctx, missing, maps.Keys(s.hints))
	if len(missing) > 0 {
		s.follow(missing, func(channel string) { _ = s.hub.Follow(ctx, channel) }) // the next call tries again
	}
	return confirmed
}

// missing appends the channels whose subscription is not confirmed at their server now.
func (s *Signal) missing(ctx context.Context, to []string, channels iter.Seq[string]) []string {
	for channel := range channels {
		if !s.hub.Current(ctx, channel) {
			to = append(to, channel)
		}
	}
	return to
}

// Stop ends the subscription.
func (s *Signal) Stop() { s.hub.Close() }

// Received receives a value after each notification, and after each confirmation of a subscription: earlier
// notifications are lost, so the waiter must check.
func (s *Signal) Received() <-chan struct{} { return s.received }

// exact is the last part of a wait. The waiter sleeps it exactly, and receives no notifications in it.
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
