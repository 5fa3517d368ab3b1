package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// ward is a command that runs a CMD for a piece of work, and what is true of that work when it has ended.
type ward struct {
	args  []string
	begin func(t *testing.T, e *env) *piece
	// channel: it has one in place of a prefix, which replaces the %s in args.
	channel bool
}

// piece is one piece of work: a job, or a call with its caller.
type piece struct {
	returned func(c *cli) // it is not done and has not failed
	done     func(c *cli)
}

// wards are all commands that run a CMD and outlive it.
var wards = map[string]ward{
	"consume": {args: []string{"consume", "q", "--attempts", "1"}, begin: func(t *testing.T, e *env) *piece {
		e.push("q", queue.Job{ID: "one"})
		return &piece{
			returned: func(c *cli) {
				holds(t, c.object(), map[string]any{"acked": 0, "retried": 0, "dead": 0, "returned": 1, "dropped": 0})
				jobs, err := e.queue("q").Peek(t.Context(), queue.Ready, 0, 9)
				require.NoError(t, err)
				require.Len(t, jobs, 1)
				require.Zero(t, jobs[0].Failures)
			},
			done: func(c *cli) {
				holds(t, c.object(), map[string]any{"acked": 1, "retried": 0, "dead": 0, "returned": 0, "dropped": 0})
			},
		}
	}},
	"sidekiq4": sidekiqWard("sidekiq4"), "sidekiq5": sidekiqWard("sidekiq5"), "sidekiq6": sidekiqWard("sidekiq6"),
	"sidekiq7": sidekiqWard("sidekiq7"), "sidekiq8": sidekiqWard("sidekiq8"),
	"serve": {args: []string{"rpc", "serve", "m", "--text"}, begin: func(t *testing.T, e *env) *piece {
		caller := e.start("rpc", "call", "m", "1", "--timeout", "1h")
		return &piece{
			returned: func(c *cli) {
				caller.fails(exitFailed, "node_lost", "may have run")
				holds(t, c.object(), map[string]any{"handled": 1})
			},
			done: func(*cli) { require.Equal(t, `{"result":""}`, caller.exits(exitDone).line()) },
		}
	}},
	"serve callback": {
		args: []string{
			"rpc", "serve", "api.m", "--text", "--dialect", "actionhero", "--era", "callback", "--channel", "%s",
		},
		channel: true,
		begin: func(t *testing.T, e *env) *piece {
			channel := e.channel
			listen := luatomictest.Client(t).Subscribe(t.Context(), channel)
			t.Cleanup(func() { _ = listen.Close() })
			_, err := listen.Receive(t.Context())
			require.NoError(t, err)
			caller := e.start("rpc", "call", "api.m", `["x"]`, "--dialect", "actionhero", "--era", "callback",
				"--arity", "1", "--channel", channel, "--timeout", "20s")
			answers := func() (n int) {
				for {
					select {
					case m := <-listen.Channel():
						if strings.Contains(m.Payload, `"doResponse"`) {
							n++
						}
					default:
						return n
					}
				}
			}
			return &piece{
				returned: func(*cli) { require.Zero(t, answers()); caller.signal(syscall.SIGTERM) },
				done:     func(*cli) { caller.exits(exitDone) },
			}
		},
	},
}

func sidekiqWard(dialect string) ward {
	return ward{args: []string{"consume", "q", "--dialect", dialect}, begin: func(t *testing.T, e *env) *piece {
		e.with(`{"class":"A","args":[1],"retry":false}`).run("push", "q", "--dialect", dialect).exits(exitDone)
		r := luatomictest.Client(t)
		payload := r.LIndex(t.Context(), e.prefix+"queue:q", 0).Val()
		require.NotEmpty(t, payload)
		return &piece{
			returned: func(c *cli) {
				holds(t, c.object(), map[string]any{"acked": 0, "retried": 0, "dead": 0, "returned": 1, "dropped": 0})
				require.Equal(t, []string{payload}, r.LRange(t.Context(), e.prefix+"queue:q", 0, -1).Val())
				require.Equal(t, redis.Nil, r.Get(t.Context(), e.prefix+"stat:failed").Err())
			},
			done: func(c *cli) {
				holds(t, c.object(), map[string]any{"acked": 1, "retried": 0, "dead": 0, "returned": 0, "dropped": 0})
			},
		}
	}}
}

