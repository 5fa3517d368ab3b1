package rpc

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	rpcscript "github.com/luatomic/luatomic/gen/rpc"
)

// Two calls that find no node ask for the list at once. The answer to the first one may come last: it replaces no newer
// list, whose caller would find no node in it.
func TestAnOlderListOfNodesReplacesNoNewerOne(t *testing.T) {
	t.Parallel()
	var d directory
	d.init()
	asked := time.Now()
	rows := func(node string) []rpcscript.FindRow {
		return []rpcscript.FindRow{{Node: node, State: rpcscript.FindStateAlive}}
	}
	d.install("m", asked.Add(time.Second), rows("new"))
	d.install("m", asked, rows("old"))
	node, _ := d.choose("m", nil)
	require.Equal(t, "new", node)
	d.install("m", asked.Add(2*time.Second), rows("newest"))
	node, _ = d.choose("m", nil)
	require.Equal(t, "newest", node)
	d.install("m", asked.Add(3*time.Second), nil)
	node, _ = d.choose("m", nil)
	require.Empty(t, node)
}
