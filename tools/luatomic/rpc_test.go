package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/luatomictest"
)

// serve starts a node and waits until it can be called.
func (e *env) serve(args ...string) *cli {
	e.t.Helper()
	c := e.start(append([]string{"rpc", "serve"}, args...)...)
	c.shows("Ctrl-C ends it")
	return c
}

func TestRPC(t *testing.T) {
	t.Parallel()
	e := shared(t)
	node := e.serve("upper", "--node", "here", "--", "tr", "a-z", "A-Z")
	require.Equal(t, `{"result":{"A":"X"}}`+"\n", e.run("rpc", "call", "upper", `{"a":"x"}`).exits(0).stdout.String())
	require.Equal(t, `{"result":"NOT JSON ANY MORE: NULL"}`+"\n", e.run("rpc", "call", "upper", `"not json any more: null"`).exits(0).stdout.String())
	require.Equal(t, `{"result":[1]}`+"\n", e.with(`[1]`).run("rpc", "call", "upper", "-").exits(0).stdout.String())

	listed := e.run("rpc", "nodes").exits(0).object()
	require.True(t, strings.HasPrefix(listed["node"].(string), "here."))
	holds(t, listed, map[string]any{"methods": []any{"upper"}, "concurrency": 4})
	require.Equal(t, `{"result":"X"}`+"\n", e.run("rpc", "call", "upper", `"x"`, "--node", listed["node"].(string)).exits(0).stdout.String())
	rates := e.run("rpc", "top", "--watch", "100ms", "--rounds", "1").exits(0).object()
	holds(t, rates, map[string]any{"node": listed["node"], "concurrency": 4})

	node.signal(os.Interrupt)
	node.exits(130)
	holds(t, node.object(), map[string]any{"handled": 4})
	gone := e.run("rpc", "call", "upper").exits(1).object()["error"].(map[string]any)
	require.Equal(t, "no_responder", gone["code"])
}

func TestRPCGather(t *testing.T) {
	t.Parallel()
	e := shared(t)
	e.serve("who", "--", "echo", "1")
	e.serve("who", "--", "echo", "not json")
	e.serve("who", "--", "sh", "-c", "echo no good >&2; exit 3")
	c := e.run("rpc", "call", "who", "--gather").exits(1)
	got := make(map[string]bool)
	for _, o := range c.objects() {
		require.NotEmpty(t, o["node"])
		if failure, ok := o["error"].(map[string]any); ok {
			got[failure["code"].(string)+": "+failure["message"].(string)] = true
		} else if text, ok := o["result"].(string); ok {
			got[text] = true
		} else {
			require.EqualValues(t, 1, o["result"])
			got["1"] = true
		}
	}
	require.Equal(t, map[string]bool{"1": true, "not json": true, "error: exit code 3: no good": true}, got)
}

// A command whose caller has given up is killed, and one that runs when the node is
// stopped may finish.
func TestRPCServeEndsItsCommands(t *testing.T) {
	t.Parallel()
	e := shared(t)
	node := e.serve("sleep", "--", "sh", "-c", `read n; echo "pid $$." >&2; echo "pid $$." >`+t.TempDir()+`/pid; sleep "$n"; echo '"done"'`)
	timedOut := e.run("rpc", "call", "sleep", "60", "--timeout", "500ms").exits(1).object()["error"].(map[string]any)
	require.Equal(t, "timeout", timedOut["code"])

	call := e.start("rpc", "call", "sleep", "1", "--timeout", "20s")
	luatomictest.Eventually(t, within, "it runs", func() bool {
		return strings.Contains(e.run("rpc", "nodes").exits(0).stdout.String(), `"running":1`)
	})
	start := time.Now()
	node.signal(os.Interrupt)
	require.Equal(t, `{"result":"done"}`+"\n", call.exits(0).stdout.String())
	node.exits(130)
	require.Less(t, time.Since(start), within)
}

func TestRPCKeys(t *testing.T) {
	t.Parallel()
	e := shared(t)
	e.extra = []string{"BUS_KEY=secret", "OTHER_KEY=other"}
	e.serve("x", "--key-env", "BUS_KEY", "--", "cat")
	require.Equal(t, `{"result":7}`+"\n", e.run("rpc", "call", "x", "7", "--key-env", "BUS_KEY").exits(0).stdout.String())
	c := e.run("rpc", "call", "x", "7", "--key-env", "OTHER_KEY", "--timeout", "300ms").exits(1)
	require.Contains(t, c.stdout.String(), "timeout")
}

func TestRPCUsage(t *testing.T) {
	t.Parallel()
	e := shared(t)
	for says, args := range map[string][]string{
		"the method is missing":   {"rpc", "call"},
		"is not JSON":             {"rpc", "call", "m", "{a}"},
		"quote the JSON":          {"rpc", "call", "m", "{", "}"},
		"brace":                   {"rpc", "call", "a{b"},
		"leave out --node":        {"rpc", "call", "m", "--gather", "--node", "x"},
		"no such variable":        {"rpc", "nodes", "--key-env", "NOT_THERE_AT_ALL"},
		"the command to run":      {"rpc", "serve", "m"},
		"out of range; 1 to 1000": {"rpc", "serve", "m", "-c", "0", "--", "cat"},
		"takes no arguments":      {"rpc", "nodes", "orders"},
		"--timeout":               {"rpc", "call", "m", "--timeout", "0"},
	} {
		require.Contains(t, e.run(args...).exits(2).stderr.String(), says)
	}
}
