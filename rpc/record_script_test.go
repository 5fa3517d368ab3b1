package rpc_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	rpcscript "github.com/luatomic/luatomic/gen/rpc"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

// A record that another version has written is refused with LAYOUT, and stays as it is: one with a key lives for days.
func TestARecordOfAnotherVersionIsRefused(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	b := lab.Serving(t, lab.Echo, c, name, nil, lab.Upper)
	record := "rpc:{" + name + "}:r:k4:echo:orderK"
	refuses := func(err error) {
		t.Helper()
		var refused *lua.Error
		require.ErrorAs(t, err, &refused)
		require.Equal(t, "LAYOUT", refused.Code)
	}
	for _, other := range []string{
		"9|layout of another version", "P1 " + b.Node() + "\n\tcaller\nrequest", "p", "p1 n", "pp1 n\n\n", "\n", "{}",
	} {
		require.NoError(t, c.Set(ctx, record, other, time.Hour).Err())
		_, err := lab.Echo.Call(ctx, b, "x", &rpc.CallOptions{Key: "order"})
		refuses(err)
		reply := rpcscript.ReplyParams{Record: record, Node: b.Node(), Attempt: 1, State: "d", Outbox: name,
			Keep: time.Hour}
		require.Contains(t, []rpcscript.ReplyResult{rpcscript.ReplyResultStale, rpcscript.ReplyResultDuplicate},
			lab.Must(rpcscript.Reply(ctx, c, reply)))
		chunk := rpcscript.ChunkParams{Record: record, Chunks: "rpc:{" + name + "}:s:1", Node: b.Node(),
			Attempt: 1, Seq: 1,
			Outbox: name, Keep: time.Hour}
		require.Equal(t, rpcscript.ChunkResultStale, lab.Must(rpcscript.Chunk(ctx, c, chunk)))
		_, err = rpcscript.Cancel(ctx, c, rpcscript.CancelParams{Record: record, Outbox: name, Mark: time.Hour})
		refuses(err)
		rows, err := rpcscript.Collect(ctx, c, rpcscript.CollectParams{Records: []string{record}})
		if other[0] == 'p' {
			refuses(err)
		} else {
			require.Equal(t, rpcscript.CollectStateMissing, lab.Must(rows, err)[0].State)
		}
		require.Equal(t, other, c.Get(ctx, record).Val())
	}
	require.NoError(t, c.Set(ctx, record, "p1 n\nno third line", time.Hour).Err())
	_, err := rpcscript.Collect(ctx, c, rpcscript.CollectParams{Records: []string{record}, Node: lua.Some("n")})
	refuses(err)
}