// start starts the command with the script as its CMD, and waits until the script has the work.
func (w ward) start(t *testing.T, e *env, script string, flags ...string) (*cli, *piece) {
	t.Helper()
	if w.channel {
		e.channel, e.prefix = strings.TrimSuffix(e.prefix, ":"), ""
	}
	args := append([]string{}, w.args...)
	for i, a := range args {
		args[i] = strings.ReplaceAll(a, "%s", e.channel)
	}
	args = append(append(args, flags...), "--", "sh", "-c", script)
	if args[0] == "consume" {
		of := w.begin(t, e)
		c := e.start(args...)
		c.shows("started")
		return c, of
	}
	c := e.start(args...)
	c.shows("Ctrl-C ends it")
	of := w.begin(t, e)
	c.shows("started")
	return c, of
}

// group is the process group of the CMD, which says its id behind the word.
func (c *cli) group(word string) int {
	c.t.Helper()
	_, after, _ := strings.Cut(c.stderr.String(), word)
	pid, _, _ := strings.Cut(after, ".")
	n, err := strconv.Atoi(pid)
	require.NoError(c.t, err, c.stderr.String())
	return n
}

// Each signal, each way in which a CMD ends with it, and each command that runs one: what ends with the shutdown is no
// failure, and nothing outlives it.
func TestWhatEndsWithTheShutdownIsNoFailure(t *testing.T) {
	t.Parallel()
	const waits = `echo "started $$." >&2; while :; do sleep 0.05; done`
	const deaf = `trap "" TERM; echo "started $$." >&2; while :; do sleep 0.05; done`
	whole := func(sig syscall.Signal) func(c *cli) {
		return func(c *cli) { // what a manager does that ends all processes of a service
			c.signal(sig)
			require.NoError(c.t, syscall.Kill(-c.group("started "), sig))
		}
	}
	childFirst := func(c *cli) {
		require.NoError(c.t, syscall.Kill(-c.group("started "), syscall.SIGTERM))
		c.signal(syscall.SIGTERM)
	}
	grace := func(sig syscall.Signal) func(c *cli) { return func(c *cli) { c.signal(sig) } }
	rows := map[string]struct {
		script, grace string
		stop          func(c *cli)
	}{
		"TERM to all":             {waits, "1h", whole(syscall.SIGTERM)},
		"TERM to the child first": {waits, "1h", childFirst},
		"HUP to all":              {waits, "1h", whole(syscall.SIGHUP)},
		"QUIT to all":             {waits, "1h", whole(syscall.SIGQUIT)},
		"INT to all":              {`trap 'exit 130' INT; ` + waits, "1h", whole(syscall.SIGINT)},
		"an exit code of 143":     {`trap 'exit 143' TERM; ` + waits, "1h", whole(syscall.SIGTERM)},
		"TERM, grace over":        {waits, "50ms", grace(syscall.SIGTERM)},
		"TERM, deaf":              {deaf, "50ms", grace(syscall.SIGTERM)},
		"QUIT, grace over":        {waits, "50ms", grace(syscall.SIGQUIT)},
		"ABRT, grace over":        {waits, "50ms", grace(syscall.SIGABRT)},
		"HUP, grace over":         {waits, "50ms", grace(syscall.SIGHUP)},
		"INT twice": {waits, "1h", func(c *cli) {
			c.signal(os.Interrupt)
			c.shows("stopping")
			c.signal(os.Interrupt)
		}},
	}
	for name, w := range wards {
		for what, row := range rows {
			t.Run(name+", "+what, func(t *testing.T) {
				t.Parallel()
				e := shared(t)
				c, of := w.start(t, e, row.script, "--grace", row.grace)
				row.stop(c)
				c.exits(exitInterrupted)
				goes(t, c.stderr.String(), "started ")
				of.returned(c)
			})
		}
	}
}

// Further signals of a supervisor within the grace change nothing: only Ctrl-C is impatient.
func TestASupervisorThatRepeatsItsSignalIsNotImpatient(t *testing.T) {
	t.Parallel()
	for name, w := range wards {
		for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGABRT} {
			t.Run(fmt.Sprint(name, " ", sig), func(t *testing.T) {
				t.Parallel()
				e := shared(t)
				script, file := untilFile(t)
				c, of := w.start(t, e, script, "--grace", "1h")
				c.signal(sig)
				c.shows("stopping")
				for range 3 {
					c.signal(sig)
					c.signal(syscall.SIGHUP)
				}
				require.NoError(t, os.WriteFile(file, nil, 0o600))
				c.exits(exitDone)
				of.done(c)
			})
		}
	}
}

