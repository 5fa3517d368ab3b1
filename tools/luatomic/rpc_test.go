package main

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// serve starts a node and waits until it can be called.
func (e *env) serve(args ...string) *cli {
	e.t.Helper()
	c := e.start(append([]string{"rpc", "serve"}, args...)...)
	c.shows(" serves ")
	return c
}

func (e *env) call(args ...string) *cli {
	e.t.Helper()
	return e.run(append([]string{"rpc", "call", "--timeout", "20s"}, args...)...)
}

// fails checks the error on stdout.
func (c *cli) fails(exit int, code, says string) {
	c.t.Helper()
	o := c.exits(exit).object()
	require.IsType(c.t, map[string]any{}, o["error"])
	holds(c.t, o["error"].(map[string]any), map[string]any{"code": code})
	require.Contains(c.t, o["error"].(map[string]any)["message"], says)
}

// line is stdout, which is one line.
func (c *cli) line() string { return strings.TrimSuffix(c.stdout.String(), "\n") }

// A call that is interrupted while the bus is joined has sent nothing, and ends as each interrupted command does.
func TestRPCInterruptedBeforeItIsSent(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	require.NoError(t, server.Client().Do(t.Context(), "ACL", "SETUSER", "u", "on", ">p", "~*", "+@all",
		"resetchannels").Err())
	e := &env{t: t, url: strings.Replace(server.URL(), "redis://", "redis://u:p@", 1)}
	for _, args := range [][]string{{"x"}, {"api.x", "--dialect", "actionhero"}} {
		c := e.start(append([]string{"rpc", "call", "--timeout", "60s"}, args...)...)
		c.shows("NOPERM")
		c.signal(os.Interrupt)
		c.fails(exitInterrupted, "canceled", "interrupted before anything was sent")
	}
}

// The nodes that --to is compared with are read before the call: what fails there is an outcome of the call too.
func TestRPCToWithoutTheRightToReadNodes(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	require.NoError(t, server.Client().Do(t.Context(), "ACL", "SETUSER", "u", "on", ">p", "~*", "&*", "+@all",
		"-evalsha_ro").Err())
	e := &env{t: t, url: strings.Replace(server.URL(), "redis://", "redis://u:p@", 1)}
	e.call("x", "1", "--to", "n").fails(exitFailed, "not_sent", "rpc_nodes")
}

func TestRPC(t *testing.T) {
	t.Parallel()
	e := shared(t)
	e.serve("cat", "--", "cat")
	e.serve("upper", "--text", "--", "tr", "a-z", "A-Z")
	e.serve("none", "--", "sh", "-c", `[ "$(cat)" = null ]`)
	body := `{"id":12345678901234567890,"list":[1.0,[]],"text":"<&> ä"}`
	require.Equal(t, `{"result":`+body+`}`, e.call("cat", body).exits(exitDone).line())
	require.Equal(t, `{"result":`+body+`}`, e.with(" "+body+"\n").call("cat", "-").exits(exitDone).line())
	require.Equal(t, `{"result":"A <&> \"Ä\"\nB"}`, e.call("upper", `"a <&> \"Ä\"\nb"`).exits(exitDone).line())
	require.Equal(t, `{"result":"{\"A\": 1}"}`, e.call("upper", `{"a": 1}`).exits(exitDone).line())
	require.Equal(t, `{"result":null}`, e.call("none").exits(exitDone).line())
}

// A body near the limit goes through a command that writes as it reads, and through
// one that reads nothing.
func TestRPCLargeBodies(t *testing.T) {
	t.Parallel()
	e := shared(t)
	e.serve("cat", "--", "cat")
	e.serve("unread", "--", "true")
	e.serve("endless", "--", "yes")
	body := `"` + strings.Repeat("x", 900_000) + `"`
	require.Equal(t, `{"result":`+body+`}`, e.with(body).call("cat", "-").exits(exitDone).line())
	require.Equal(t, `{"result":null}`, e.with(body).call("unread", "-").exits(exitDone).line())
	e.call("endless", "1").fails(exitFailed, "too_large", "larger than 1048576 bytes")
	e.with(`"`+strings.Repeat("x", queue.MaxBatchBytes)+`"`).call("cat", "-").fails(exitFailed, "too_large", "1046528")
}

