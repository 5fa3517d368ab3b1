package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/luatomictest"
)

// Several queues with weights; jobs with a field of Ruby's middleware only where it is allowed; Stop of the Busy page.
func TestConsumeSeveralSidekiqQueues(t *testing.T) {
	t.Parallel()
	e, r, ctx := shared(t), luatomictest.Client(t), t.Context()
	c := e.start("consume", "a,3", "b", "--dialect=sidekiq7", "--lease", "600ms", "--allow-field", "cattr", "--",
		"sh", "-c", `cat >/dev/null; echo "ran $LUATOMIC_QUEUE $LUATOMIC_ID."`)
	e.with(`{"class":"A","queue":"a","jid":"1"}
{"class":"A","queue":"b","jid":"2","cattr":{"user":1}}
{"class":"A","queue":"b","jid":"3","bid":"x","retry":false}`).run("push", "q", "--dialect=sidekiq7").exits(exitDone)
	luatomictest.Eventually(t, within, "two have run and one is given back", func() bool {
		out := c.stderr.String()
		return strings.Contains(out, "ran a 1.") && strings.Contains(out, "ran b 2.") &&
			r.ZCard(ctx, e.prefix+"schedule").Val() == 1
	})
	require.NotContains(t, c.stderr.String(), "ran b 3.")
	require.NotContains(t, r.ZRange(ctx, e.prefix+"schedule", 0, 0).Val()[0], `"error_`)
	require.Contains(t, c.stderr.String(), `job "3": declined: sidekiq: the job needs a middleware`)
	processes := r.SMembers(ctx, e.prefix+"processes").Val()
	require.Len(t, processes, 1)
	require.NoError(t, r.LPush(ctx, e.prefix+processes[0]+"-signals", "TERM").Err())
	holds(t, c.exits(exitDone).object(), map[string]any{"acked": 2, "retried": 0, "returned": 1, "dead": 0})
	require.Contains(t, c.stderr.String(), "stopped from Sidekiq's Busy page")

	for bad, want := range map[string]string{
		"":      "the queue is missing",
		"a,0":   "a weight is a whole number",
		"a b a": `queue "a" is named twice`,
	} {
		args := append([]string{"consume"}, strings.Fields(bad)...)
		c := e.run(append(args, "--dialect=sidekiq7", "--", "true")...).exits(exitUsage)
		require.Contains(t, c.stderr.String(), want)
	}
}

// A command that does not start has not failed at the job: another machine may have it.
func TestACommandThatDoesNotStartIsNoFailureOfItsJob(t *testing.T) {
	t.Parallel()
	e, r, ctx := shared(t), luatomictest.Client(t), t.Context()
	command := filepath.Join(t.TempDir(), "work")
	require.NoError(t, os.WriteFile(command, []byte("#!/bin/sh\ncat >/dev/null; echo begun\n"), 0o700))
	native := e.start("consume", "n", "--", command)
	foreign := e.start("consume", "s", "--dialect=sidekiq7", "--", command)
	e.with(`{"body":"1"}`).run("push", "n").exits(exitDone)
	e.with(`{"class":"A","queue":"s"}`).run("push", "s", "--dialect=sidekiq7").exits(exitDone)
	both := func(what, text string) {
		luatomictest.Eventually(t, within, what, func() bool {
			return strings.Contains(native.stderr.String(), text) && strings.Contains(foreign.stderr.String(), text)
		})
	}
	both("both serve", "begun")
	require.NoError(t, os.Remove(command))
	e.with(`{"body":"2"}`).run("push", "n").exits(exitDone)
	e.with(`{"class":"A","queue":"s","retry":false}`).run("push", "s", "--dialect=sidekiq7").exits(exitDone)
	both("both decline", "declined: ")
	luatomictest.Eventually(t, within, "the jobs wait", func() bool {
		return r.ZCard(ctx, e.prefix+"schedule").Val() == 1 && r.ZCard(ctx, e.prefix+"{n}:s").Val() == 1
	})
}

func TestStatsOfSidekiq(t *testing.T) {
	t.Parallel()
	e := shared(t)
	e.with(`{"class":"A","queue":"a"}
{"class":"A","queue":"b"}
{"class":"A","queue":"a","delay":"1h"}`).run("push", "q", "--dialect=sidekiq8").exits(exitDone)
	all := e.run("stats", "--dialect=sidekiq8").exits(exitDone).objects()
	require.Len(t, all, 3)
	holds(t, all[0], map[string]any{"processed": 0, "failed": 0, "scheduled": 1, "retries": 0, "dead": 0,
		"processes": 0})
	holds(t, all[1], map[string]any{"queue": "a", "ready": 1})
	holds(t, all[2], map[string]any{"queue": "b", "ready": 1})
	some := e.run("stats", "b", "none", "--dialect=sidekiq8").exits(exitDone).objects()
	require.Len(t, some, 3)
	holds(t, some[1], map[string]any{"queue": "b", "ready": 1})
	holds(t, some[2], map[string]any{"queue": "none", "ready": 0, "latency_ms": 0})
}

