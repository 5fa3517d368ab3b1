package luatomic_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/scriptcase"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/tools/luagen/luagen"
	"github.com/luatomic/luatomic/tools/luagen/luaprove"
)

// What luagen prove does with drawn calls, with the calls of our own on the data that they are made for: repeated, with each
// write failing, and with each key of a wrong type.
func TestPromisesOfEveryHeader(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	client, ctx := server.Client(), t.Context()
	now, err := client.Time(ctx).Result()
	require.NoError(t, err)
	var all luaprove.Result
	for _, call := range slices.Concat(slices.Collect(maps.Values(scriptcase.RawCalls(t)))...) {
		if call.SHA != call.Script.SHA {
			continue // behind its guard
		}
		script, found := luagen.Parse(call.Script.Name+".lua", *call.Script.Source)
		require.False(t, found.HasErrors(), call.Name)
		require.NoError(t, client.FlushDB(ctx).Err())
		require.NoError(t, call.Prepare(ctx, client))
		result, err := luaprove.Check(ctx, client, script, luaprove.Input{Keys: call.Keys, Args: call.Args}, now.Unix()+1)
		require.NoError(t, err, call.Name)
		if result.Broken != "" {
			t.Errorf("%s: %s", call.Name, result.Broken)
		}
		all.Calls, all.Repeats, all.Faults = all.Calls+result.Calls, all.Repeats+result.Repeats, all.Faults+result.Faults
	}
	require.Greater(t, all.Repeats, 50)
	require.Greater(t, all.Faults, 200)
}
