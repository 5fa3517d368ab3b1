package rpc_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

// The guards of rpc_reply and rpc_collect for a request that another node has now.
func TestRPCScriptsThatDecide(t *testing.T) {
	t.Parallel()
	ctx, c, k := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	record := "{" + k + "}:r:1"
	reply := func(node string, attempt int64, state string) gen.RPCReplyResult {
		return lab.Must(gen.RPCReply(ctx, c, gen.RPCReplyParams{Record: record, Node: node, Attempt: attempt, State: state,
			Frame: []byte("r"), Outbox: k, Keep: time.Minute}))
	}
	for _, lost := range []string{"l1 old\n\n", "p2 n\n\tk\nf"} {
		require.NoError(t, c.Set(ctx, record, lost, time.Hour).Err())
		require.Equal(t, gen.RPCReplyResultStale, reply("old", 1, "d"), lost)
		require.Equal(t, lost, c.Get(ctx, record).Val())
	}
	require.Equal(t, gen.RPCReplyResultStale, reply("n", 1, "d"), "the attempt counts")
	// A refused request keeps its callers, for the next node; a done one its digest, for the next caller.
	for state, want := range map[string]string{"r": "r2 n\nabc\tk\nr", "d": "d2 n\nabc\nr", "l": "l2 n\nabc\nr"} {
		require.NoError(t, c.Set(ctx, record, "p2 n\nabc\tk\nf", time.Hour).Err())
		require.Equal(t, gen.RPCReplyResultAccepted, reply("n", 2, state))
		require.Equal(t, want, c.Get(ctx, record).Val())
		require.NotEqual(t, gen.RPCReplyResultAccepted, reply("n", 2, state))
	}
	out, err := gen.RPCReply(ctx, c, gen.RPCReplyParams{Record: record, Node: "n", Attempt: 2, State: "p", Outbox: k})
	require.Error(t, err, out)

	// A node gets its own requests, a caller only replies, and neither more than a megabyte.
	large := strings.Repeat("x", 600_000)
	var records []string
	for i := range 4 {
		records = append(records, fmt.Sprint(record, i))
		require.NoError(t, c.Set(ctx, records[i], "p1 n\n\t"+k+"\n"+large, time.Hour).Err())
	}
	collect := func(node lua.Opt[string]) (states []gen.RPCCollectState) {
		for _, r := range lab.Must(gen.RPCCollect(ctx, c, gen.RPCCollectParams{Records: records, Node: node})) {
			states = append(states, r.State)
		}
		return states
	}
	const pending, later = gen.RPCCollectStatePending, gen.RPCCollectStateLater
	require.Equal(t, []gen.RPCCollectState{pending, pending, pending, pending}, collect(lua.Opt[string]{}))
	require.Equal(t, []gen.RPCCollectState{pending, pending, later, later}, collect(lua.Some("n")))
	require.Equal(t, make([]gen.RPCCollectState, 4), collect(lua.Some("other")))
	for i, value := range []string{"d1 n\n\none", "r1 n\n\tk\ntwo", "l1 n\n\n", "x"} {
		require.NoError(t, c.Set(ctx, records[i], value, time.Hour).Err())
	}
	rows := lab.Must(gen.RPCCollect(ctx, c, gen.RPCCollectParams{Records: records}))
	require.Equal(t, []string{"done one", "refused two", "lost ", "missing "}, []string{
		rows[0].State.String() + " " + string(rows[0].Frame), rows[1].State.String() + " " + string(rows[1].Frame),
		rows[2].State.String() + " " + string(rows[2].Frame), rows[3].State.String() + " " + string(rows[3].Frame)})
}

// C16: a subscriber that reads slowly is disconnected by the server when its output buffer grows
// too large. So large replies are not published, and all arrive.
func TestRPCLargeRepliesUnderAnOutputLimit(t *testing.T) {
	t.Parallel()
	c := luatomictest.StartServer(t).Client()
	require.NoError(t, c.ConfigSet(t.Context(), "client-output-buffer-limit", "pubsub 1mb 256kb 1").Err())
	lab.Serving(t, lab.Echo, c, "b", &rpc.Options{Concurrency: 500, Lease: time.Minute}, func(context.Context, string) (string,
		error) {
		return strings.Repeat("x", 100_000), nil
	})
	caller := lab.OpenBus(t, c, "b", &rpc.Options{Timeout: 2 * time.Minute})
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			out, err := lab.Echo.Call(t.Context(), caller, "")
			require.NoError(t, err)
			require.Len(t, out, 100_000)
		})
	}
	wg.Wait()
}
