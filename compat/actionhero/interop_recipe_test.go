//go:build interop

package actionhero_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/actionhero"
)

// recipe follows the steps of docs/actionhero.md that move a lock, items and a method to Go, in order, each with its
// way back. The processes go on: the test of the cluster checks.
func recipe(t *testing.T, c *cluster) {
	ctx, cache := t.Context(), c.cache("go-worker-1")

	// 1. Go reads what the processes save. Back: nothing to do.
	require.Equal(t, true, c.a.ask(request{"op": "save", "key": "report", "value": 41}).OK)
	item, err := cache.Load(ctx, "report", nil)
	require.NoError(t, err)
	require.Equal(t, "41", string(item.Value))

	// 2. Go saves under the lock; the processes read. Back: a process saves again.
	ok, err := cache.Lock(ctx, "report", 20*time.Second)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, false, c.b.ask(request{"op": "lock", "key": "report", "ttl": 1000}).OK)
	require.NoError(t, cache.Save(ctx, "report", 42, 0))
	ok, err = cache.Unlock(ctx, "report")
	require.NoError(t, err)
	require.True(t, ok)
	require.Contains(t, string(c.b.ask(request{"op": "load", "key": "report"}).Item), "42")
	require.Equal(t, true, c.b.ask(request{"op": "lock", "key": "report", "ttl": 5000}).OK)
	require.Equal(t, true, c.b.ask(request{"op": "save", "key": "report", "value": 43}).OK)
	require.Equal(t, true, c.b.ask(request{"op": "unlock", "key": "report"}).OK)

	// 3. Go calls the method where it is.
	require.Equal(t, 42, decoded[int](t, c.call(t, "api.t.sum", 20, 22)))

	// 4. Go serves a method of its own, for a connection that it owns. Back: the handler is removed, and callers time
	// out.
	require.NoError(t, c.goNode.Own("reports"))
	defer c.goNode.Disown("reports")
	rows := func(_ context.Context, r *actionhero.Request) (any, error) {
		var n int
		err := r.Bind(&n)
		return []int{n}, err
	}
	require.NoError(t, c.goNode.Handle("api.go.rows", rows))
	asked := request{"op": "call", "method": "api.go.rows", "args": []any{7}, "connection": "reports"}
	require.Equal(t, "7", strings.Trim(string(c.a.ask(asked).Response), "[]"))
	require.NoError(t, c.goNode.Handle("api.go.rows", nil))
	require.Equal(t, "RPC Timeout", c.a.try(asked).Error)
}
