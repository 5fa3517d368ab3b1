package main

import (
	"context"
	"encoding/json"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/actionhero"
	"github.com/luatomic/luatomic/luatomictest"
)

// hero is an environment without a prefix, on a channel of the test's own.
func hero(t *testing.T) (e *env, flags []string, o *actionhero.Options) {
	e = shared(t)
	channel := strings.TrimSuffix(e.prefix, ":")
	e.prefix = ""
	return e, []string{"--dialect=actionhero", "--channel", channel, "--token", "secret"},
		&actionhero.Options{Channel: channel, ServerToken: "secret", Timeout: 30 * time.Second}
}

// heroNode runs a node until the test ends.
func heroNode(t *testing.T, o *actionhero.Options) *actionhero.Node {
	t.Helper()
	n := actionhero.NewNode(luatomictest.Client(t), o)
	t.Cleanup(runHeroNode(n))
	require.NoError(t, n.Ready(t.Context()))
	return n
}

func TestHeroServe(t *testing.T) {
	t.Parallel()
	for era, name := range map[actionhero.Era]string{actionhero.Promise: "promise", actionhero.Promise18: "promise18",
		actionhero.Callback: "callback"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, flags, o := hero(t)
			o.Era, o.Methods = era, map[string]int{"api.echo.back": 2}
			c := e.start(append([]string{"rpc", "serve", "api.echo.back", "--era", name, "--connection", "conn",
				"--node", "me"}, append(flags, "--", "sh", "-c",
				`read -r in; case $in in *fail*) echo no >&2; exit 1;; esac; echo "{\"in\":$in,\"by\":\"$LUATOMIC_METHOD $LUATOMIC_CALLER $LUATOMIC_CONNECTION\"}"`)...)...)
			c.shows(`node me serves "api.echo.back" on channel`)
			o.ServerID = "caller"
			n := heroNode(t, o)
			for _, connection := range []string{"", "conn"} {
				r, err := n.DoCluster(t.Context(), "api.echo.back", []any{1, "é"}, connection)
				require.NoError(t, err)
				require.Equal(t, "me", r.ServerID)
				var got map[string]any
				require.NoError(t, r.Decode(&got))
				require.Equal(t, map[string]any{"in": []any{1.0, "é"}, "by": "api.echo.back caller " + connection}, got)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			_, err := n.DoCluster(ctx, "api.echo.back", []any{"fail", 1}, "")
			require.Error(t, err)
			luatomictest.Eventually(t, within, "the command has failed", func() bool {
				return strings.Contains(c.stderr.String(), "no\n")
			})
			c.signal(syscall.SIGINT)
			holds(t, c.exits(exitInterrupted).object(), map[string]any{"handled": 3, "failed": 1, "dropped": 0})
		})
	}
}

// With --text an only argument that is a string arrives as its text. A command that runs
// when the node is interrupted may finish.
func TestHeroServeText(t *testing.T) {
	t.Parallel()
	e, flags, o := hero(t)
	c := e.start(append([]string{"rpc", "serve", "api.upper", "--text"},
		append(flags, "--", "sh", "-c", "echo began >&2; sleep 0.5; tr a-z A-Z")...)...)
	c.shows("serves")
	n := heroNode(t, o)
	answer := make(chan string, 1)
	go func() {
		r, err := n.DoCluster(t.Context(), "api.upper", []any{"ann"}, "")
		if err != nil {
			answer <- err.Error()
			return
		}
		answer <- string(r.Raw)
	}()
	c.shows("began")
	c.signal(syscall.SIGINT)
	require.Equal(t, `"ANN"`, <-answer)
	holds(t, c.exits(exitInterrupted).object(), map[string]any{"handled": 1, "failed": 0})
}

