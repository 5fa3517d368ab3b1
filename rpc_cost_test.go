package luatomic_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic"
	"github.com/luatomic/luatomic/luatomictest"
)

// A call costs two commands of clients, its two scripts; at most 13 inside them; and at
// most 500 bytes out of the server.
func TestRPCCost(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), luatomictest.StartServer(t).Client()
	opts := &luatomic.BusOptions{Lease: 5 * time.Minute} // no announcement, and no look, while it counts
	serving(t, echo, c, "orders", opts, upper)
	caller := openBus(t, c, "orders", opts)
	const calls = 1000
	run := func() {
		for range calls {
			_, err := echo.Call(ctx, caller, "a request of 32 bytes, and no more")
			require.NoError(t, err)
		}
	}
	run()
	require.NoError(t, c.ConfigResetStat(ctx).Err())
	run()
	scripts, inner := 0, 0
	var text strings.Builder
	for name, n := range commandCalls(t, c) {
		switch name {
		case "evalsha":
			scripts = n
		case "info", "config|resetstat", "hlen", "hset", "pexpire": // of the beat
		default:
			inner += n
			fmt.Fprintf(&text, " %s %d", name, n)
		}
	}
	info := must(c.Info(ctx, "stats").Result())
	_, after, _ := strings.Cut(info, "total_net_output_bytes:")
	out, err := strconv.Atoi(strings.TrimSpace(strings.SplitN(after, "\r\n", 2)[0]))
	require.NoError(t, err)
	t.Logf("per call: %.2f scripts, %.2f commands inside, %d bytes out;%s", float64(scripts)/calls, float64(inner)/calls, out/calls, text.String())
	require.InDelta(t, 2*calls, scripts, 20, "client commands")
	require.LessOrEqual(t, inner, 13*calls)
	require.Less(t, out, 500*calls)
	clients := must(c.ClientList(ctx).Result())
	require.Equal(t, 2, strings.Count(clients, "flags=P"), "one subscriber connection for each bus")
}

func commandCalls(t *testing.T, c *redis.Client) map[string]int {
	out := make(map[string]int)
	for _, line := range strings.Split(must(c.Info(t.Context(), "commandstats").Result()), "\r\n") {
		name, rest, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		if !ok {
			continue
		}
		number, _, _ := strings.Cut(rest, ",")
		n, err := strconv.Atoi(number)
		require.NoError(t, err)
		out[name] = n
	}
	return out
}
