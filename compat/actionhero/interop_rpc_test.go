//go:build interop

package actionhero_test

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/actionhero"
	"github.com/luatomic/luatomic/luatomictest"
)

// Each row of the response table, called from Go.
func goCallsNode(t *testing.T, c *cluster) {
	type row struct {
		method, want string
		args         []any
	}
	rows := []row{
		{"api.t.echo", `"hi"`, []any{"hi"}},
		{"api.t.echo", `{"a":"<ü>"}`, []any{map[string]string{"a": "<ü>"}}},
		{"api.t.echo", `[1,[2]]`, []any{[]any{1, []int{2}}}},
		{"api.t.none", ``, nil},
		{"api.t.several", `[null,"x"]`, nil},
		{"api.t.object", `{"a":1,"b":[2]}`, nil},
		{"api.t.nothing", `null`, nil},
		{"api.t.three", `3`, nil},
		{"api.t.fail", `{}`, []any{"q"}},
		{"api.t.sum", `5`, []any{2, 3}},
	}
	if c.era == actionhero.Callback {
		rows = []row{
			{"api.t.echo", `["hi"]`, []any{"hi"}},
			{"api.t.echo", `[{"a":"<ü>"}]`, []any{map[string]string{"a": "<ü>"}}},
			{"api.t.first", `["abc",null]`, []any{"abc"}},
			{"api.t.first", `[null,"xyz"]`, []any{"xyz"}},
			{"api.t.first", `[5,null]`, []any{5}},
			{"api.t.first", `[{"a":1},null]`, []any{map[string]int{"a": 1}}},
			{"api.t.several", `[10,9,"aa",null,"zz"]`, nil},
			{"api.t.three", `[null,null,null]`, nil},
			{"api.t.none", `[]`, nil},
			{"api.t.failValue", `[{},{"v":1}]`, []any{"q"}},
			{"api.t.sum", `[5,null]`, []any{2, 3}},
		}
		_, err := c.goNode.DoCluster(t.Context(), "api.t.fail", []any{"q"}, "")
		require.ErrorIs(t, err, actionhero.ErrRemote)
		// A call that would end both processes is not sent.
		for _, bad := range [][]any{nil, {1, 2}} {
			_, err = c.goNode.DoCluster(t.Context(), "api.t.echo", bad, "")
			require.ErrorIs(t, err, actionhero.ErrUndeclared)
		}
		_, err = c.goNode.DoCluster(t.Context(), "api.t.nope", nil, "")
		require.ErrorIs(t, err, actionhero.ErrUndeclared)
	}
	for _, r := range rows {
		got := c.call(t, r.method, r.args...)
		require.Equal(t, r.want, string(got.Raw), r.method)
		require.Contains(t, []string{"node-A", "node-B"}, got.ServerID)
	}
	var n int
	require.NoError(t, c.call(t, "api.t.sum", 20, 22).Decode(&n))
	require.Equal(t, 42, n)
}

func goGathers(t *testing.T, c *cluster) {
	began := time.Now()
	all, err := c.goNode.Gather(t.Context(), "api.t.sum", []any{1, 2}, "", 20*time.Second)
	require.NoError(t, err)
	require.Less(t, time.Since(began), 15*time.Second, "it does not wait for impossible responses")
	require.Len(t, all, 2)
	for _, id := range []string{"node-A", "node-B"} {
		var sum int
		require.NoError(t, all[id].Decode(&sum))
		require.Equal(t, 3, sum)
	}
}

