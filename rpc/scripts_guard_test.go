package rpc_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/internal/scriptcase"
	"github.com/luatomic/luatomic/luatomictest"
)

// The guards of rpc_cancel: a request whose outcome the caller does not know may be sent
// once more after it was given up, whatever has become of the first one. It finds the
// mark and does not run.
func TestRPCGivenUpRequestIsNotSentAgain(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	p := "{" + name + "}:"
	ps := c.Subscribe(ctx, name+"n")
	defer ps.Close()
	require.IsType(t, &redis.Subscription{}, lab.Must(ps.Receive(ctx)))
	cancel := func(mark time.Duration) gen.RPCCancelResult {
		return lab.Must(gen.RPCCancel(ctx, c, gen.RPCCancelParams{Record: p + "r:1", Method: p + "m:x", Outbox: name, Word: []byte("X"), Mark: mark}))
	}
	call := func() gen.RPCCallOutcome {
		return lab.Must(gen.RPCCall(ctx, c, gen.RPCCallParams{Nodes: p + "nodes", Method: p + "m:x", Record: p + "r:1", Frame: []byte("f"),
			Caller: name, Outbox: name, Timeout: time.Minute, Keep: time.Hour})).Outcome
	}
	for record, want := range map[string]gen.RPCCancelResult{
		"":                               gen.RPCCancelResultGone,
		"p1 n\n" + name + "\nf":          gen.RPCCancelResultGivenUp,
		"d1 n\nreply":                    gen.RPCCancelResultDone,
		"l1 n\n":                         gen.RPCCancelResultGone,
		"p2 other\n" + name + "\tb\nf\n": gen.RPCCancelResultGivenUp,
	} {
		require.NoError(t, scriptcase.Announced(ctx, c, name))
		set := func() {
			require.NoError(t, c.Del(ctx, p+"r:1").Err())
			if record != "" {
				require.NoError(t, c.Set(ctx, p+"r:1", record, time.Hour).Err())
			}
		}
		set()
		require.Equal(t, want, cancel(time.Minute), "%q", record)
		require.Equal(t, gen.RPCCallOutcomeKnown, call(), "%q", record)
		require.Equal(t, "x", c.Get(ctx, p+"r:1").Val())
		require.InDelta(t, time.Minute, c.PTTL(ctx, p+"r:1").Val(), float64(10*time.Second))
		reply := lab.Must(gen.RPCReply(ctx, c, gen.RPCReplyParams{Record: p + "r:1", Method: p + "m:x", Node: "n", Attempt: 1, Frame: []byte("f"), Outbox: name, Keep: time.Minute}))
		require.Equal(t, gen.RPCReplyResultGone, reply, "nobody reads it")

		set()
		require.Equal(t, want, cancel(0), "%q", record)
		if record != "l1 n\n" {
			require.Zero(t, c.Exists(ctx, p+"r:1").Val(), "no mark is wanted, nothing stays of %q", record)
		}
	}
}

// The node that worked on it counts as less busy, and is told.
func TestRPCCancelTellsTheNodeThatHasIt(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	require.NoError(t, scriptcase.Asked(ctx, c, name))
	ps := c.Subscribe(ctx, name+"n")
	defer ps.Close()
	require.IsType(t, &redis.Subscription{}, lab.Must(ps.Receive(ctx)))
	out := lab.Must(gen.RPCCancel(ctx, c, gen.RPCCancelParams{Record: "{" + name + "}:r:1", Method: "{" + name + "}:m:x", Outbox: name, Word: []byte("X1")}))
	require.Equal(t, gen.RPCCancelResultGivenUp, out)
	require.Equal(t, float64(-6), c.ZScore(ctx, "{"+name+"}:m:x", "n").Val())
	m, err := ps.ReceiveMessage(ctx)
	require.NoError(t, err)
	require.Equal(t, "X1", m.Payload)
	// A node that has left does not come back for it.
	require.NoError(t, scriptcase.Asked(ctx, c, name))
	require.NoError(t, c.ZRem(ctx, "{"+name+"}:m:x", "n").Err())
	lab.Must(gen.RPCCancel(ctx, c, gen.RPCCancelParams{Record: "{" + name + "}:r:1", Method: "{" + name + "}:m:x", Outbox: name, Word: []byte("X1")}))
	require.Zero(t, c.ZCard(ctx, "{"+name+"}:m:x").Val())
}