// The last way out, a third Ctrl-C, leaves no CMD behind.
func TestAThirdInterruptKillsWhatRuns(t *testing.T) {
	t.Parallel()
	for name, w := range wards {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const deaf = `trap "" TERM; echo "started $$." >&2; while :; do sleep 0.05; done`
			c, _ := w.start(t, shared(t), deaf, "--grace", "1h")
			c.signal(os.Interrupt)
			c.shows("stopping")
			c.signal(os.Interrupt)
			c.signal(os.Interrupt)
			c.exits(exitInterrupted)
			goes(t, c.stderr.String(), "started ")
		})
	}
}

// A worker that is quiet finishes what it has, takes nothing more, and stays until it is stopped.
func TestASignalQuietsAWorker(t *testing.T) {
	t.Parallel()
	for name, w := range wards {
		for _, sig := range []syscall.Signal{syscall.SIGTSTP, syscall.SIGUSR1} {
			if w.args[0] != "consume" {
				continue
			}
			t.Run(fmt.Sprint(name, " ", sig), func(t *testing.T) {
				t.Parallel()
				e := shared(t)
				script, file := untilFile(t)
				c, of := w.start(t, e, script)
				c.signal(sig)
				c.shows("quiet; no job is taken")
				more := w.begin
				if name == "consume" {
					e.push("q", queue.Job{ID: "two"})
				} else {
					more(t, e)
				}
				require.NoError(t, os.WriteFile(file, nil, 0o600))
				c.shows("ended")
				luatomictest.Eventually(t, within, "the job is done", func() bool { return e.settled(name) })
				c.signal(sig)
				require.Equal(t, 1, strings.Count(c.stderr.String(), "started"))
				c.signal(syscall.SIGTERM)
				c.exits(exitDone)
				of.done(c)
				require.Equal(t, 1, strings.Count(c.stderr.String(), "started"))
			})
		}
	}
}

// settled reports whether the only thing left is the job that was pushed last.
func (e *env) settled(name string) bool {
	if name == "consume" {
		st := e.stats("q")
		return st.Leased == 0 && st.Ready == 1
	}
	r, ctx := luatomictest.Client(e.t), e.t.Context()
	return r.LLen(ctx, e.prefix+"queue:q").Val() == 1
}

// A quiet worker that is stopped gives back what it has not finished, within the grace.
func TestAQuietWorkerStopsWithinItsGrace(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"consume", "sidekiq7"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := shared(t)
			script, _ := untilFile(t)
			c, of := wards[name].start(t, e, script, "--grace", "50ms")
			c.signal(syscall.SIGTSTP)
			c.shows("quiet")
			c.signal(syscall.SIGTERM)
			c.exits(exitInterrupted)
			goes(t, c.stderr.String(), "started ")
			of.returned(c)
		})
	}
}

// A reader of stderr that is gone ends CMD by SIGPIPE, and this program with it: no job has failed by that.
func TestAClosedOutputIsNoFailureOfAJob(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"consume", "sidekiq7"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, w := shared(t), wards[name]
			of := w.begin(t, e)
			began, goOn := filepath.Join(t.TempDir(), "began"), filepath.Join(t.TempDir(), "go-on")
			script := fmt.Sprintf(`: >'%s'; until [ -e '%s' ]; do sleep 0.05; done; echo late; echo late >&2`,
				began, goOn)
			reader, writer, err := os.Pipe()
			require.NoError(t, err)
			c := e.startWith(writer, append(append([]string{}, w.args...), "--", "sh", "-c", script)...)
			require.NoError(t, writer.Close())
			luatomictest.Eventually(t, within, "it began", func() bool { _, err := os.Stat(began); return err == nil })
			require.NoError(t, reader.Close())
			require.NoError(t, os.WriteFile(goOn, nil, 0o600))
			c.exits(exitBrokenPipe)
			of.returned(c)
		})
	}
}

// A CMD that dies by a signal while nothing stops has failed.
func TestASignalToACommandAloneIsItsFailure(t *testing.T) {
	t.Parallel()
	e := shared(t)
	e.push("q", queue.Job{})
	for _, sig := range []string{"TERM", "PIPE"} {
		c := e.run("consume", "q", "--attempts", "1", "--drain", "--", "sh", "-c", "kill -"+sig+" $$").exits(exitDone)
		holds(t, c.object(), map[string]any{"dead": 1, "returned": 0})
		e.push("q", queue.Job{})
	}
}
