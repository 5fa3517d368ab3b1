package main

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/redisinaction"
	"github.com/luatomic/luatomic/luatomictest"
)

const inRIA = "--dialect=redisinaction"

// items are those of a list, as JSON without their ids.
func (e *env) items(key string) []string {
	e.t.Helper()
	var out []string
	for _, text := range luatomictest.Client(e.t).LRange(e.t.Context(), e.prefix+key, 0, -1).Val() {
		item, err := redisinaction.ParseItem([]byte(text))
		require.NoError(e.t, err)
		out = append(out, item.Name+string(item.Args))
	}
	return out
}

func TestPushTasks(t *testing.T) {
	t.Parallel()
	e := shared(t)
	o := e.with(`{"name":"send","args":["é",1e3, {"a":[]}]}

{"name":"later","args":[1],"delay":"1h"}
{"name":"bare"}
{"name":"at once","args":[],"delay":"0s"}`).run("push", "q", inRIA).exits(exitDone).object()
	holds(t, o, map[string]any{"pushed": 4, "ready": 3, "scheduled": 1, "duplicates": 0})
	require.NotNil(t, o["now"])
	require.Equal(t, []string{`send["\u00e9", 1000.0, {"a": []}]`, `bare[]`, `at once[]`}, e.items("queue:q"))
	r := luatomictest.Client(t)
	delayed := r.ZRangeWithScores(t.Context(), e.prefix+"delayed:", 0, -1).Val()
	require.Len(t, delayed, 1)
	require.InDelta(t, float64(time.Now().Add(time.Hour).Unix()), delayed[0].Score, 60)
	require.Regexp(t, `^\["[0-9a-f-]{36}", "q", "later", \[1\]\]$`, delayed[0].Member)

	o = e.with(`{"name":"n"}`).run("push", "q", inRIA, "--in", "2h").exits(exitDone).object()
	holds(t, o, map[string]any{"scheduled": 1})
}

func TestPushBrokenTasks(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		`{"name":`:                            "broken JSON at byte",
		`null`:                                "not a JSON object",
		`[]`:                                  "not a JSON object",
		`{}`:                                  `"name" is missing`,
		`{"name":""}`:                         `"name" is not a string, or is empty`,
		`{"name":1}`:                          `"name" is not a string, or is empty`,
		`{"name":"n","args":{}}`:              `"args" is not an array`,
		`{"name":"n","delay":"-1s"}`:          `"delay" is below zero`,
		`{"name":"n","at":1}`:                 `unknown field "at"; the fields are name, args, delay`,
		`{"name":"n","args":[1e999]}`:         "out of range for a float",
		`{"name":"n","args":[{"a":1,"a":2}]}`: "a key twice",
		`{"name":"n","args":["` + strings.Repeat("é", 200_000) + `"]}`: "store the data elsewhere",
	} {
		e := shared(t)
		c := e.with("{\"name\":\"good\"}\n"+line).run("push", "q", inRIA).exits(exitFailed)
		require.Contains(t, c.stderr.String(), want, line[:min(len(line), 50)])
		require.Empty(t, e.items("queue:q"), "its batch is not pushed")
	}
}

// What grows by Python's form fits into its batch all the same.
func TestPushTasksThatGrow(t *testing.T) {
	t.Parallel()
	e := shared(t)
	line := `{"name":"` + strings.Repeat("é", 20) + `","args":["` + strings.Repeat("😀", 100) + `",` +
		strings.Repeat("1e15,", 400) + "1]}\n"
	o := e.with(strings.Repeat(line, 1000)).run("push", "q", inRIA).exits(exitDone).object()
	holds(t, o, map[string]any{"pushed": 1000})
}

func TestPromoteTasks(t *testing.T) {
	t.Parallel()
	e := shared(t)
	r, ctx := luatomictest.Client(t), t.Context()
	var zs []redis.Z
	for i := range 2500 {
		zs = append(zs, redis.Z{Score: float64(i), Member: fmt.Sprintf(`["%d", "q%d", "n", []]`, i, i%2)})
	}
	require.NoError(t, r.ZAdd(ctx, e.prefix+"delayed:", zs...).Err())
	require.NoError(t, r.ZAdd(ctx, e.prefix+"delayed:", redis.Z{Score: 7, Member: "no item"},
		redis.Z{Score: 4e9, Member: "later"}).Err())
	c := e.run("promote", inRIA).exits(exitDone)
	holds(t, c.object(), map[string]any{"moved": 2500, "malformed": 1, "next_due": 4e12})
	require.Contains(t, c.stderr.String(), "malformed item: not an array at byte 0")
	require.EqualValues(t, 1250, r.LLen(ctx, e.prefix+"queue:q1").Val())

	require.NoError(t, r.Del(ctx, e.prefix+"delayed:").Err())
	require.NoError(t, r.ZAdd(ctx, e.prefix+"delayed:", zs...).Err())
	require.NoError(t, r.ZAdd(ctx, e.prefix+"delayed:", redis.Z{Score: 1e18, Member: "nanoseconds"}).Err())
	c = e.run("promote", inRIA).exits(exitFailed)
	holds(t, c.object(), map[string]any{"moved": 2500, "next_due": nil})
	require.Contains(t, c.stderr.String(), "Go port of the book's code")
}

