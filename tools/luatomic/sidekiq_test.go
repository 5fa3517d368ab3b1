package main

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/luatomictest"
)

func TestPushSidekiq(t *testing.T) {
	t.Parallel()
	times := map[string]string{"sidekiq4": `\d{10}\.\d+`, "sidekiq5": `\d{10}\.\d+`, "sidekiq6": `\d{10}\.\d+`,
		"sidekiq7": `\d{10}\.\d+`, "sidekiq8": `\d{13}`}
	for dialect, at := range times {
		e, r, ctx := shared(t), luatomictest.Client(t), t.Context()
		o := e.with(`{"class":"Mail","args":[1, "é", {"a":[ ]}],"tags":["x"],"jid":"0123456789abcdef01234567"}

{"class":"Other","queue":"low","retry":5}
{"class":"Later","args":[],"at":4000000000.25}
{"class":"Past","at":1}
{"class":"In","delay":"1h"}`).run("push", "q", "--dialect", dialect).exits(exitDone).object()
		holds(t, o, map[string]any{"pushed": 5, "ready": 3, "scheduled": 2, "duplicates": 0})
		require.NotNil(t, o["now"])
		jobs := r.LRange(ctx, e.prefix+"queue:q", 0, -1).Val()
		require.Len(t, jobs, 2)
		require.Regexp(t, `"args":\[1,"é",\{"a":\[\]\}\]`, jobs[1])
		require.Regexp(t, `"tags":\["x"\].*"jid":"0123456789abcdef01234567","created_at":`+at+`,"enqueued_at":`+at+
			`\}$`, jobs[1])
		require.Equal(t, []string{"low", "q"}, r.Sort(ctx, e.prefix+"queues", &redis.Sort{Alpha: true}).Val())
		require.Contains(t, r.LIndex(ctx, e.prefix+"queue:low", 0).Val(), `"retry":5`)
		later := r.ZRangeWithScores(ctx, e.prefix+"schedule", 0, -1).Val()
		require.Len(t, later, 2)
		require.InDelta(t, float64(time.Now().Unix()+3600), later[0].Score, 60)
		require.NotContains(t, later[0].Member, `"delay"`)
		require.InDelta(t, 4000000000.25, later[1].Score, 0.002)
		require.NotContains(t, later[1].Member, `"at"`)
	}
}

func TestPushSidekiqTimes(t *testing.T) {
	t.Parallel()
	at := time.Now().Add(time.Hour).Truncate(time.Second)
	for _, args := range [][]string{{"--in", "1h"}, {"--at", at.Format(time.RFC3339)}} {
		e := shared(t)
		o := e.with("{\"class\":\"A\"}\n{\"class\":\"B\",\"at\":1}").run(append([]string{"push", "q",
			"--dialect=sidekiq7"}, args...)...).exits(exitDone).object()
		holds(t, o, map[string]any{"ready": 1, "scheduled": 1})
		due := luatomictest.Client(t).ZRangeWithScores(t.Context(), e.prefix+"schedule", 0, 0).Val()[0]
		require.InDelta(t, float64(at.Unix()), due.Score, 60)
	}
}

// With --raw a payload keeps its bytes; only the time of its push is added.
func TestPushSidekiqRaw(t *testing.T) {
	t.Parallel()
	e, r, ctx := shared(t), luatomictest.Client(t), t.Context()
	done :=
		`{"retry":true,"queue":"other","class":"A","args":["\u00e9", 1.50],"jid":"0123456789abcdef01234567","created_at":1700000000.5,"enqueued_at":1700000000.75}`
	bare := `{"class":"A","args":[ ],"queue":"q","jid":"1"}`
	o := e.with(done+"\n\n"+bare).run("push", "q", "--dialect=sidekiq7", "--raw").exits(exitDone).object()
	holds(t, o, map[string]any{"pushed": 2, "ready": 2})
	require.Equal(t, done, r.LIndex(ctx, e.prefix+"queue:other", 0).Val())
	require.Regexp(t, `^\{"class":"A","args":\[ \],"queue":"q","jid":"1","enqueued_at":\d+\.\d+\}$`,
		r.LIndex(ctx, e.prefix+"queue:q", 0).Val())
	c := e.with(done+"\n"+`{"class":"A","args":[]}`).run("push", "q", "--dialect=sidekiq7", "--raw").exits(exitFailed)
	require.Contains(t, c.stderr.String(), "line 2: ")
	require.EqualValues(t, 1, r.LLen(ctx, e.prefix+"queue:other").Val(), "its batch is not pushed")
	c = e.with(`{"class":"A","args":[1e999],"queue":"other","jid":"2"}`).run("push", "q", "--dialect=sidekiq7", "--raw")
	require.Contains(t, c.exits(exitFailed).stderr.String(), "not a number that JSON can hold")
}

