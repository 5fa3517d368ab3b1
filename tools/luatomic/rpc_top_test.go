package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/rpc"
)

// What is remembered of a node ends with it: each restart of a program is a node of another name.
func TestTopForgetsNodesThatHaveEnded(t *testing.T) {
	t.Parallel()
	last, now := make(map[work]seen), time.Now()
	for i := range 100 {
		now = now.Add(time.Second)
		topRows([]rpc.Node{
			{Node: fmt.Sprint("web-1.", i), Methods: []string{"m"}}, {Node: "web-2", Methods: []string{"m"}},
		}, last, now)
	}
	require.Len(t, last, 2)
	rows := topRows([]rpc.Node{{Node: "web-2", Methods: []string{"m"}}}, last, now.Add(time.Second))
	require.NotNil(t, rows[0].Rate, "one that lives is compared with what it was")
}
