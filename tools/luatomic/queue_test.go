package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// push adds jobs with the library.
func (e *env) push(name string, jobs ...queue.Job) {
	e.t.Helper()
	for range e.queue(name).PushSeq(e.t.Context(), func(yield func(queue.Job) bool) {
		for _, j := range jobs {
			if !yield(j) {
				return
			}
		}
	}) {
	}
}

func TestPromote(t *testing.T) {
	t.Parallel()
	e := shared(t)
	jobs := make([]queue.Job, 2500)
	for i := range jobs {
		jobs[i].Delay = time.Millisecond
	}
	e.push("a", jobs...)
	e.push("b", queue.Job{Delay: time.Hour}, queue.Job{})
	luatomictest.Eventually(t, within, "the jobs are due", func() bool {
		st := e.stats("a")
		due, ok := st.NextDue.Get()
		return ok && due.Before(st.Now.Add(-10*time.Millisecond))
	})
	all := e.run("promote", "a", "b", "none").exits(exitDone).objects()
	require.Len(t, all, 3)
	holds(t, all[0], map[string]any{"queue": "a", "moved": 2500})
	require.Nil(t, all[0]["next_due"])
	holds(t, all[1], map[string]any{"queue": "b", "moved": 0})
	due, _ := e.stats("b").NextDue.Get()
	require.EqualValues(t, due.UnixMilli(), all[1]["next_due"])
	holds(t, all[2], map[string]any{"queue": "none", "moved": 0})
	require.Equal(t, 2500, e.stats("a").Ready)
}

func TestPromoteWatch(t *testing.T) {
	t.Parallel()
	e := shared(t)
	e.push("a", queue.Job{Delay: 20 * time.Millisecond}, queue.Job{Delay: 150 * time.Millisecond},
		queue.Job{Delay: time.Hour})
	c := e.start("promote", "--watch", "a", "b")
	luatomictest.Eventually(t, within, "two jobs are moved", func() bool { return e.stats("a").Ready == 2 })
	luatomictest.Eventually(t, within, "the moves are on stdout", func() bool {
		moved := 0.0
		for _, o := range c.objects() {
			moved += o["moved"].(float64)
		}
		return moved == 2
	})
	c.signal(os.Interrupt)
	for _, o := range c.exits(exitInterrupted).objects() {
		holds(t, o, map[string]any{"queue": "a"})
		require.NotNil(t, o["next_due"])
	}
}

func TestStats(t *testing.T) {
	t.Parallel()
	e := shared(t)
	e.push("a", queue.Job{Body: []byte("1")}, queue.Job{}, queue.Job{}, queue.Job{Delay: time.Hour})
	taken, err := e.queue("a").Take(t.Context(), 2)
	require.NoError(t, err)
	require.NoError(t, taken.Deliveries[0].Bury(t.Context(), "no"))
	luatomictest.Eventually(t, within, "the oldest job is some ms old", func() bool {
		st := e.stats("a")
		oldest, _ := st.Oldest.Get()
		return st.Now.Sub(oldest) > 5*time.Millisecond
	})
	e.known("none")
	all := e.run("stats", "a", "none").exits(exitDone).objects()
	require.Len(t, all, 2)
	holds(t, all[0], map[string]any{"queue": "a", "ready": 1, "scheduled": 1, "leased": 1, "dead": 1})
	require.Greater(t, all[0]["oldest_ms"], 5.0)
	require.InDelta(t, all[0]["now"].(float64)+3.6e6, all[0]["next_due"], 60_000)
	holds(t, all[1], map[string]any{"queue": "none", "ready": 0, "scheduled": 0, "leased": 0, "dead": 0})
	require.Nil(t, all[1]["oldest_ms"])
	require.Nil(t, all[1]["next_due"])
}

func TestStatsWatch(t *testing.T) {
	t.Parallel()
	e := shared(t)
	e.known("a", "b")
	for _, args := range [][]string{{"stats", "a", "b", "--watch", "20ms"}, {"stats", "--watch=20ms", "a", "b"}} {
		c := e.start(args...)
		luatomictest.Eventually(t, within, "the queues are counted twice", func() bool { return len(c.objects()) >= 4 })
		c.signal(os.Interrupt)
		c.exits(exitInterrupted)
		holds(t, c.objects()[3], map[string]any{"queue": "b"})
	}
}

