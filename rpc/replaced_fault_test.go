package rpc_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
)

// The server is replaced, and the old one lives on with all subscriptions. Until the node has followed, the new server
// counts no subscriber: calls wait for the node and are not refused, since the caller has not been counted either.
func TestCallsWaitForANodeThatFollowsAReplacedServer(t *testing.T) {
	t.Parallel()
	p := lab.StartPair(t)
	lab.Serving(t, lab.Echo, p.Client(t), "bus", nil, lab.Upper)
	caller := lab.OpenBus(t, p.Client(t), "bus", nil)
	require.NoError(t, caller.Ready(t.Context()))
	out, err := lab.Echo.Call(t.Context(), caller, "x", nil)
	require.NoError(t, err)
	require.Equal(t, "X", out)

	lab.Replicated(t, p.Master.Client())
	require.NoError(t, p.Replica.Client().ReplicaOf(t.Context(), "NO", "ONE").Err())
	address := p.Replica.Addr()
	p.Address.Store(&address)
	old := p.Master.Client()
	require.NoError(t, old.Do(t.Context(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err())

	replaced := time.Now()
	var longest time.Duration
	for followed := 0; followed < 50 && time.Since(replaced) < 30*time.Second; {
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		_, err := lab.Echo.Call(ctx, caller, "x", nil)
		cancel()
		require.NoError(t, err, "%v after the server was replaced", time.Since(replaced))
		longest = max(longest, time.Since(began))
		if len(old.PubSubChannels(t.Context(), "*").Val()) == 0 {
			followed++
		}
	}
	t.Logf("the longest call took %v", longest)
}
