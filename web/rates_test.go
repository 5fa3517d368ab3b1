package web_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/rpc"
	"github.com/luatomic/luatomic/web"
)

// A node that comes back after a pause of its heartbeats brings all the calls that it has ever handled. They are no
// rate: it would be the greatest in the middle of an incident.
func TestANodeThatComesBackIsNoRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := web.Handler(nil, nil)
		handled := map[string]int64{"a": 100, "b": 1_000_000}
		read := func(nodes ...string) float64 {
			var live []rpc.Node
			for _, name := range nodes {
				live = append(live, rpc.Node{Node: name, Methods: []string{"m"},
					Counts: map[string]rpc.MethodCounts{"m": {Handled: handled[name]}}})
			}
			return web.MethodRates(h, live...)["m"]
		}
		after := func(s int) {
			time.Sleep(time.Duration(s) * time.Second)
			for name := range handled {
				handled[name] += 2 * int64(s)
			}
		}
		require.Negative(t, read("a", "b"), "nothing is known")
		after(10)
		require.InDelta(t, 4, read("a", "b"), 0.01)
		after(10)
		require.LessOrEqual(t, read("a"), 4.0)
		after(10)
		require.InDelta(t, 2, read("a"), 0.01)
		after(10)
		require.LessOrEqual(t, read("a", "b"), 4.0)
	})
}