// nodeCallsGo calls a method that only the Go node has. A process of the callback era ends when it is called without
// a connection to run a method that it does not have, so there the Go node owns one.
func nodeCallsGo(t *testing.T, c *cluster) {
	serve := func(name string, h actionhero.Handler) string {
		require.NoError(t, c.goNode.Handle("api.go."+name, h))
		t.Cleanup(func() { require.NoError(t, c.goNode.Handle("api.go."+name, nil)) })
		return "api.go." + name
	}
	value := func(v any) actionhero.Handler {
		return func(context.Context, *actionhero.Request) (any, error) { return v, nil }
	}
	require.NoError(t, c.goNode.Own("go-conn"))
	defer c.goNode.Disown("go-conn")
	add := serve("add", func(_ context.Context, r *actionhero.Request) (any, error) {
		var x, y int
		if err := r.Bind(&x, &y); err != nil || r.ServerID != "node-A" || r.ConnectionID != "go-conn" {
			return "bad request", err
		}
		return x + y, nil
	})
	sum := c.a.ask(request{"op": "call", "method": add, "args": []any{2, 3}, "connection": "go-conn"})
	require.Equal(t, "5", strings.Trim(string(sum.Response), "[]"))
	old := c.era == actionhero.Callback
	for i, r := range []struct {
		value           any
		bare, arguments string
	}{
		{"hi", `"hi"`, `["hi"]`},
		{3, `3`, `[3]`},
		{nil, `null`, `[]`},
		{map[string]any{"a": []int{}}, `{"a":[]}`, `[{"a":[]}]`},
		{actionhero.Args{nil, "xyz"}, `[null,"xyz"]`, `[null,"xyz"]`},
		{[]string{"x", "y"}, `["x","y"]`, `[["x","y"]]`},
		{json.RawMessage(`{"b":1,"a":1.0}`), `{"b":1,"a":1}`, `[{"b":1,"a":1}]`},
	} {
		method := serve("row"+strconv.Itoa(i), value(r.value))
		got := c.a.ask(request{"op": "call", "method": method, "args": []any{}, "connection": "go-conn"})
		want := r.bare
		if old {
			want = r.arguments
		}
		require.Equal(t, want, string(got.Response), "%v", r.value)
		if !old { // and to all nodes: the other nodes log that they do not have the method
			got = c.a.ask(request{"op": "call", "method": method, "args": []any{}})
			require.Equal(t, want, string(got.Response), "%v", r.value)
		}
	}
	failing := serve("fails", func(context.Context, *actionhero.Request) (any, error) { panic("no") })
	if old {
		got := c.a.ask(request{"op": "call", "method": failing, "args": []any{1}, "connection": "go-conn"})
		require.Equal(t, `[{}]`, string(got.Response))
	}
	// Not registered: nothing is called, and no process ends.
	got := c.a.try(request{"op": "call", "method": "api.go.unknown", "args": []any{}, "connection": "go-conn"})
	require.Equal(t, "RPC Timeout", got.Error)
}

func connections(t *testing.T, c *cluster) {
	c.b.ask(request{"op": "connect", "connection": "conn-B"})
	for range 5 {
		r, err := c.goNode.DoCluster(t.Context(), "api.t.echo", []any{"x"}, "conn-B")
		require.NoError(t, err)
		require.Equal(t, "node-B", r.ServerID)
	}
	all, err := c.goNode.Gather(t.Context(), "api.t.echo", []any{"x"}, "conn-B", 3*time.Second)
	require.NoError(t, err)
	require.Len(t, all, 1)
	for _, id := range []string{"constructor", "__proto__"} {
		_, err := c.goNode.DoCluster(t.Context(), "api.t.echo", []any{"x"}, id)
		require.ErrorIs(t, err, actionhero.ErrBadName)
	}
}

func timeouts(t *testing.T, c *cluster) {
	n := c.run(t, &actionhero.Options{Timeout: time.Second})
	_, err := n.DoCluster(t.Context(), "api.t.mute", nil, "")
	require.ErrorIs(t, err, actionhero.ErrTimeout)
	require.ErrorContains(t, err, "RPC Timeout")
	_, err = n.DoCluster(t.Context(), "api.t.echo", []any{1}, "no-such-connection")
	require.ErrorIs(t, err, actionhero.ErrTimeout)
	_, err = n.DoCluster(t.Context(), "api.connections.connections", nil, "")
	require.ErrorIs(t, err, actionhero.ErrUndeclared, "it would end both processes")
	if c.era != actionhero.Callback { // an unknown name ends no process
		n := c.run(t, &actionhero.Options{Timeout: time.Second, Methods: map[string]int{"api.t.nope": 0}})
		_, err = n.DoCluster(t.Context(), "api.t.nope", nil, "")
		require.ErrorIs(t, err, actionhero.ErrTimeout)
	}
}