func TestConsume(t *testing.T) {
	t.Parallel()
	e := shared(t)
	e.push("q", queue.Job{ID: "one", Body: []byte("body of one\n")})
	c := e.run("consume", "q", "--drain", "--", "sh", "-c",
		`cat; echo $LUATOMIC_QUEUE $LUATOMIC_ID $LUATOMIC_ATTEMPT; echo $((LUATOMIC_DEADLINE - LUATOMIC_ENQUEUED_AT >= 30000)) "$@"`, "sh", "an argument")
	c.exits(exitDone)
	holds(t, c.object(), map[string]any{"acked": 1, "retried": 0, "dead": 0})
	require.Equal(t, "body of one\nq one 1\n1 an argument\n", c.stderr.String())
	require.Zero(t, e.stats("q").Ready+e.stats("q").Leased)
}

func TestConsumeEach(t *testing.T) {
	t.Parallel()
	e := shared(t)
	jobs := make([]queue.Job, 60)
	for i := range jobs {
		jobs[i] = queue.Job{Body: fmt.Appendf(nil, "job-%d.", i)}
	}
	jobs[0].Delay = 100 * time.Millisecond // --drain waits for it
	e.push("q", jobs...)
	c := e.run("consume", "-c", "4", "--drain", "q", "--", "cat").exits(exitDone)
	holds(t, c.object(), map[string]any{"acked": 60, "retried": 0, "dead": 0})
	for _, j := range jobs {
		require.Equal(t, 1, strings.Count(c.stderr.String(), string(j.Body)))
	}
}

// Several queues of one tag: in order, or by weight; each CMD learns the queue of its job. A comma that no number
// follows belongs to the name.
func TestConsumeSeveralQueues(t *testing.T) {
	t.Parallel()
	e := shared(t)
	tagged := func(args ...string) *cli { return e.run(append(args, "--tag", "orders")...) }
	push := func(names ...string) {
		for _, name := range names {
			e := e.with("1\n2\n")
			e.run("push", name, "--raw", "--tag", "orders").exits(exitDone)
		}
	}
	push("low", "a,b", "high")
	c := e.run("consume", "high", "a,b", "low", "--tag", "orders", "--drain", "--", "sh", "-c",
		`echo "$LUATOMIC_QUEUE"`).exits(exitDone)
	holds(t, c.object(), map[string]any{"acked": 6})
	require.Equal(t, "high\nhigh\na,b\na,b\nlow\nlow\n", c.stderr.String())

	push("high", "a,b")
	c = e.run("consume", "high,3", "a,b,1", "--tag", "orders", "--drain", "--", "true").exits(exitDone)
	holds(t, c.object(), map[string]any{"acked": 4})

	e.with("1\n").run("push", "later", "--raw", "--in", "1ms", "--tag", "orders").exits(exitDone)
	luatomictest.Eventually(t, within, "it is due", func() bool {
		return tagged("promote", "later").exits(exitDone).object()["moved"] == 1.0
	})
}

// A command that does not read its stdin, and a body larger than a pipe holds.
func TestConsumeUnreadBody(t *testing.T) {
	t.Parallel()
	e := shared(t)
	e.push("q", queue.Job{Body: make([]byte, 500<<10)}, queue.Job{Body: nil})
	holds(t, e.run("consume", "q", "--drain", "--", "true").exits(exitDone).object(), map[string]any{"acked": 2})
}

func TestConsumeRetry(t *testing.T) {
	t.Parallel()
	e := shared(t)
	e.push("q", queue.Job{ID: "one"})
	c := e.run("consume", "q", "--drain", "--backoff", "10ms", "--", "sh", "-c", `test $LUATOMIC_ATTEMPT = 3`)
	holds(t, c.exits(exitDone).object(), map[string]any{"acked": 1, "retried": 2, "dead": 0})
	require.Contains(t, c.stderr.String(), `job "one", attempt 2: exit code 1`)
}

func TestConsumeDead(t *testing.T) {
	t.Parallel()
	e := shared(t)
	e.push("q", queue.Job{ID: "one"})
	c := e.run("consume", "q", "--drain", "--backoff", "0", "--attempts", "2", "--", "sh", "-c", "kill -9 $$")
	holds(t, c.exits(exitDone).object(), map[string]any{"acked": 0, "retried": 1, "dead": 1})
	require.Contains(t, c.stderr.String(), `attempt 2: killed by signal 9 (killed)`)
	require.Equal(t, 1, e.stats("q").Dead)
}

