package main

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/lab"
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
		_, err = q.Push(t.Context(), queue.Job{ID: "a\xff"}, queue.Job{ID: "a\xfe"}, queue.Job{ID: `a\xff`})
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
			holds(t, named("jobs", "show", name, job["id"].(string)).object(), map[string]any{"id": job["id"]})
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
