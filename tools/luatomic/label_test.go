package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// Whatever bytes the names of queues and the ids of jobs have, the output tells them apart, and the commands take them
// as the output has them.
func TestNamesThatAreNotUTF8(t *testing.T) {
	t.Parallel()
	e := shared(t)
	for _, name := range []string{"b\xff", "b\xfe", `b\xff`} {
		q, err := queue.New(luatomictest.Client(t), name, &queue.Options{Prefix: e.prefix, Tag: "t\xff"})
		require.NoError(t, err)
		_, err = q.Push(t.Context(), queue.Job{ID: "a\xff", Kind: "k\xff"}, queue.Job{ID: "a\xfe"},
			queue.Job{ID: `a\xff`})
		require.NoError(t, err)
	}
	var seen []any
	for _, row := range e.run("queues", "ls").exits(exitDone).objects() {
		name, tag := row["queue"].(string), row["tag"].(string)
		named := func(args ...string) *cli {
			return e.run(append(args, "--tag", tag)...).exits(exitDone)
		}
		holds(t, named("stats", name).object(), map[string]any{"queue": name, "ready": 3})
		for _, job := range named("jobs", "ls", name).objects() {
			seen = append(seen, name+" "+job["id"].(string))
			holds(t, named("jobs", "show", name, job["id"].(string)).object(), map[string]any{"id": job["id"],
				"kind": map[any]string{`a\xff`: `k\xff`}[job["id"]]})
			holds(t, named("jobs", "cancel", name, job["id"].(string)).object(), map[string]any{"cancelled": 1})
		}
		holds(t, named("queue", "pause", name).object(), map[string]any{"queue": name})
	}
	require.Len(t, slices.Compact(seen), 9)
	require.Contains(t, seen, `b\xff a\xff`)
	require.Contains(t, seen, `b\x5cxff a\x5cxff`)
}

// The same for the names of locks of each kind.
func TestLocksWhoseNamesAreNotUTF8(t *testing.T) {
	t.Parallel()
	e := shared(t)
	locks := lock.New(luatomictest.Client(t), &lock.Options{Prefix: e.prefix, TTL: time.Minute})
	for _, name := range []string{"l\xff", "l\xfe", `l\xff`} {
		lab.Must(locks.Acquire(t.Context(), name))
		lab.Must(locks.RW(name).Acquire(t.Context()))
		lab.Must(locks.Semaphore(name, 1).Acquire(t.Context(), 1))
	}
	for _, kind := range []string{"lock", "rw", "semaphore"} {
		var seen []any
		for _, row := range e.run("locks", "ls", "--kind", kind).exits(exitDone).objects() {
			name := row["name"].(string)
			seen = append(seen, name)
			args := []string{name, "--kind", kind}
			if holders, ok := row["holders"].([]any); ok {
				args = append(args, "--token", holders[0].(map[string]any)["token"].(string))
			}
			holds(t, e.run("locks", "show", name, "--kind", kind).exits(exitDone).object(),
				map[string]any{"name": name, "key": row["key"]})
			holds(t, e.run(append([]string{"locks", "release"}, args...)...).exits(exitDone).object(),
				map[string]any{"name": name, "released": true})
		}
		require.ElementsMatch(t, []any{`l\xff`, `l\xfe`, `l\x5cxff`}, seen, kind)
	}
	name := `s\xff`
	holds(t, e.run("locks", "steal", name, "--ttl", "1m").exits(exitDone).object(), map[string]any{"name": name})
	held := e.run("lock", name, "--", "true").exits(exitTryLater)
	require.Contains(t, held.stderr.String(), `"s\xff" by `)
}

// The same for the names of buses, methods and nodes; the JSON of a request keeps its bytes.
func TestMethodsAndNodesWhoseNamesAreNotUTF8(t *testing.T) {
	t.Parallel()
	e := shared(t)
	want := []string{`m\xff`, `m\xfe`, `m\x5cxff`}
	for _, name := range []string{"m\xff", `m\xfe`, `m\x5cxff`} {
		e.serve(name, "--bus", "b\xff", "--node", name, "--", "cat")
	}
	var seen, top []string
	for _, row := range e.run("rpc", "nodes", "--bus", `b\xff`).exits(exitDone).objects() {
		node, method := row["node"].(string), row["methods"].([]any)[0].(string)
		seen = append(seen, method)
		require.True(t, strings.HasPrefix(node, method+"."), node)
		const body = `"a\\xffb"`
		called := e.call(method, body, "--bus", `b\xff`, "--to", node).exits(exitDone)
		require.Equal(t, `{"result":`+body+`}`, called.line())
		gathered := e.call(method, body, "--bus", `b\xff`, "--gather").exits(exitDone).objects()
		require.Equal(t, node, gathered[0]["node"])
	}
	for _, row := range e.run("rpc", "top", "--bus", `b\xff`).exits(exitDone).objects() {
		top = append(top, row["method"].(string))
		require.True(t, strings.HasPrefix(row["node"].(string), row["method"].(string)+"."))
	}
	require.ElementsMatch(t, want, seen)
	require.ElementsMatch(t, want, top)
}