func TestPromoteTasksWatch(t *testing.T) {
	t.Parallel()
	e := shared(t)
	c := e.start("promote", inRIA, "--watch")
	e.with(`{"name":"n","delay":"50ms"}`).run("push", "q", inRIA).exits(exitDone)
	luatomictest.Eventually(t, within, "it is moved", func() bool {
		return len(e.items("queue:q")) == 1 && c.stdout.String() != ""
	})
	c.signal(syscall.SIGINT)
	holds(t, c.exits(exitInterrupted).object(), map[string]any{"moved": 1, "malformed": 0, "next_due": nil})
}

func TestLockOfTasks(t *testing.T) {
	t.Parallel()
	e := shared(t)
	r, ctx := luatomictest.Client(t), t.Context()
	key := e.prefix + "lock:x{y}"
	c := e.run("lock", "x{y}", inRIA, "--", "sh", "-c",
		`echo "$LUATOMIC_KEY $LUATOMIC_TOKEN $LUATOMIC_FENCE."; exit 7`).exits(7)
	require.Regexp(t, "^"+key+" [0-9a-f-]{36} \\.\n$", c.stdout.String())
	require.Zero(t, r.Exists(ctx, key).Val())

	other := redisinaction.New(r, &redisinaction.Options{Prefix: e.prefix})
	id, err := other.AcquireLock(ctx, "x{y}", nil)
	require.NoError(t, err)
	c = e.run("lock", "x{y}", inRIA, "--wait", "3s", "--", "echo", "ran").exits(exitTryLater)
	require.Empty(t, c.stdout.String())
	require.Contains(t, c.stderr.String(), "is held, with no time to live")
	waiting := e.start("lock", "x{y}", inRIA, "--wait", "1m", "--ttl", "0", "--", "sh", "-c", "echo ran; exec sleep 60")
	require.NoError(t, other.ReleaseLock(ctx, "x{y}", id))
	luatomictest.Eventually(t, within, "it runs", func() bool { return waiting.stdout.String() == "ran\n" })
	require.Negative(t, r.PTTL(ctx, key).Val(), "without an end, as in the book")
	waiting.signal(syscall.SIGTERM)
	waiting.exits(128 + 15)
	require.Zero(t, r.Exists(ctx, key).Val())

	require.NoError(t, r.Set(ctx, key, "of a dead process", 0).Err())
	e.run("lock", "x{y}", inRIA, "--wait", "1m", "--heal", "50ms", "--", "true").exits(0)
}

// The lock is extended while the command runs, which is killed when it is lost.
func TestLockOfTasksIsKept(t *testing.T) {
	t.Parallel()
	e := shared(t)
	r, ctx := luatomictest.Client(t), t.Context()
	key := e.prefix + "lock:x"
	c := e.start("lock", "x", inRIA, "--ttl", "6s", "--", "sh", "-c", "echo ran; exec sleep 60")
	luatomictest.Eventually(t, within, "it runs", func() bool { return c.stdout.String() == "ran\n" })
	id := r.Get(ctx, key).Val()
	for end := time.Now().Add(7500 * time.Millisecond); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		require.Equal(t, id, r.Get(ctx, key).Val())
	}
	require.NoError(t, r.Set(ctx, key, "another", 0).Err())
	c.exits(exitFailed)
	require.Contains(t, c.stderr.String(), "lock is not held; the command was killed")
	require.Equal(t, "another", r.Get(ctx, key).Val())
}

// A lock that cannot be extended in time is lost, before another can have it.
func TestLockOfTasksIsLostInTime(t *testing.T) {
	t.Parallel()
	e := shared(t)
	proxy := luatomictest.NewLossyProxy(t, e.url)
	e.url = proxy.URL()
	c := e.start("lock", "x", inRIA, "--ttl", "3s", "--", "sh", "-c",
		`trap 'echo killed; exit' TERM; echo ran; while :; do sleep 0.01; done`)
	luatomictest.Eventually(t, within, "it runs", func() bool { return c.stdout.String() == "ran\n" })
	proxy.Blackhole(true)
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	other := redisinaction.New(luatomictest.Client(t), &redisinaction.Options{Prefix: e.prefix})
	_, err := other.AcquireLock(ctx, "x", &redisinaction.LockOptions{Wait: -1})
	require.NoError(t, err)
	luatomictest.Eventually(t, within, "CMD is gone", func() bool {
		return strings.Contains(c.stdout.String(), "killed")
	})
	proxy.Blackhole(false)
	c.exits(exitFailed)
	require.Contains(t, c.stderr.String(), "the command was killed")
}
