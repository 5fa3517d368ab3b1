package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

// kill ends the group of a process that a test has left, by the id before the dot.
func kill(t *testing.T, pid string) {
	t.Helper()
	id, _, _ := strings.Cut(pid, ".")
	n, err := strconv.Atoi(id)
	require.NoError(t, err)
	leader, err := os.FindProcess(n)
	require.NoError(t, err)
	signalGroup(&exec.Cmd{Process: leader}, syscall.SIGKILL)
}

// names are the nodes of the bus by what stands before the dot.
func (e *env) names() map[string]string {
	e.t.Helper()
	all := make(map[string]string)
	for _, o := range e.run("rpc", "nodes").exits(exitDone).objects() {
		name, _, _ := strings.Cut(o["node"].(string), ".")
		all[name] = o["node"].(string)
	}
	return all
}

func TestRPCGather(t *testing.T) {
	t.Parallel()
	e := shared(t)
	e.serve("where", "--node", "a", "--", "echo", `"a"`)
	e.serve("where", "--node", "b", "--", "sh", "-c", "echo broken >&2; exit 1")
	names := e.names()
	byNode := make(map[string]any)
	all := e.call("where", "1", "--gather").exits(exitFailed).objects()
	require.Len(t, all, 3)
	for _, o := range all[:2] {
		byNode[o["node"].(string)] = o
	}
	require.Equal(t, map[string]any{
		names["a"]: map[string]any{"node": names["a"], "result": "a"},
		names["b"]: map[string]any{"node": names["b"], "error": map[string]any{"code": "error", "message": "broken"}},
	}, byNode)
	require.Equal(t, map[string]any{"answered": 1.0, "failed": 1.0, "missing": []any{}}, all[2])
}

// A result that cannot be printed is a failure of its node, as it is of a call.
func TestRPCGatherOfAResultThatIsNotJSON(t *testing.T) {
	t.Parallel()
	e := shared(t)
	bus, err := rpc.New(luatomictest.Client(t), defaultBus, &rpc.Options{
		Prefix: e.prefix, Codec: opaque{}, Lease: time.Minute,
	})
	require.NoError(t, err)
	m := rpc.NewMethod[[]byte, []byte]("raw")
	require.NoError(t, m.Serve(bus, func(context.Context, []byte) ([]byte, error) { return []byte("\x00"), nil }, nil))
	t.Cleanup(runBus(bus))
	require.NoError(t, bus.Ready(t.Context()))
	e.call("raw", "1").fails(exitFailed, "bad_result", "not JSON")
	all := e.call("raw", "1", "--gather").exits(exitFailed).objects()
	require.Len(t, all, 2)
	require.Equal(t, "bad_result", all[0]["error"].(map[string]any)["code"])
	require.Equal(t, map[string]any{"answered": 0.0, "failed": 1.0, "missing": []any{}}, all[1])
}

// The last line names the nodes that are dead, and those that are late.
func TestRPCGatherMissing(t *testing.T) {
	t.Parallel()
	e := shared(t)
	script, _ := untilFile(t)
	e.serve("wait", "--node", "quick", "--", "echo", "1")
	slow := e.serve("wait", "--node", "slow", "--", "sh", "-c", script)
	dead := e.serve("wait", "--node", "dead", "--", "sh", "-c", script)
	names := e.names()
	c := e.start("rpc", "call", "wait", "1", "--gather", "--timeout", "12s")
	slow.shows("started")
	dead.shows("started")
	require.NoError(t, dead.cmd.Process.Kill())
	_, pid, _ := strings.Cut(dead.stderr.String(), "started ")
	defer kill(t, pid)
	all := c.exits(exitFailed).objects()
	require.Len(t, all, 3)
	require.Equal(t, map[string]any{"node": names["quick"], "result": 1.0}, all[0])
	require.Equal(t, names["dead"], all[1]["node"])
	require.Equal(t, "node_lost", all[1]["error"].(map[string]any)["code"])
	require.Equal(t, map[string]any{"answered": 1.0, "failed": 0.0, "missing": []any{names["dead"], names["slow"]}},
		all[2])
}

func TestRPCCast(t *testing.T) {
	t.Parallel()
	e := shared(t)
	said := `cat >&2; echo " from $LUATOMIC_ATTEMPT." >&2`
	a := e.serve("note", "--node", "a", "--", "sh", "-c", said)
	require.Equal(t, `{"sent":1}`, e.call("note", `"one"`, "--cast").exits(exitDone).line())
	a.shows(`"one" from 0.`)
	b := e.serve("note", "--node", "b", "--", "sh", "-c", said)
	require.Equal(t, `{"sent":2}`, e.call("note", `"two"`, "--cast", "--all").exits(exitDone).line())
	a.shows(`"two" from 0.`)
	b.shows(`"two" from 0.`)
}

