//go:build interop

package actionhero_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/actionhero"
	"github.com/luatomic/luatomic/luatomictest"
)

// A process of the promise eras ends where a called method throws, or is not a function: the methods of a list must be
// functions that catch.
func TestInteropWhatEndsAPromiseProcess(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"18.1.4", "22.1.1", "29.3.5"} {
		for _, method := range []string{
			"api.t.throws", "api.t.throwsAtOnce", "api.t.endless", "api.connections.connections",
		} {
			t.Run(version+" "+method, func(t *testing.T) {
				t.Parallel()
				c := &cluster{release: releases[version], server: luatomictest.StartServer(t)}
				c.client = c.server.Client()
				c.a = startNode(t, c.server, c.release, "node-A")
				safe := c.run(t, &actionhero.Options{Timeout: time.Second, ServerID: "node-Go"})
				_, err := safe.DoCluster(t.Context(), method, nil, "")
				require.ErrorIs(t, err, actionhero.ErrUndeclared)
				c.a.alive(t)
				bold := c.run(t, &actionhero.Options{Timeout: time.Second, Methods: map[string]int{method: 0}})
				require.NoError(t, bold.Cast(t.Context(), method, nil, ""))
				luatomictest.Eventually(t, time.Minute, "the process has ended", func() bool { return !c.a.Running() })
			})
		}
	}
}