func TestHeroCall(t *testing.T) {
	t.Parallel()
	for era, name := range map[actionhero.Era]string{actionhero.Promise: "promise", actionhero.Promise18: "promise18",
		actionhero.Callback: "callback"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, flags, o := hero(t)
			o.Era = era
			call := func(args ...string) *cli {
				more := append(flags, "--era", name, "--timeout", "30s")
				if name == "callback" {
					var list []any
					if json.Unmarshal([]byte(args[1]), &list) != nil {
						list = []any{1}
					}
					more = append(more, "--arity", string(rune('0'+len(list))))
				}
				return e.run(append(append([]string{"rpc", "call"}, args...), more...)...)
			}
			require.Equal(t,
				map[string]any{"error": map[string]any{"code": "no_responder",
					"message": `no responder: no other node is subscribed to the channel: "api.echo"`}},
				call("api.echo", "[]").exits(exitTryLater).object())

			n := heroNode(t, o)
			require.NoError(t, n.Handle("api.echo", func(_ context.Context, r *actionhero.Request) (any, error) {
				if len(r.Args) == 0 {
					return nil, nil
				}
				return r.Args, nil
			}))
			one, text, none := any([]any{1.0, []any{}}), any([]any{"text"}), any(nil)
			if era == actionhero.Callback { // the arguments of the callback
				one, text, none = []any{one}, []any{text}, []any{}
			}
			require.Equal(t, map[string]any{"result": one}, call("api.echo", "[1, []]").exits(exitDone).object())
			require.Equal(t, map[string]any{"result": text}, call("api.echo", `"text"`).exits(exitDone).object())
			require.Equal(t, map[string]any{"result": none}, call("api.echo", "[]").exits(exitDone).object())
			all := call("api.echo", "[7]", "--gather").exits(exitDone).objects()
			require.Len(t, all, 2)
			require.Equal(t, n.ServerID(), all[0]["node"])
			require.Equal(t, map[string]any{"answered": 1.0}, all[1])
			if era == actionhero.Callback {
				c := e.run(append([]string{"rpc", "call", "api.echo", "[1]", "--era=callback"},
					flags...)...).exits(exitUsage)
				require.Contains(t, c.stderr.String(), "1 arguments, but --arity says that api.echo takes 0")
			}
			luatomictest.Eventually(t, within, "the server has seen that the last command ended", func() bool {
				c := e.run(append([]string{"rpc", "nodes"}, flags[:3]...)...).exits(exitDone)
				return c.object()["subscribers"] == 1.0
			})
		})
	}
}

func TestHeroCallTimeout(t *testing.T) {
	t.Parallel()
	e, flags, o := hero(t)
	heroNode(t, o)
	c := e.run(append([]string{"rpc", "call", "api.nobody", "--timeout", "6s"}, flags...)...).exits(exitFailed)
	holds(t, c.object()["error"].(map[string]any), map[string]any{"code": "timeout"})
	c = e.run(append([]string{"rpc", "call", "nopath"}, flags...)...).exits(exitFailed)
	require.Contains(t, c.stdout.String(), "api.jobs.run")
}

func TestHeroLock(t *testing.T) {
	t.Parallel()
	e := shared(t)
	r, ctx := luatomictest.Client(t), t.Context()
	key := e.prefix + "actionhero:lock:x"
	inHero := "--dialect=actionhero"
	c := e.run("lock", "x", inHero, "--", "sh", "-c", `echo "$LUATOMIC_KEY $LUATOMIC_TOKEN"; exit 7`).exits(7)
	require.Regexp(t, "^"+key+" \\S+\n$", c.stdout.String())
	require.Zero(t, r.Exists(ctx, key).Val())

	other := actionhero.NewCache(r, &actionhero.CacheOptions{LockPrefix: e.prefix + "actionhero:lock:",
		LockName: "node-7"})
	ok, err := other.Lock(ctx, "x", time.Minute)
	require.NoError(t, err)
	require.True(t, ok)
	for _, wait := range []string{"0s", "3s"} {
		c = e.run("lock", "x", inHero, "--wait", wait, "--", "echo", "ran").exits(exitTryLater)
		require.Empty(t, c.stdout.String())
		require.Contains(t, c.stderr.String(), "by node-7, for ")
	}
	waiting := e.start("lock", "x", inHero, "--wait", "1m", "--ttl", "6s", "--", "sh", "-c", "echo ran; exec sleep 60")
	_, err = other.Unlock(ctx, "x")
	require.NoError(t, err)
	luatomictest.Eventually(t, within, "it runs", func() bool { return waiting.stdout.String() == "ran\n" })
	name := r.Get(ctx, key).Val()
	for end := time.Now().Add(7500 * time.Millisecond); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		require.Equal(t, name, r.Get(ctx, key).Val(), "it is kept beyond its time")
	}
	require.NoError(t, r.Set(ctx, key, "another", 0).Err())
	waiting.exits(exitFailed)
	require.Contains(t, waiting.stderr.String(), "the lock is not held any more; the command was killed")
	require.Equal(t, "another", r.Get(ctx, key).Val())
}