func TestRPCToNode(t *testing.T) {
	t.Parallel()
	e := shared(t)
	for _, name := range []string{"a", "b", "b"} {
		e.serve("where", "--node", name, "--", "echo", `"`+name+`"`)
	}
	e.serve("other", "--node", "c", "--", "true")
	require.Equal(t, `{"result":"a"}`, e.call("where", "1", "--to", "a").exits(exitDone).line())
	require.Equal(t, `{"result":"b"}`, e.call("where", "1", "--to", e.names()["b"]).exits(exitDone).line())
	for range 2 {
		require.Equal(t, `{"result":"a"}`, e.call("where", "1", "--to", "a", "--key", "k").exits(exitDone).line())
	}
	c := e.call("where", "1", "--to", "b").exits(exitUsage)
	require.Contains(t, c.stderr.String(), "there are 2 nodes of that name; choose one of b.")
	e.call("where", "1", "--to", "c").fails(exitTryLater, "no_responder", "no node serves it")
}

func TestRPCToConnection(t *testing.T) {
	t.Parallel()
	e := shared(t)
	node := e.serve("where", "--node", "a", "--connection", "c7", "--", "echo", `"a"`)
	e.serve("where", "--node", "b", "--connection", "c8", "--", "echo", `"b"`)
	for range 3 {
		require.Equal(t, `{"result":"a"}`, e.call("where", "1", "--connection", "c7").exits(exitDone).line())
		require.Equal(t, `{"result":"b"}`, e.call("where", "1", "--connection", "c8").exits(exitDone).line())
	}
	c := e.run("rpc", "serve", "where", "--connection", "c7", "--", "true").exits(exitTryLater)
	require.Contains(t, c.stderr.String(), "the connection belongs to another node: a.")
	node.signal(os.Interrupt)
	node.exits(exitInterrupted)
	e.serve("where", "--node", "c", "--connection", "c7", "--", "echo", `"c"`)
	require.Equal(t, `{"result":"c"}`, e.call("where", "1", "--connection", "c7").exits(exitDone).line())
}

func TestRPCStream(t *testing.T) {
	t.Parallel()
	e := shared(t)
	node := e.serve("count", "--stream", "--", "sh", "-c", `seq 1 "$(cat)"`)
	e.serve("text", "--stream", "--text", "--", "printf", `one "1"\n\nthree`)
	e.serve("broken", "--stream", "--", "sh", "-c", "echo 1; echo two; sleep 0.01; echo 3")
	e.serve("late", "--stream", "--", "sh", "-c", "echo 1; echo gone >&2; exit 1")

	all := e.call("count", "1000", "--stream", "--timeout", "1m").exits(exitDone).objects()
	require.Len(t, all, 1001)
	for i, o := range all[:1000] {
		require.EqualValues(t, i+1, o["part"])
	}
	require.Equal(t, map[string]any{"parts": 1000.0}, all[1000])
	require.Equal(t, "{\"part\":\"one \\\"1\\\"\"}\n{\"part\":\"\"}\n{\"part\":\"three\"}\n{\"parts\":3}",
		e.call("text", "1", "--stream").exits(exitDone).line())
	for method, code := range map[string]string{"broken": "bad_result", "late": "error"} {
		all := e.call(method, "1", "--stream").exits(exitFailed).objects()
		require.Len(t, all, 2)
		require.EqualValues(t, 1, all[0]["part"])
		require.Equal(t, code, all[1]["error"].(map[string]any)["code"])
	}
	e.call("count", "1").fails(exitFailed, "bad_request", "in parts")
	node.signal(os.Interrupt)
	holds(t, node.exits(exitInterrupted).object(), map[string]any{"handled": 1, "failed": 0})
}

// A command whose caller reads no further does not run on.
func TestRPCStreamEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	e := shared(t)
	node := e.serve("forever", "--stream", "--", "sh", "-c", `echo "child $$." >&2; while echo 1; do sleep 0.05; done`)
	caller := e.start("rpc", "call", "forever", "1", "--stream", "--timeout", "1h")
	node.shows("\nchild ")
	caller.signal(os.Interrupt)
	caller.exits(exitInterrupted)
	goes(t, node.stderr.String(), "\nchild ")
}

