package rpc

import (
	"sync/atomic"
	"time"
)

// serverClock is what this process knows about the server's clock: its difference from a clock of the process that
// never goes back.
type serverClock struct {
	began  time.Time
	offset atomic.Int64 // of the server's time, Unix ns
	read   atomic.Int64 // when it was last asked for, ns after began
}

func (c *serverClock) init() { c.began = time.Now() }

// note takes the server's time from a reply; the server read its clock between sent and received. If the time counts
// from sent, this clock is never behind the server's, and no request ends early. But sent can be long ago, if the
// script was sent again. So a smaller known difference stays, as long as the reply does not refute it. A server's clock
// that runs faster refutes it only by a little.
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

// readSince reports whether a reply was noted whose request was sent after t.
func (c *serverClock) readSince(t time.Time) bool { return c.read.Load() > int64(t.Sub(c.began)) }

// after is the server's time after d from now, in ms.
func (c *serverClock) after(d time.Duration) int64 {
	return (c.offset.Load() + int64(time.Since(c.began)+d)) / int64(time.Millisecond)
}