func tokens(t *testing.T, c *cluster) {
	n := c.run(t, &actionhero.Options{Timeout: time.Second, ServerToken: "wrong"})
	require.NoError(t, n.Handle("api.t.echo", func(context.Context, *actionhero.Request) (any, error) {
		return "mine", nil
	}))
	require.Equal(t, "hi", decoded[string](t, c.call(t, "api.t.echo", "hi")))
	luatomictest.Eventually(t, 20*time.Second, "messages of the other processes", func() bool {
		return n.Stats().BadToken > 0
	})
	require.Zero(t, n.Stats().Served)
	require.NoError(t, n.Handle("api.t.echo", nil))
	_, err := n.DoCluster(t.Context(), "api.t.echo", []any{"hi"}, "")
	require.ErrorIs(t, err, actionhero.ErrTimeout)
}

func decoded[T any](t *testing.T, r *actionhero.Response) T {
	t.Helper()
	var v T
	require.NoError(t, r.Decode(&v))
	return v
}

func messages(t *testing.T, c *cluster) {
	var mu sync.Mutex
	var received []actionhero.Message
	receive := func(m actionhero.Message) {
		mu.Lock()
		defer mu.Unlock()
		received = append(received, m)
	}
	require.NoError(t, c.goNode.OnMessage("custom", receive))
	require.NoError(t, c.goNode.OnMessage("chat", receive))
	c.a.ask(request{"op": "received"})

	require.NoError(t, c.goNode.Publish(t.Context(), "custom", map[string]any{"n": 1, "text": "<a>"}))
	require.NoError(t, c.goNode.Chat(t.Context(), actionhero.ChatMessage{Room: "lobby", Message: "from Go"}))
	var got []json.RawMessage
	luatomictest.Eventually(t, 20*time.Second, "the process receives both", func() bool {
		got = append(got, c.a.ask(request{"op": "received"}).Received...)
		return len(got) == 2
	})
	require.Equal(t, `{"messageType":"custom","serverToken":"tok-interop","serverId":"node-Go","n":1,"text":"<a>"}`,
		string(got[0]))
	require.Contains(t, string(got[1]), `"connection":{"id":0,"room":"lobby"}`)

	c.a.ask(request{"op": "message", "payload": request{
		"messageType": "custom", "serverToken": token, "serverId": "node-A", "n": 2}})
	c.a.ask(request{"op": "chat", "room": "lobby", "message": "from Node"})
	luatomictest.Eventually(t, 20*time.Second, "Go receives its own two and both of the process", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(received) == 4
	})
	require.Equal(t, "custom", received[2].Type)
	require.Equal(t, "node-A", received[2].ServerID)
	chat, err := actionhero.ParseChat(received[3])
	require.NoError(t, err)
	require.Equal(t, "lobby", chat.Room)
	require.JSONEq(t, `"from Node"`, string(chat.Message.(json.RawMessage)))
}

// manyCalls makes concurrent calls in both directions; each gets its own response. With 18 there are fewer, as each
// is delayed for a second.
func manyCalls(t *testing.T, c *cluster) {
	calls := 400
	if c.era == actionhero.Promise18 {
		calls = 80
	}
	require.NoError(t, c.goNode.Own("go-many"))
	defer c.goNode.Disown("go-many")
	var served atomic.Int64
	require.NoError(t, c.goNode.Handle("api.go.second", func(_ context.Context, r *actionhero.Request) (any, error) {
		served.Add(1)
		return r.Args[1], nil
	}))
	defer func() { require.NoError(t, c.goNode.Handle("api.go.second", nil)) }()
	c.a.Send(request{"op": "calls", "method": "api.go.second", "args": []any{strings.Repeat("x", 200)},
		"n": calls, "connection": "go-many"})

	var wrong atomic.Int64
	var callers sync.WaitGroup
	for w := range 8 {
		callers.Go(func() {
			for i := range calls / 8 {
				r, err := c.goNode.DoCluster(t.Context(), "api.t.sum", []any{w * 1000, i}, "")
				var sum int
				if err != nil || r.Decode(&sum) != nil || sum != w*1000+i {
					wrong.Add(1)
					t.Log(err, r)
				}
			}
		})
	}
	callers.Wait()
	require.Zero(t, wrong.Load())
	var a answer
	require.NoError(t, json.Unmarshal(c.a.Line(60*time.Second), &a))
	require.Empty(t, a.Error)
	require.Zero(t, a.Wrong)
	require.EqualValues(t, calls, served.Load())
}
