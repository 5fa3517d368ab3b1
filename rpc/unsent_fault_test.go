package rpc_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

// A server that refuses each attempt to send a call until the time is over is not the node's fault: the error says why.
func TestACallThatTheServerDoesNotTakeSaysWhy(t *testing.T) {
	t.Parallel()
	for code, args := range map[string]struct{ refuse, accept string }{
		"NOREPLICAS": {"config set min-replicas-to-write 1", "config set min-replicas-to-write 0"},
		"READONLY":   {"replicaof 127.0.0.1 1", "replicaof no one"},
	} {
		do := func(c *redis.Client, command string) error {
			var args []any
			for _, word := range strings.Fields(command) {
				args = append(args, word)
			}
			return c.Do(context.Background(), args...).Err()
		}
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			server := luatomictest.StartServer(t)
			c, stuck := server.Client(), make(chan struct{})
			node := lab.Serving(t, lab.Echo, c, "b", nil, func(ctx context.Context, text string) (string, error) {
				if text == "wait" {
					close(stuck)
					<-ctx.Done()
				}
				return text, ctx.Err()
			})
			require.NoError(t, countTo.Serve(node, func(context.Context, int, func(int) error) error { return nil }))
			require.NoError(t, node.Ready(t.Context()))
			bus := lab.OpenBus(t, c, "b", &rpc.Options{Timeout: 500 * time.Millisecond})
			_, err := lab.Echo.Call(t.Context(), bus, "", nil)
			require.NoError(t, err)
			_, err = lab.Echo.Call(t.Context(), bus, "wait", nil)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.NotContains(t, err.Error(), "failed", "a node has it")
			<-stuck

			require.NoError(t, do(c, args.refuse))
			t.Cleanup(func() { require.NoError(t, do(c, args.accept)) }) // first, so that the bus can leave
			_, err = lab.Echo.Call(t.Context(), bus, "", nil)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorContains(t, err, "an attempt to send it failed: "+code)
			for _, err = range lab.Echo.Gather(t.Context(), bus, "") {
			}
			require.ErrorAs(t, err, new(*rpc.MissingError))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorContains(t, err, "an attempt to send it failed: "+code)
			for _, err = range countTo.Call(t.Context(), bus, 1) {
			}
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorContains(t, err, "an attempt to send it failed: "+code)
		})
	}
}
