package main

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// A queue that no process has used is named by a verb that needs what is in it; pause and limit, which can come before
// the first push, say so and go on.
func TestQueueVerbsOfAnUnknownQueue(t *testing.T) {
	t.Parallel()
	e := shared(t)
	for _, args := range [][]string{
		{"queue", "audit", "pots"}, {"queue", "audit", "pots", "--repair"}, {"queue", "trim", "pots", "--keep", "1"},
		{"queue", "resume", "pots"},
	} {
		c := e.run(args...).exits(exitFailed)
		require.Equal(t, "luatomic: there is no queue \"pots\"; luatomic queues ls lists them\n",
			c.stderr.String(), args)
		require.Empty(t, c.stdout.String())
	}
	for _, args := range [][]string{{"queue", "pause", "early"}, {"queue", "limit", "tight", "10"}} {
		c := e.run(args...).exits(exitDone)
		require.Contains(t, c.stderr.String(), `no process has used queue "`+args[2]+`" so far`)
		require.Empty(t, e.run(args...).exits(exitDone).stderr.String(), "by its setting it is known")
	}
	for _, args := range [][]string{{"promote", "u1"}, {"promote", "u1"}, {"consume", "u2", "--drain", "--", "true"}} {
		c := e.run(args...).exits(exitDone)
		require.Equal(t, `luatomic: no process has used queue "`+args[1]+
			"\" so far; luatomic queues ls lists those that are in use\n",
			c.stderr.String(), args)
	}
	require.Empty(t, e.run("queue", "resume", "early").exits(exitDone).stderr.String())
	e.known("posts")
	for _, args := range [][]string{
		{"queue", "audit", "posts"}, {"queue", "trim", "posts", "--keep", "1"}, {"queue", "resume", "posts"},
		{"queue", "pause", "posts"},
	} {
		require.Empty(t, e.run(args...).exits(exitDone).stderr.String(), args)
	}
}

// A drain of a paused queue waits, and says for what.
func TestDrainOfAPausedQueue(t *testing.T) {
	t.Parallel()
	e := shared(t)
	e.push("mail", queue.Job{ID: "a"})
	e.run("queue", "pause", "mail").exits(exitDone)
	c := e.start("consume", "mail", "--drain", "--", "true")
	c.shows("luatomic: queue \"mail\" is paused; luatomic queue resume mail ends that\n")
	e.run("queue", "resume", "mail").exits(exitDone)
	holds(t, c.exits(exitDone).object(), map[string]any{"acked": 1})
	require.Equal(t, 1, strings.Count(c.stderr.String(), "paused"))
}

// The command of a cure works as it is printed: a name with spaces is in quotes, and a queue with a tag has it.
func TestACureNamesTheQueueForAShell(t *testing.T) {
	t.Parallel()
	e := shared(t)
	const of = `'ann'\''s mail' --tag blue`
	name := []string{"ann's mail", "--tag", "blue"}
	e.with(`{"body":1,"id":"a"}`).run(append([]string{"push"}, name...)...).exits(exitDone)
	c := e.run(append([]string{"jobs", "show", name[0], "nope"}, name[1:]...)...).exits(exitFailed)
	require.Contains(t, c.stderr.String(), "luatomic jobs ls "+of+" lists those it has")
	e.run(append([]string{"queue", "pause"}, name...)...).exits(exitDone)
	c = e.start(append([]string{"consume"}, append(name, "--drain", "--", "true")...)...)
	c.shows("luatomic queue resume " + of + " ends that")
	e.run(append([]string{"queue", "resume"}, name...)...).exits(exitDone)
	c.exits(exitDone)
}

// A change of a setting that is made is a success, although the server cannot be asked again.
func TestASettingThatIsMadeIsASuccess(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]map[string]any{
		"pause": {"paused": true, "limit": 7}, "resume": {"paused": false, "limit": 7},
		"limit": {"paused": false, "limit": 9},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := shared(t)
			q := e.queue("mail")
			require.NoError(t, q.SetLimit(t.Context(), 7))
			if name == "resume" {
				require.NoError(t, q.Pause(t.Context()))
			}
			before, err := q.Stats(t.Context())
			require.NoError(t, err)
			proxy := luatomictest.NewLossyProxy(t, e.url)
			e.url, e.extra = proxy.URL(), []string{inHaste}
			proxy.DropRequest(1000, func([]string) bool {
				st, err := q.Stats(context.Background())
				return err == nil && (st.Paused != before.Paused || st.Limit != before.Limit)
			})
			args := map[string][]string{"limit": {"queue", "limit", "mail", "9"}}[name]
			if args == nil {
				args = []string{"queue", name, "mail"}
			}
			want["queue"] = "mail"
			holds(t, e.run(args...).exits(exitDone).object(), want)
		})
	}
}