func TestRPCNodes(t *testing.T) {
	t.Parallel()
	e := shared(t)
	e.serve("b", "--node", "two", "-c", "3", "--", "true")
	e.serve("a", "--node", "one", "--", "true")
	all := e.run("rpc", "nodes").exits(exitDone).objects()
	require.Len(t, all, 2)
	require.True(t, strings.HasPrefix(all[0]["node"].(string), "one."), all)
	holds(t, all[0], map[string]any{"methods": []any{"a"}, "running": 0, "concurrency": 8, "handled": 0, "calls": 0})
	holds(t, all[1], map[string]any{"methods": []any{"b"}, "concurrency": 3})
	require.Greater(t, all[0]["lease_ms"], 0.0)
	require.LessOrEqual(t, all[0]["lease_ms"], 3000.0)
	for _, verb := range []string{"nodes", "top"} {
		c := e.run("rpc", verb, "--bus", "other").exits(exitDone)
		require.Empty(t, c.stdout.String())
		require.Contains(t, c.stderr.String(), `bus "other" has no node`)
	}
}

// On a terminal the nodes and their methods are tables. A bus whose nodes only call says so.
func TestRPCTables(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	s := &session{stdout: json.NewEncoder(&out), out: &out, stderr: &errs, tables: true}
	nodes := []rpc.Node{{
		Node: "n.1", Lease: 2 * time.Second, Methods: []string{"a", "b"}, Running: 1, Concurrency: 8,
		Handled: 3, Calls: 4,
		Described: map[string]rpc.MethodInfo{"b": {Version: "v2"}},
		Counts:    map[string]rpc.MethodCounts{"b": {Running: 1, Handled: 3}},
	}}
	require.NoError(t, listNodes(s, nodes))
	require.Equal(t, "NODE  METHODS  RUNNING  HANDLED  CALLS  LEASE\nn.1   a, b v2  1 of 8         3      4  2s\n",
		out.String())
	out.Reset()
	f := &busFlags{name: "b"}
	require.NoError(t, f.listTop(s, 1, topRows(nodes, make(map[work]seen), time.Now())))
	lines := strings.Split(out.String(), "\n")
	require.Equal(t, []string{"METHOD", "NODE", "RUNNING", "HANDLED", "FAILED", "PER", "SECOND", "MEAN",
		"MS", "VERSION"},
		strings.Fields(lines[0]))
	require.Equal(t, []string{"b", "n.1", "1", "3", "0", "-", "0", "v2"}, strings.Fields(lines[1]))
	require.Equal(t, []string{"a", "n.1", "0", "0", "0", "-", "-"}, strings.Fields(lines[2]), "it was not called yet")
	require.Empty(t, errs.String())
	out.Reset()
	require.NoError(t, f.listTop(s, 2, nil))
	require.Empty(t, out.String())
	require.Contains(t, errs.String(), `the 2 nodes of bus "b" serve no method`)
}

// A bus without nodes is named once, not with each print.
func TestRPCTopOfAnEmptyBus(t *testing.T) {
	t.Parallel()
	e := shared(t)
	c := e.start("rpc", "top", "--watch", "20ms")
	c.shows(`bus "default" has no node`)
	node := e.serve("m", "--", "true")
	luatomictest.Eventually(t, within, "the node is listed", func() bool { return c.stdout.String() != "" })
	require.Equal(t, 1, strings.Count(c.stderr.String(), "has no node"), c.stderr.String())
	node.signal(os.Interrupt)
	node.exits(exitInterrupted)
	luatomictest.Eventually(t, within, "the bus is empty again", func() bool {
		return strings.Count(c.stderr.String(), "has no node") == 2
	})
	c.signal(os.Interrupt)
	c.exits(exitInterrupted)
}

func TestRPCTop(t *testing.T) {
	t.Parallel()
	e := shared(t)
	script, file := untilFile(t)
	node := e.serve("wait", "--node", "a", "--", "sh", "-c", script)
	e.serve("fail", "--node", "b", "--", "false")
	e.call("fail", "1").exits(exitFailed)
	caller := e.start("rpc", "call", "wait", "1", "--timeout", "1h")
	node.shows("started")
	top := func(want map[string]any) func() bool {
		return func() bool {
			for _, o := range e.run("rpc", "top").exits(exitDone).objects() {
				if o["method"] == want["method"] && o["running"] == want["running"] &&
					o["handled"] == want["handled"] && o["failed"] == want["failed"] {
					return true
				}
			}
			return false
		}
	}
	luatomictest.Eventually(t, within, "the call is in flight",
		top(map[string]any{"method": "wait", "running": 1.0, "handled": 0.0, "failed": 0.0}))
	luatomictest.Eventually(t, within, "the failure is counted",
		top(map[string]any{"method": "fail", "running": 0.0, "handled": 1.0, "failed": 1.0}))
	watch := e.start("rpc", "top", "--watch", "50ms")
	luatomictest.Eventually(t, within, "it has looked twice", func() bool {
		return strings.Count(watch.stdout.String(), `"wait"`) > 1
	})
	watch.signal(os.Interrupt)
	rows := watch.exits(exitInterrupted).objects()
	require.Equal(t, "wait", rows[0]["method"], "the busiest first")
	require.Nil(t, rows[0]["per_second"])
	require.NotNil(t, rows[len(rows)-1]["per_second"])
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	caller.exits(exitDone)
}

