package rpc_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

// A call costs two commands of clients, its two scripts; at most 13 inside them; and at
// most 500 bytes out of the server.
func TestRPCCost(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), luatomictest.StartServer(t).Client()
	opts := &rpc.Options{Lease: 5 * time.Minute} // no announcement, and no look, while it counts
	lab.Serving(t, lab.Echo, c, "orders", opts, lab.Upper)
	caller := lab.OpenBus(t, c, "orders", opts)
	const calls = 1000
	run := func() {
		for range calls {
			_, err := lab.Echo.Call(ctx, caller, "a request of 32 bytes, and no more")
			require.NoError(t, err)
		}
	}
	run()
	require.NoError(t, c.ConfigResetStat(ctx).Err())
	run()
	scripts, inner := 0, 0
	var text strings.Builder
	for name, n := range lab.CommandCalls(t, c) {
		switch name {
		case "evalsha":
			scripts = n
		case "info", "config|resetstat", "hlen", "hset", "pexpire": // of the beat
		default:
			inner += n
			fmt.Fprintf(&text, " %s %d", name, n)
		}
	}
	info := lab.Must(c.Info(ctx, "stats").Result())
	_, after, _ := strings.Cut(info, "total_net_output_bytes:")
	out, err := strconv.Atoi(strings.TrimSpace(strings.SplitN(after, "\r\n", 2)[0]))
	require.NoError(t, err)
	t.Logf("per call: %.2f scripts, %.2f commands inside, %d bytes out;%s", float64(scripts)/calls, float64(inner)/calls, out/calls, text.String())
	require.InDelta(t, 2*calls, scripts, 20, "client commands")
	require.LessOrEqual(t, inner, 13*calls)
	require.Less(t, out, 500*calls)
	clients := lab.Must(c.ClientList(ctx).Result())
	require.Equal(t, 2, strings.Count(clients, "flags=P"), "one subscriber connection for each bus")
}