func TestRPCErrorsOfTheCommand(t *testing.T) {
	t.Parallel()
	e := shared(t)
	c := e.serve("fail", "--", "sh", "-c", `echo >&2; echo "  no such user" >&2; echo second >&2; exit 3`)
	e.serve("silent", "--", "sh", "-c", "exit 4")
	e.serve("busy", "--", "sh", "-c", "echo full >&2; exit 75")
	e.serve("signal", "--", "sh", "-c", "kill -9 $$")
	text := e.serve("words", "--", "echo", "two words")
	e.serve("bytes", "--text", "--", "printf", `\377`)
	gone := filepath.Join(t.TempDir(), "gone")
	require.NoError(t, os.WriteFile(gone, []byte("#!/bin/sh\n"), 0o700))
	e.serve("gone", "--", gone)
	require.NoError(t, os.Remove(gone))

	e.call("fail", "1").fails(exitFailed, "error", "no such user")
	c.shows("\nsecond\n")
	e.call("silent", "1").fails(exitFailed, "error", "exit code 4")
	e.call("busy", "1").fails(exitTryLater, "try_later", "full")
	e.call("signal", "1").fails(exitFailed, "error", "killed by signal 9")
	e.call("words", "1").fails(exitFailed, "bad_result", "not JSON")
	text.shows("rpc serve --text makes a string of it")
	e.call("bytes", "1").fails(exitFailed, "bad_result", "UTF-8")
	e.call("gone", "1").fails(exitFailed, "internal", "cannot be started")
	c.signal(os.Interrupt)
	holds(t, c.exits(exitInterrupted).object(), map[string]any{"handled": 1, "failed": 1, "late": 0})
}

func TestRPCEnvironment(t *testing.T) {
	t.Parallel()
	e := shared(t)
	e.serve("env", "--text", "--", "sh", "-c",
		`echo "$LUATOMIC_METHOD|$LUATOMIC_CALL|$LUATOMIC_ATTEMPT|$(( $LUATOMIC_DEADLINE - $(date +%s)000 ))"`)
	var got struct{ Result string }
	require.NoError(t,
		json.Unmarshal([]byte(e.call("env", "1", "--key", "k", "--timeout", "30s").exits(exitDone).line()), &got))
	require.Regexp(t, `^env\|k3:env:kK\|1\|(1\d|2\d|3[01])\d\d\d$`, got.Result)
	// The same key: the same result, although time has passed.
	var again struct{ Result string }
	require.NoError(t, json.Unmarshal([]byte(e.call("env", "1", "--key", "k").exits(exitDone).line()), &again))
	require.Equal(t, got, again)
}

func TestRPCNobodyServes(t *testing.T) {
	t.Parallel()
	e := shared(t)
	c := e.call("x", "1", "--bus", "b")
	c.fails(exitTryLater, "no_responder", "no node serves it")
	require.Contains(t, c.stderr.String(), "luatomic rpc nodes --bus b")
	e.call("x", "1", "--to", "web").fails(exitTryLater, "no_responder", "no lease")
	e.call("x", "1", "--connection", "c").fails(exitTryLater, "no_responder", "no connection")
	e.call("x", "1", "--gather").fails(exitTryLater, "no_responder", "no node serves it")
	e.call("x", "1", "--stream").fails(exitTryLater, "no_responder", "no node serves it")
	e.call("x", "1", "--cast").fails(exitTryLater, "no_responder", "no node serves it")
	c = e.run("rpc", "nodes").exits(exitDone)
	require.Empty(t, c.stdout.String())
	require.Contains(t, c.stderr.String(), `bus "default" has no node; check --bus and --prefix`)
}

// sleeper is a command with a child of its own that both run on.
const sleeper = `sleep 1000 & echo "grandchild $!." >&2; echo "child $$." >&2; wait`

// At the deadline, and when the caller is interrupted, the command ends with what it
// started.
func TestRPCCommandEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		timeout string
		exit    int
		code    string
		stop    bool
	}{"deadline": {"8s", exitFailed, "timeout", false}, "interrupted": {"1h", exitInterrupted, "canceled", true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := shared(t)
			node := e.serve("sleep", "--", "sh", "-c", sleeper)
			caller := e.start("rpc", "call", "sleep", "1", "--timeout", c.timeout)
			node.shows("\nchild ")
			if c.stop {
				caller.signal(os.Interrupt)
			}
			caller.fails(c.exit, c.code, "the handler may have run")
			goes(t, node.stderr.String(), "grandchild ")
			goes(t, node.stderr.String(), "\nchild ")
		})
	}
}

