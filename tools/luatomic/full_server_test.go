package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/luatomictest"
)

// Above maxmemory what makes data is refused, with its cure, and what removes data or continues work goes on.
func TestFullServer(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	e := &env{t: t, url: server.URL()}
	e.with(`{"body":1,"id":"a"}
{"body":1,"id":"b"}
{"body":1,"id":"c"}
{"body":1,"id":"s","delay":"1h"}`).run("push", "q").exits(exitDone)
	e.run("jobs", "bury", "q", "b").exits(exitDone)
	e.run("locks", "steal", "held", "--ttl", "1h").exits(exitDone)
	require.NoError(t, server.Client().ConfigSet(t.Context(), "maxmemory", "1").Err())
	for _, args := range [][]string{
		{"lock", "x", "--", "true"}, {"queue", "pause", "q"}, {"queue", "limit", "q", "9"},
		{"jobs", "requeue", "q", "b"},
		{"jobs", "reschedule", "q", "s", "--in", "1m"},
	} {
		require.Contains(t, e.run(args...).exits(exitFailed).stderr.String(), "the server is full: raise its maxmemory",
			args)
	}
	require.Contains(t, e.with("x").run("push", "q", "--raw").exits(exitFailed).stderr.String(), "the server is full")
	for _, args := range [][]string{
		{"jobs", "bury", "q", "c"}, {"jobs", "cancel", "q", "s"}, {"jobs", "delete", "q", "c"},
		{"queue", "resume", "q"},
		{"locks", "release", "held"}, {"promote", "q"}, {"queue", "trim", "q", "--keep", "1"},
		{"consume", "q", "--drain", "--", "true"},
	} {
		e.run(args...).exits(exitDone)
	}
	holds(t, e.run("stats", "q").exits(exitDone).object(), map[string]any{"ready": 0, "scheduled": 0, "dead": 1})
}

// A full server is said so, and nothing is sent.
func TestRPCOnAFullServer(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	require.NoError(t, server.Client().ConfigSet(t.Context(), "maxmemory", "1").Err())
	e := &env{t: t, url: server.URL()}
	e.call("x", "1", "--timeout", "8s").fails(exitFailed, "not_sent", "the server is full: raise its maxmemory")
}
