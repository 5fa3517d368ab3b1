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
	read   atomic.Int64 // when it was last asked for, ns after began
}

func (c *serverClock) init() { c.began = time.Now() }

// note takes the server's time of a reply, which the server gave between these two moments. Counted from the first one
// the clock is never behind the server's, so that no request ends early. That can be long ago, where the script was
// sent again. So what is known stays, while it is smaller and the reply does not refute it. A clock that goes faster
// refutes it by little.
func (c *serverClock) note(now, sent, received time.Time) {
	defer c.read.Store(int64(sent.Sub(c.began)))
	const fraction, faster = int64(time.Millisecond), int64(10 * time.Millisecond) // the time is rounded down
	least, most := now.UnixNano()-int64(received.Sub(c.began)), now.UnixNano()-int64(sent.Sub(c.began))+fraction
	switch known := c.offset.Load(); {
	case known == 0 || known > most:
		c.offset.Store(most)
	case known < least:
		c.offset.Store(min(most, least+faster))
	}
}

// readSince reports whether a reply is noted whose request was sent after that moment.
func (c *serverClock) readSince(t time.Time) bool { return c.read.Load() > int64(t.Sub(c.began)) }

// after is the server's time in d, in ms.
func (c *serverClock) after(d time.Duration) int64 {
	return (c.offset.Load() + int64(time.Since(c.began)+d)) / int64(time.Millisecond)
}