// The command trims the dead set to what the application has stored, and not at all where nothing is stored. The flag
// is a bound of its own, which the queue then has.
func TestConsumeDeletesNoDeadJobThatAnApplicationKeeps(t *testing.T) {
	t.Parallel()
	e, c := shared(t), luatomictest.Client(t)
	q := e.queue("q")
	dead := make([]redis.Z, 10_010)
	for i := range dead {
		dead[i] = redis.Z{Score: float64(i + 1), Member: strconv.Itoa(i)}
	}
	require.NoError(t, c.ZAdd(t.Context(), e.prefix+"{q}:d", dead...).Err())
	die := func(flags ...string) int {
		e.push("q", queue.Job{})
		args := append([]string{"consume", "q", "--drain", "--attempts", "1"}, flags...)
		e.run(append(args, "--", "false")...).exits(exitDone)
		return e.stats("q").Dead
	}
	require.Equal(t, 10_011, die(), "nothing is stored")
	app, err := queue.New(c, q.Name(), &queue.Options{Prefix: e.prefix, Dead: queue.DeadLimits{Jobs: 10_005}})
	require.NoError(t, err)
	_, err = app.Consume(t.Context(), &queue.ConsumeOptions{Drain: true}, nop)
	require.NoError(t, err)
	require.Equal(t, 10_005, die())
	require.Equal(t, 10_006, die("--dead", "-1"))
	require.Equal(t, 10_007, die())
	require.Equal(t, 10_001, die("--dead", "10001"))
	require.Equal(t, 10_001, die())
	e.run("consume", "q", "--dead", "-2", "--", "true").exits(exitUsage)
}

func nop(context.Context, *queue.Delivery) error { return nil }

func TestConsumeNoSuchCommand(t *testing.T) {
	t.Parallel()
	e := shared(t)
	e.push("q", queue.Job{})
	c := e.run("consume", "q", "--drain", "--", "no-such-command").exits(exitFailed)
	require.Contains(t, c.stderr.String(), `luatomic: cannot run "no-such-command": executable file not found`)
	require.Equal(t, 1, e.stats("q").Ready)
}

// untilFile is a shell script that says "started" and its process id, and ends when the file is there.
func untilFile(t *testing.T) (script, file string) {
	file = filepath.Join(t.TempDir(), "go-on")
	return fmt.Sprintf(`echo "started $$." >&2; until [ -e '%s' ]; do sleep 0.05; done; echo "ended" >&2`, file), file
}

func TestConsumeInterruptFinishes(t *testing.T) {
	t.Parallel()
	e := shared(t)
	script, file := untilFile(t)
	e.push("q", queue.Job{}, queue.Job{})
	c := e.start("consume", "q", "--", "sh", "-c", script)
	c.shows("started")
	c.signal(os.Interrupt)
	c.shows("stopping")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	holds(t, c.exits(exitInterrupted).object(), map[string]any{"acked": 1, "retried": 0, "dead": 0})
	require.Contains(t, c.stderr.String(), "ended")
	require.Equal(t, 1, e.stats("q").Ready)
}

func TestConsumeInterruptGrace(t *testing.T) {
	t.Parallel()
	e := shared(t)
	script, _ := untilFile(t)
	e.push("q", queue.Job{ID: "one"})
	c := e.start("consume", "q", "--grace", "50ms", "--", "sh", "-c", script)
	c.shows("started")
	c.signal(os.Interrupt)
	holds(t, c.exits(exitInterrupted).object(), map[string]any{"acked": 0, "retried": 0, "dead": 0, "returned": 1})
	require.Equal(t, 1, e.stats("q").Ready)
	goes(t, c.stderr.String(), "started ")
}

