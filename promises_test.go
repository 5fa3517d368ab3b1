package luatomic_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/internal/testkit/scriptcase"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/tools/luagen/luagen"
	"github.com/luatomic/luatomic/tools/luagen/luaprove"
)

// What luagen prove does with drawn calls, with the calls of our own on the data that they are made for: repeated, with
// each write failing, and with each key of a wrong type. Each script changes something in one of them.
func TestPromisesOfEveryHeader(t *testing.T) {
	t.Parallel()
	client, ctx := luatomictest.StartServer(t).Client(), t.Context()
	now, err := client.Time(ctx).Result()
	require.NoError(t, err)
	tried, open := map[string]bool{}, map[string]string{}
	calls := slices.Concat(slices.Collect(maps.Values(scriptcase.RawCalls(t)))...)
	for _, subscribed := range []bool{false, true} {
		if subscribed { // node n of the calls: rpc/call.lua records nothing for one that does not hear it
			require.NoError(t, lab.Subscribe(ctx, t, client, "hn"))
		}
		for _, call := range calls {
			if call.SHA != call.Script.SHA {
				continue // behind its guard
			}
			script, found := luagen.Parse(call.Script.Name+".lua", *call.Script.Source)
			require.False(t, found.HasErrors(), call.Name)
			require.NoError(t, client.FlushDB(ctx).Err())
			require.NoError(t, call.Prepare(ctx, client))
			result, err := luaprove.Check(ctx, client, script, luaprove.Input{Keys: call.Keys, Args: call.Args},
				now.Unix()+1)
			require.NoError(t, err, call.Name)
			require.Empty(t, result.Broken, call.Name)
			open[call.Name] = result.NotTried(script)
			tried[call.Name] = tried[call.Name] || open[call.Name] == ""
		}
	}
	for name, why := range open {
		require.True(t, tried[name], "%s: %s", name, why)
	}
}