// A key of another type is named, and hides no other.
func TestAKeyOfAnotherTypeInSidekiq(t *testing.T) {
	t.Parallel()
	e, r := shared(t), luatomictest.Client(t)
	e.with(`{"class":"A","queue":"a"}`).run("push", "q", "--dialect=sidekiq7").exits(exitDone)
	require.NoError(t, r.SAdd(t.Context(), e.prefix+"queues", "bad").Err())
	require.NoError(t, r.Set(t.Context(), e.prefix+"queue:bad", "x", 0).Err())
	for _, args := range [][]string{{"queues", "ls"}, {"stats"}, {"stats", "a", "bad"}} {
		c := e.run(append(args, "--dialect=sidekiq7")...).exits(exitDone)
		require.Contains(t, c.stderr.String(), `queue "bad" is not counted: its key is no list`)
		all := c.objects()
		holds(t, all[len(all)-1], map[string]any{"queue": "a", "ready": 1})
	}
	const cure = "another program writes that key: rename or delete it"
	require.Contains(t, e.run("jobs", "ls", "bad", "--dialect=sidekiq7").exits(exitFailed).stderr.String(), cure)
	due := redis.Z{Score: 1, Member: `{"class":"A","args":[],"jid":"due","queue":"bad"}`}
	require.NoError(t, r.ZAdd(t.Context(), e.prefix+"retry", due).Err())
	require.Contains(t, e.run("promote", "--dialect=sidekiq7").exits(exitFailed).stderr.String(), cure)
	for _, o := range e.run("doctor", "--dialect=sidekiq7").exits(exitFailed).objects() {
		switch o["check"] {
		case "keys":
			require.Equal(t, false, o["ok"])
			require.Contains(t, o["detail"], e.prefix+"queue:bad")
		case "dialect":
			require.Equal(t, true, o["ok"], "the others are sampled")
		}
	}
}

func TestDoctorOfSidekiq(t *testing.T) {
	t.Parallel()
	e, r, ctx := shared(t), luatomictest.Client(t), t.Context()
	// lines returns the checks by name. A check that fails, which may be one of the server's, decides the exit code.
	lines := func(args ...string) map[string]map[string]any {
		out, code := map[string]map[string]any{}, exitDone
		done := e.run(append([]string{"doctor"}, args...)...)
		for _, o := range done.objects() {
			out[o["check"].(string)] = o
			if o["ok"] == false {
				code = exitFailed
			}
		}
		done.exits(code)
		return out
	}
	e.with(`{"class":"A","queue":"a"}`).run("push", "q", "--dialect=sidekiq7").exits(exitDone)
	got := lines("--dialect", "sidekiq8")
	holds(t, got["dialect"], map[string]any{"ok": false,
		"cure": "use --dialect sidekiq4 or sidekiq5 or sidekiq6 or sidekiq7"})
	got = lines("--dialect", "sidekiq")
	holds(t, got["dialect"], map[string]any{"ok": true})
	require.Contains(t, got["dialect"]["detail"], "in seconds (to 7): 1")
	for _, check := range []string{"namespace", "payloads", "middleware", "workers"} {
		require.Equal(t, true, got[check]["ok"], check)
	}
	require.Contains(t, got, "eviction", "the server's settings too")
	require.NotContains(t, got, "lock", "nothing is written")

	require.NoError(t, r.SAdd(ctx, e.prefix+"processes", "x").Err())
	require.NoError(t, r.HSet(ctx, e.prefix+"x", "info", `{"version":"7.3.2"}`).Err())
	require.NoError(t, r.LPush(ctx, e.prefix+"queue:a", `{"class":"A","args":[],"bid":"b","created_at":1795230010.5}`,
		"broken").Err())
	require.NoError(t, r.ZAdd(ctx, e.prefix+"luatomic:sidekiq:processes", redis.Z{Member: "dead", Score: 1}).Err())
	got = lines("--dialect", "sidekiq6")
	holds(t, got["dialect"], map[string]any{"ok": false, "cure": "use --dialect sidekiq7"})
	require.Contains(t, got["dialect"]["detail"], "processes report 7.3.2")
	for _, check := range []string{"payloads", "middleware", "workers"} {
		require.Equal(t, false, got[check]["ok"], check)
	}
	require.Contains(t, got["middleware"]["detail"], "bid in 1")
	require.NoError(t, r.LPush(ctx, e.prefix+"queue:a", `{"class":"A","args":[],"created_at":1795230010500}`).Err())
	got = lines("--dialect", "sidekiq8")
	require.Contains(t, got["dialect"]["cure"], "two versions")
}

// A queue that is refused keeps none of the others waiting, however many jobs are due.
func TestPromoteSidekiqGoesOnPastAQueueThatIsRefused(t *testing.T) {
	t.Parallel()
	e, r := shared(t), luatomictest.Client(t)
	require.NoError(t, r.Set(t.Context(), e.prefix+"queue:bad", "x", 0).Err())
	due := []redis.Z{{Score: 1, Member: `{"queue":"bad"}`}}
	for i := range sidekiq.MaxBatch + 1 {
		due = append(due, redis.Z{Score: 2, Member: fmt.Sprintf(`{"queue":"good","n":%d}`, i)})
	}
	require.NoError(t, r.ZAdd(t.Context(), e.prefix+"schedule", due...).Err())
	c := e.run("promote", "--dialect=sidekiq7").exits(exitFailed)
	holds(t, c.object(), map[string]any{"moved": sidekiq.MaxBatch + 1})
	require.Equal(t, 1, strings.Count(c.stderr.String(), "cannot be written to"), c.stderr.String())
}