func TestConsumeInterruptTwice(t *testing.T) {
	t.Parallel()
	e := shared(t)
	script, _ := untilFile(t)
	e.push("q", queue.Job{ID: "one"}, queue.Job{ID: "two"}, queue.Job{ID: "three"})
	c := e.start("consume", "q", "-c", "2", "--grace", "1h", "--backoff", "1h", "--", "sh", "-c", script)
	luatomictest.Eventually(t, within, "two commands run", func() bool {
		return strings.Count(c.stderr.String(), "started") == 2
	})
	c.signal(os.Interrupt)
	c.shows("stopping")
	c.signal(os.Interrupt)
	holds(t, c.exits(exitInterrupted).object(), map[string]any{"acked": 0, "retried": 0, "dead": 0, "returned": 2})
	require.Equal(t, 3, e.stats("q").Ready)
	require.Contains(t, c.stderr.String(),
		`attempt 1: the command was killed by a second interrupt; it is delivered again`)
	require.NotContains(t, c.stderr.String(), "snoozed")
	goes(t, c.stderr.String(), "started ")
}

// A command that ignores SIGTERM is killed, and what it started with it.
func TestConsumeLeaseLost(t *testing.T) {
	t.Parallel()
	e := shared(t)
	e.push("q", queue.Job{ID: "one"})
	c := e.start("consume", "q", "--lease", "9s", "--", "sh", "-c",
		`trap '' TERM; sleep 1000 & echo "grandchild $!." >&2; wait; wait`)
	c.shows("grandchild")
	require.NoError(t, luatomictest.Client(t).Del(t.Context(), e.prefix+"{q}:l").Err())
	c.shows(`job "one", attempt 1: command killed: lease lost: job "one"; another worker may have the job`)
	goes(t, c.stderr.String(), "grandchild ")
	c.signal(os.Interrupt)
	holds(t, c.exits(exitInterrupted).object(), map[string]any{"acked": 0})
}

// A consumer that dies leaves its job to the next one.
func TestConsumeKilled(t *testing.T) {
	t.Parallel()
	e := shared(t)
	script, file := untilFile(t)
	e.push("q", queue.Job{ID: "one"})
	c := e.start("consume", "q", "--lease", "3s", "--", "sh", "-c", script)
	c.shows("started")
	require.NoError(t, c.cmd.Process.Kill())
	c.wait()
	require.NoError(t, os.WriteFile(file, nil, 0o600)) // the orphan ends
	holds(t, e.run("consume", "q", "--drain", "--", "sh", "-c", "test $LUATOMIC_ATTEMPT = 2").exits(exitDone).object(),
		map[string]any{"acked": 1})
}

// A server that goes away and comes back does not end a consumer.
func TestConsumeServerRestarts(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t, "--appendonly", "yes", "--appendfsync", "always")
	e := &env{t: t, url: server.URL()}
	c := e.start("consume", "q", "--", "cat")
	client := server.Client()
	q, err := queue.New(client, "q", nil)
	require.NoError(t, err)
	for _, body := range []string{"before.", "after."} {
		luatomictest.Eventually(t, within, "a push goes through", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			_, err := q.Push(ctx, queue.Job{ID: body, Body: []byte(body)})
			return err == nil
		})
		c.shows(body)
		if body == "before." {
			luatomictest.Eventually(t, within, "the job is finished", func() bool {
				st, err := q.Stats(t.Context())
				return err == nil && st.Leased == 0
			})
			server.Kill()
			server.Restart()
		}
	}
	luatomictest.Eventually(t, within, "the job is finished", func() bool {
		st, err := q.Stats(t.Context())
		return err == nil && st.Leased == 0
	})
	c.signal(os.Interrupt)
	holds(t, c.exits(exitInterrupted).object(), map[string]any{"acked": 2})
}

// A queue that cannot be promoted holds up no other.
func TestPromoteOfAQueueThatIsRefused(t *testing.T) {
	t.Parallel()
	e := shared(t)
	e.push("c", queue.Job{Delay: time.Millisecond})
	r := luatomictest.Client(t)
	require.NoError(t, r.Set(t.Context(), e.prefix+"{b}:s", "x", 0).Err())
	luatomictest.Eventually(t, within, "the job is due", func() bool {
		st, err := e.queue("c").Stats(t.Context())
		due, ok := st.NextDue.Get()
		return err == nil && ok && !due.After(st.Now)
	})
	c := e.run("promote", "a", "b", "c").exits(exitFailed)
	require.Contains(t, c.stderr.String(), "WRONGTYPE")
	require.Len(t, c.objects(), 2)
	holds(t, c.objects()[1], map[string]any{"queue": "c", "moved": 1})
}