func TestPushBrokenSidekiq(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		`{"class":`:                           "broken JSON at byte",
		`[]`:                                  "not a JSON object",
		`null`:                                "not a JSON object",
		`{}`:                                  "without a class",
		`{"class":""}`:                        `"class" is not a string, or is empty`,
		`{"class":"A","queue":null}`:          `"queue" is not a string, or is empty`,
		`{"class":"A","args":{}}`:             "not a JSON array",
		`{"class":"A","at":"2030-01-01"}`:     `"at" is not a number of seconds`,
		`{"class":"A","at":1700000000000}`:    `"at" is not a number of seconds`,
		`{"class":"A","id":"1"}`:              `"id" is not a field of a Sidekiq job; write "jid"`,
		`{"class":"A","unique":"1"}`:          `"unique" is not a field of a Sidekiq job; Sidekiq has no unique jobs`,
		`{"class":"A","perform_in":5}`:        `"perform_in" is not a field of a Sidekiq job; write "delay"`,
		`{"class":"A","body":{}}`:             `"body" is not a field of a Sidekiq job`,
		`{"class":"A","delay":2}`:             `"delay" is not a string such as "30s"`,
		`{"class":"A","delay":"1s","at":1}`:   `both "at" and "delay"`,
		`{"class":"A","created_at":1}`:        "push finished payloads with --raw",
		`{"class":"A","tags":1,"tags":2}`:     `field "tags" stands twice; keep one`,
		`{"class":"A","args":["` + "\xff\"]}": "UTF-8",
	} {
		e := shared(t)
		c := e.with("{\"class\":\"Good\"}\n"+line).run("push", "q", "--dialect=sidekiq8").exits(exitFailed)
		require.Contains(t, c.stderr.String(), "line 2: ", line)
		require.Contains(t, c.stderr.String(), want, line)
		require.Zero(t, luatomictest.Client(t).Exists(t.Context(), e.prefix+"queue:q").Val(), "its batch is not pushed")
	}
	e := shared(t)
	e.prefix = "no-colon"
	c := e.with(`{"class":"A"}`).run("push", "q", "--dialect=sidekiq8").exits(exitUsage)
	require.Contains(t, c.stderr.String(), "write --prefix no-colon:")
	require.Empty(t, c.stdout.String())
	e.run("promote", "--dialect=sidekiq8").exits(exitUsage)
	e.run("consume", "q", "--dialect=sidekiq8", "--", "true").exits(exitUsage)
}

func TestConsumeSidekiq(t *testing.T) {
	t.Parallel()
	e, r, ctx := shared(t), luatomictest.Client(t), t.Context()
	c := e.start("consume", "q", "--dialect=sidekiq7", "-c", "2", "--", "sh", "-c",
		`in=$(cat); echo "$LUATOMIC_CLASS $LUATOMIC_ATTEMPT $LUATOMIC_QUEUE $LUATOMIC_ID: $in"; case $in in *Bad*) exit 3;; esac`)
	e.with("{\"class\":\"Good\",\"args\":[1],\"jid\":\"a\"}\n{\"class\":\"Bad\"}\n{\"class\":\"Bad\",\"retry\":0}").
		run("push", "q", "--dialect=sidekiq7").exits(exitDone)
	luatomictest.Eventually(t, within, "all three ran", func() bool {
		return r.ZCard(ctx, e.prefix+"retry").Val() == 1 && r.ZCard(ctx, e.prefix+"dead").Val() == 1 &&
			strings.Contains(c.stderr.String(), "Good 1 q a: {")
	})
	require.Contains(t, r.ZRange(ctx, e.prefix+"retry", 0, 0).Val()[0], `"retry_count":0`)
	c.signal(syscall.SIGINT)
	holds(t, c.exits(exitInterrupted).object(), map[string]any{"acked": 1, "retried": 1, "dead": 1})
	require.Contains(t, c.stderr.String(), "exit code 3")
	require.Zero(t, r.Exists(ctx, e.prefix+"queue:q").Val())
}

