package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
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
		{"lock", "x", "--", "true"}, {"jobs", "requeue", "q", "b"},
		{"jobs", "reschedule", "q", "s", "--in", "1m"},
	} {
		text := e.run(args...).exits(exitFailed).stderr.String()
		require.Contains(t, text, "the server is full: raise its maxmemory", args)
		require.Less(t, strings.Index(text, "raise its maxmemory"), strings.Index(text, "OOM"), text)
		require.NotContains(t, text, "user_script", args)
	}
	require.Contains(t, e.with("x").run("push", "q", "--raw").exits(exitFailed).stderr.String(), "the server is full")
	for _, args := range [][]string{
		{"jobs", "bury", "q", "c"}, {"jobs", "cancel", "q", "s"}, {"jobs", "delete", "q", "c"},
		{"queue", "pause", "q"}, {"queue", "limit", "q", "9"}, {"queue", "resume", "q"},
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

// A server that cannot write its snapshot refuses PING as it refuses writes. What only reads goes on, doctor says what
// is wrong, and a refused write has its cure.
func TestAServerThatCannotSaveIsReadAllTheSame(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t, "--save", "3600 1", "--appendonly", "yes")
	client, e := server.Client(), &env{t: t, url: server.URL()}
	e.with("x").run("push", "q", "--raw").exits(exitDone)
	unblock := lab.FailSnapshot(t, client)
	require.EqualValues(t, 1, e.run("stats", "q").exits(exitDone).object()["ready"])
	e.run("queues", "ls").exits(exitDone)
	e.run("locks", "ls").exits(exitDone)
	checks := e.run("doctor").exits(exitFailed).checks()
	require.Equal(t, "the last snapshot failed", checks["persistence"]["detail"])
	const cure = "the server cannot save its data and takes no writes: free its disk"
	for _, check := range []string{"lock", "queue", "rpc"} {
		require.Contains(t, checks[check]["cure"], cure, check)
	}
	require.Contains(t, e.run("queue", "pause", "q").exits(exitFailed).stderr.String(), cure)
	c := e.start("consume", "q", "--", "true")
	c.shows(cure)
	unblock()
	require.NoError(t, client.BgSave(t.Context()).Err())
	luatomictest.Eventually(t, within, "the job is done", func() bool {
		count := e.run("stats", "q").object()
		return count["ready"] == 0.0 && count["leased"] == 0.0
	})
	c.signal(os.Interrupt)
	c.exits(exitInterrupted)
}

// A server that waits for replicas refuses each write for as long, and a command that repeats it says so.
func TestAServerWithTooFewReplicasIsSaid(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t, "--min-replicas-to-write", "1")
	e := &env{t: t, url: server.URL()}
	const cure = "start them, or lower its min-replicas-to-write"
	consumer := e.start("consume", "q", "--", "true")
	consumer.shows(server.URL() + " has too few replicas to take writes; " + cure)
	luatomictest.Eventually(t, within, "its subscription is asked for", func() bool {
		return strings.Contains(server.Client().Info(t.Context(), "commandstats").Val(), "cmdstat_pubsub|numsub:")
	})
	e.call("x", "1", "--timeout", "3s").fails(exitFailed, "not_sent", cure)
	require.NotContains(t, consumer.stderr.String(), "answers again", "it refuses all writes")
	require.Contains(t, cureOf(reply("NOREPLICAS Not enough good replicas to write.")), cure)
}

// A key of another program has a cure.
func TestCureOfAKeyOfAnotherType(t *testing.T) {
	t.Parallel()
	e := shared(t)
	e.with("x").run("push", "q", "--raw").exits(exitDone)
	const cure = "rename or delete it, and give that program or this one a prefix of its own"
	require.NoError(t, luatomictest.Client(t).Set(t.Context(), e.prefix+"{q}:l", "x", 0).Err())
	for _, args := range [][]string{
		{"stats", "q"}, {"queue", "audit", "q"}, {"consume", "q", "--drain", "--", "true"},
	} {
		require.Contains(t, e.run(args...).exits(exitFailed).stderr.String(), cure, args)
	}
}