// A node that is interrupted answers the calls that it has begun, and is sent no others.
func TestRPCServeInterruptFinishes(t *testing.T) {
	t.Parallel()
	e := shared(t)
	script, file := untilFile(t)
	node := e.serve("wait", "--grace", "60s", "--", "sh", "-c", script+"; echo 7")
	caller := e.start("rpc", "call", "wait", "1", "--timeout", "1h")
	node.shows("started")
	node.signal(os.Interrupt)
	node.shows("running commands may finish within 1m0s; Ctrl-C again kills them")
	luatomictest.Eventually(t, within, "nobody serves it any more", func() bool {
		return e.call("wait", "1", "--timeout", "5s").wait() == exitTryLater
	})
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.Equal(t, `{"result":7}`, caller.exits(exitDone).line())
	holds(t, node.exits(exitInterrupted).object(), map[string]any{"handled": 1, "failed": 0, "late": 0})
}

func TestRPCServeInterruptKills(t *testing.T) {
	t.Parallel()
	for name, grace := range map[string]string{"grace": "50ms", "twice": "1h"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := shared(t)
			node := e.serve("sleep", "--grace", grace, "--", "sh", "-c", sleeper)
			caller := e.start("rpc", "call", "sleep", "1", "--timeout", "1h")
			node.shows("\nchild ")
			node.signal(os.Interrupt)
			if name == "twice" {
				node.shows("stopping")
				node.signal(os.Interrupt)
			}
			caller.fails(exitFailed, "node_lost", "may have run")
			holds(t, node.exits(exitInterrupted).object(), map[string]any{"handled": 1, "failed": 1})
			goes(t, node.stderr.String(), "grandchild ")
		})
	}
}

// A node that is killed is known to be lost, and another one runs what may run twice.
func TestRPCServeKilled(t *testing.T) {
	t.Parallel()
	e := shared(t)
	script, _ := untilFile(t)
	node := e.serve("wait", "--", "sh", "-c", script)
	once := e.start("rpc", "call", "wait", "1", "--timeout", "1m")
	twice := e.start("rpc", "call", "wait", "1", "--timeout", "1m", "--idempotent")
	luatomictest.Eventually(t, within, "both run", func() bool {
		return strings.Count(node.stderr.String(), "started") == 2
	})
	require.NoError(t, node.cmd.Process.Kill())
	e.serve("wait", "--", "sh", "-c", "echo $LUATOMIC_ATTEMPT")
	once.fails(exitFailed, "node_lost", "the handler may have run")
	require.Equal(t, `{"result":2}`, twice.exits(exitDone).line())
	for _, pid := range strings.Split(node.stderr.String(), "started ")[1:] {
		kill(t, pid)
	}
}

func TestRPCOverloaded(t *testing.T) {
	t.Parallel()
	e := shared(t)
	script, file := untilFile(t)
	node := e.serve("wait", "-c", "1", "--", "sh", "-c", script)
	first := e.start("rpc", "call", "wait", "1", "--timeout", "1h")
	node.shows("started")
	e.call("wait", "1").fails(exitTryLater, "overloaded", "are busy")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	first.exits(exitDone)
}

func TestRPCKeys(t *testing.T) {
	t.Parallel()
	e := shared(t)
	file := func(text string) string {
		name := filepath.Join(t.TempDir(), "keys")
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
		return name
	}
	oldKey, newKey := strings.Repeat("old.", 8), strings.Repeat("new.", 8)
	encoded := base64.StdEncoding.EncodeToString([]byte(oldKey))
	node := e.serve("cat", "--keys", file(newKey+"\nbase64:"+encoded+"\r\n"), "--", "cat")
	old := file(oldKey + "\n" + newKey)
	require.Equal(t, `{"result":1}`, e.call("cat", "1", "--keys", old).exits(exitDone).line())
	without := e.start("rpc", "call", "cat", "1", "--timeout", "6s")
	node.shows("frame without the signature of a known key")
	e.call("cat", "1", "--timeout", "6s", "--keys", file(strings.Repeat("wrong", 8))).fails(exitFailed, "timeout",
		"may have run")
	without.fails(exitFailed, "timeout", "may have run")

	for text, says := range map[string]string{"": "the file has no key", "secret": "at least 32",
		"base64:secret!": "the text after base64: is not base64"} {
		c := e.call("cat", "1", "--keys", file(text)).exits(exitFailed)
		require.Contains(t, c.stderr.String(), says)
		require.NotContains(t, c.stderr.String(), "secret")
	}
	require.NoError(t, os.Chmod(old, 0o644))
	if runtime.GOOS != "windows" {
		c := e.call("cat", "1", "--keys", old).exits(exitFailed)
		require.Contains(t, c.stderr.String(), "chmod 600")
	}
	c := e.call("cat", "1", "--keys", filepath.Join(t.TempDir(), "none")).exits(exitFailed)
	require.Contains(t, c.stderr.String(), "no such file or directory; name a file with one key a line")
}