func TestTopRows(t *testing.T) {
	t.Parallel()
	last, began := make(map[work]seen), time.Now()
	look := func(after time.Duration, handled int64, took time.Duration) topResult {
		rows := topRows([]rpc.Node{{Node: "n", Counts: map[string]rpc.MethodCounts{
			"m": {Running: 2, Handled: handled, Failed: 1, Took: took},
		}}}, last, began.Add(after))
		require.Len(t, rows, 1)
		return rows[0]
	}
	show := func(r topResult) string {
		text := fmt.Sprintf("%s %s %d %d %d", r.Method, r.Node, r.Running, r.Handled, r.Failed)
		for _, f := range []*float64{r.Rate, r.MeanMS} {
			if f == nil {
				text += " -"
			} else {
				text += fmt.Sprint(" ", *f)
			}
		}
		return text
	}
	require.Equal(t, "m n 2 10 1 - 100", show(look(0, 10, time.Second)))
	require.Equal(t, "m n 2 15 1 2.5 20.1", show(look(2*time.Second, 15, 1100*time.Millisecond+500*time.Microsecond)))
	require.Equal(t, "m n 2 15 1 0 -", show(look(3*time.Second, 15, 1100*time.Millisecond+500*time.Microsecond)))
}

// A server that goes away and comes back does not end a node.
func TestRPCServeServerRestarts(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	e := &env{t: t, url: server.URL()}
	node := e.serve("cat", "--", "cat")
	server.Kill()
	node.shows("luatomic: bus ")
	e.call("cat", "1").exits(exitFailed)
	server.Restart()
	luatomictest.Eventually(t, within, "it answers again", func() bool {
		c := e.call("cat", "1")
		return c.wait() == exitDone && c.line() == `{"result":1}`
	})
	require.Less(t, strings.Count(node.stderr.String(), "\n"), 40, node.stderr.String())
	node.signal(os.Interrupt)
	node.exits(exitInterrupted)
}

// A server that dies under a call is an error in time.
func TestRPCCallServerGone(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	e := &env{t: t, url: server.URL()}
	script, _ := untilFile(t)
	node := e.serve("wait", "--", "sh", "-c", script)
	caller := e.start("rpc", "call", "wait", "1", "--timeout", "6s")
	node.shows("started")
	server.Kill()
	caller.fails(exitFailed, "timeout", "the handler may have run")
	node.signal(os.Interrupt)
	node.signal(os.Interrupt)
	node.exits(exitInterrupted)
}

// SUBSCRIBE that is not allowed is said so, and nothing is sent.
func TestRPCNotAllowed(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	require.NoError(t, server.Client().Do(t.Context(), "ACL", "SETUSER", "u", "on", ">p", "~*", "+@all",
		"resetchannels").Err())
	e := &env{t: t, url: strings.Replace(server.URL(), "redis://", "redis://u:p@", 1)}
	c := e.call("x", "1", "--timeout", "8s")
	c.fails(exitFailed, "not_sent", "one of the channels used as arguments; check --prefix: luatomic acl prints")
	require.Contains(t, c.stderr.String(), "NOPERM")
}

// Each end of a call has a code and an exit code of its own.
func TestDescribe(t *testing.T) {
	t.Parallel()
	for text, err := range map[string]error{
		"no_responder 75": &rpc.NoRespondersError{Method: "m", Reason: "no node serves it"},
		"overloaded 75":   &rpc.RemoteError{Code: rpc.CodeOverloaded},
		"no_method 75":    &rpc.RemoteError{Code: rpc.CodeNoMethod},
		"try_later 75":    &rpc.RemoteError{Code: codeTryLater},
		"mine 1":          &rpc.RemoteError{Code: "mine"},
		"key_reused 1":    fmt.Errorf("luatomic: %w", rpc.ErrKeyReused),
		"node_lost 1":     fmt.Errorf("luatomic: %w", rpc.ErrNodeLost),
		"not_sent 1":      fmt.Errorf("%w: %w", lua.ErrNotExecuted, context.DeadlineExceeded),
		"timeout 1":       fmt.Errorf("%w: %w", lua.ErrOutcomeUnknown, context.DeadlineExceeded),
		"unknown 1":       fmt.Errorf("luatomic: %w", lua.ErrOutcomeUnknown),
		"too_large 1":     fmt.Errorf("luatomic: %w", lua.ErrTooLarge),
		"canceled 130":    fmt.Errorf("luatomic: %w", errInterrupted),
		"failed 1":        errors.New("anything else"),
	} {
		e := describe(err)
		require.Equal(t, text, fmt.Sprintf("%s %d", e.Code, e.exit))
	}
}