// The bounds of the dead set are Ruby's: the command deletes none by number or age, except by its flag.
func TestASidekiqConsumerDeletesNoDeadJobThatRubyKeeps(t *testing.T) {
	t.Parallel()
	e, r, ctx := shared(t), luatomictest.Client(t), t.Context()
	dead := make([]redis.Z, 10_010)
	for i := range dead {
		dead[i] = redis.Z{Score: float64(i + 1), Member: strconv.Itoa(i)}
	}
	require.NoError(t, r.ZAdd(ctx, e.prefix+"dead", dead...).Err())
	var died int64
	for _, test := range []struct {
		flags []string
		want  int64
	}{{nil, 10_011}, {[]string{"--dead", "10001"}, 10_000}} {
		died++
		e.with(`{"class":"Bad","retry":0}`).run("push", "q", "--dialect=sidekiq7").exits(exitDone)
		args := append([]string{"consume", "q", "--dialect=sidekiq7"}, test.flags...)
		c := e.start(append(args, "--", "false")...)
		luatomictest.Eventually(t, within, "the job is dead", func() bool {
			return r.ZCount(ctx, e.prefix+"dead", "1000000", "+inf").Val() == died
		})
		c.signal(syscall.SIGINT)
		holds(t, c.exits(exitInterrupted).object(), map[string]any{"dead": 1})
		require.Equal(t, test.want, r.ZCard(ctx, e.prefix+"dead").Val())
	}
}

func TestPromoteSidekiq(t *testing.T) {
	t.Parallel()
	e, r, ctx := shared(t), luatomictest.Client(t), t.Context()
	payload := func(i int) string {
		return fmt.Sprintf(`{"retry":true,"queue":"q%d","class":"A","args":[],"jid":"%024d","created_at":1700000000.5}`,
			i%2, i)
	}
	var zs []redis.Z
	for i := range 2500 {
		zs = append(zs, redis.Z{Score: float64(i), Member: payload(i)})
	}
	require.NoError(t, r.ZAdd(ctx, e.prefix+"schedule", zs...).Err())
	require.NoError(t, r.ZAdd(ctx, e.prefix+"retry", redis.Z{Score: 7, Member: "no job"},
		redis.Z{Score: 8, Member: payload(3000)}, redis.Z{Score: 4e9, Member: payload(3001)}).Err())
	c := e.run("promote", "--dialect=sidekiq7").exits(exitDone)
	holds(t, c.object(), map[string]any{"moved": 2501, "malformed": 1, "next_due": 4e12})
	require.Contains(t, c.stderr.String(), "not a job in JSON")
	require.EqualValues(t, 1251, r.LLen(ctx, e.prefix+"queue:q0").Val())
	holds(t, e.run("promote", "--dialect=sidekiq7").exits(exitDone).object(),
		map[string]any{"moved": 0, "malformed": 0, "next_due": 4e12})

	watch := e.start("promote", "--dialect=sidekiq7", "--watch")
	require.NoError(t,
		r.ZAdd(ctx, e.prefix+"schedule", redis.Z{Score: float64(time.Now().UnixMilli())/1000 + 0.05,
			Member: payload(4001)}).Err())
	luatomictest.Eventually(t, within, "it is moved", func() bool {
		return r.LLen(ctx, e.prefix+"queue:q1").Val() == 1251 && watch.stdout.String() != ""
	})
	watch.signal(syscall.SIGINT)
	holds(t, watch.exits(exitInterrupted).object(), map[string]any{"moved": 1, "malformed": 0})
}

// A flag that a dialect cannot honour is refused by each command.
func TestStatsOfSidekiqHasNoTag(t *testing.T) {
	t.Parallel()
	c := shared(t).run("stats", "q", "--dialect", "sidekiq7", "--tag", "t").exits(exitUsage)
	require.Contains(t, c.stderr.String(), "--tag: not in the dialect sidekiq7")
}
