package rpc

import (
	"sync/atomic"
	"time"
)

// serverClock is what this process knows of the server's clock: the difference between it and a clock of its own that
// only goes forward.
type serverClock struct {
	began  time.Time
	offset atomic.Int64 // of the server's time, Unix ns
}

func (c *serverClock) init() { c.began = time.Now() }

// note takes the server's time of a reply to what was sent at that moment. Counted from then, the clock is never behind
// the server's, so that no request ends early.
func (c *serverClock) note(now time.Time, sent time.Time) {
	c.offset.Store(now.UnixNano() - int64(sent.Sub(c.began)))
}

// after is the server's time in d, in ms.
func (c *serverClock) after(d time.Duration) int64 {
	return (c.offset.Load() + int64(time.Since(c.began)+d)) / int64(time.Millisecond)
}
