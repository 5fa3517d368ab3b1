package rpc

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What is known of the server's clock is the least that no reply has refuted.
func TestTheClockTakesWhatRepliesShow(t *testing.T) {
	t.Parallel()
	var c serverClock
	c.init()
	ahead := func() time.Duration { return time.Duration(c.offset.Load() - c.began.UnixNano()) }
	reply := func(server, sent, received time.Duration) {
		c.note(c.began.Add(server), c.began.Add(sent), c.began.Add(received))
	}
	const ms = time.Millisecond
	for _, step := range []struct {
		what                   string
		server, sent, received time.Duration
		ahead                  time.Duration
	}{
		{"the first reply counts, however late", 3000 * ms, 0, 3001 * ms, 3001 * ms},
		{"a faster reply shows that it is less", 4000 * ms, 3999 * ms, 4001 * ms, 2 * ms},
		{"a slow reply shows nothing", 9000 * ms, 6000 * ms, 9001 * ms, 2 * ms},
		{"a slow reply shows that the server's clock is faster", 10_003 * ms, 8000 * ms, 10_000 * ms, 13 * ms},
		{"the server's clock steps forward", 20_000 * ms, 10_999 * ms, 11_001 * ms, 9002 * ms},
		{"the server's clock steps back", 12_000 * ms, 11_998 * ms, 12_002 * ms, 3 * ms},
		{"a step back shows in a slow reply, too", 11_000 * ms, 14_000 * ms, 16_000 * ms, -2999 * ms},
	} {
		reply(step.server, step.sent, step.received)
		require.Equal(t, step.ahead, ahead(), step.what)
	}
}
