package main

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/luatomictest"
)

// into starts the program with stdout or stderr, whichever is named, into a pipe.
func (e *env) into(which string, args ...string) (c *cli, pipe *os.File) {
	e.t.Helper()
	read, write, err := os.Pipe()
	require.NoError(e.t, err)
	c = &cli{t: e.t, cmd: exec.Command(os.Args[0])}
	c.cmd.Args = append([]string{"luatomic"}, args...)
	c.cmd.Env = append(os.Environ(), asCLI+"=1", "REDIS_URL="+e.url)
	c.cmd.Env = append(c.cmd.Env, e.extra...)
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = e.stdin, &c.stdout, &c.stderr
	if which == "stdout" {
		c.cmd.Stdout = write
	} else {
		c.cmd.Stderr = write
	}
	c.cmd.WaitDelay = time.Second
	require.NoError(e.t, c.cmd.Start())
	e.t.Cleanup(func() { _ = c.cmd.Process.Kill(); _ = read.Close() })
	require.NoError(e.t, write.Close())
	return c, read
}

// As luatomic demo | head -1 does: no server and no folder stay behind.
func TestDemoWhoseReaderIsGone(t *testing.T) {
	t.Parallel()
	for _, which := range []string{"stdout", "stderr"} {
		code := exitDone
		for n := 0; code == exitDone && n < 10; n++ { // a demo can be over before this process closes the pipe
			dir := shortDir(t)
			c, pipe := (&env{t: t, extra: []string{"TMPDIR=" + dir}}).into(which, "demo")
			_, err := bufio.NewReader(pipe).ReadString('\n')
			require.NoError(t, err)
			require.NoError(t, pipe.Close())
			code = c.wait()
			empty(t, dir)
		}
		require.Equal(t, exitBrokenPipe, code)
	}
}

// Nobody would hear of the jobs that fail from here on: the consumer ends, and keeps none.
func TestConsumeWhoseReaderIsGone(t *testing.T) {
	t.Parallel()
	e := shared(t)
	holds(t, e.with(strings.Repeat("job\n", 200)).run("push", "q", "--raw").exits(exitDone).object(),
		map[string]any{"pushed": 200})
	c, pipe := e.into("stderr", "consume", "q", "--prefix", e.prefix, "--", "false")
	_, err := bufio.NewReader(pipe).ReadString('\n')
	require.NoError(t, err)
	require.NoError(t, pipe.Close())
	c.exits(exitBrokenPipe)
	require.Contains(t, c.object(), "retried")
	require.Zero(t, e.stats("q").Leased)
}

func TestServeWhoseReaderIsGone(t *testing.T) {
	t.Parallel()
	e := shared(t)
	c, pipe := e.into("stderr", "rpc", "serve", "m", "--prefix", e.prefix, "--", "sh", "-c", "echo said >&2")
	_, err := bufio.NewReader(pipe).ReadString('\n')
	require.NoError(t, err)
	require.NoError(t, pipe.Close())
	e.run("rpc", "call", "m")
	c.exits(exitBrokenPipe)
}

// A disk that is full.
func TestStdoutThatFails(t *testing.T) {
	t.Parallel()
	e := shared(t)
	e.known("q")
	for _, args := range [][]string{{"stats", "q"}, {"stats", "q", "--watch"}, {"push", "q"}, {"promote", "q"},
		{"promote", "p", "--watch"}, {"consume", "none", "--drain", "--", "true"}, {"demo"},
		{"help"}, {"help", "lock"}, {"push", "-h"}, {"queues", "-h"}} {
		if args[0] == "promote" {
			e.with(`{"body":1,"delay":"1ms"}`).run("push", "p").exits(exitDone)
		}
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Skip("no /dev/full")
		}
		c := &cli{t: t, cmd: exec.Command(os.Args[0])}
		c.cmd.Args = e.line(args)
		c.cmd.Env = append(os.Environ(), asCLI+"=1", "REDIS_URL="+e.url)
		c.cmd.Stdout, c.cmd.Stderr = full, &c.stderr
		require.NoError(t, c.cmd.Start())
		c.exits(exitFailed)
		require.NoError(t, full.Close())
		require.Equal(t, 1, strings.Count(c.stderr.String(), "luatomic: stdout: "), c.stderr.String())
	}
}

func TestOutageIsSaid(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"stats", "q", "--watch"}, {"promote", "q", "--watch"},
		{"consume", "q", "--", "true"}} {
		t.Run(args[0], func(t *testing.T) {
			t.Parallel()
			server := luatomictest.StartServer(t)
			e := &env{t: t, url: server.URL()}
			if args[0] == "stats" {
				e.known("q")
			}
			c := e.start(args...)
			if args[0] == "stats" {
				luatomictest.Eventually(t, within, "it counts", func() bool { return c.stdout.String() != "" })
			} else {
				client := server.Client()
				luatomictest.Eventually(t, within, "it looks", func() bool {
					return strings.Contains(client.Info(t.Context(), "commandstats").Val(), "evalsha")
				})
			}
			server.Kill()
			c.shows(server.URL() + " does not answer: ")
			server.Restart()
			c.shows(server.URL() + " answers again")
			c.signal(syscall.SIGINT)
			c.exits(exitInterrupted)
		})
	}
}

// What is watched goes on after an outage, also where the read is no script, which the package asks again by itself.
func TestWatchOutlastsAnOutage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"queues", "ls"}, {"stats", "--dialect", "sidekiq7"}, {"locks", "show", "x"}} {
		t.Run(args[0], func(t *testing.T) {
			t.Parallel()
			server := luatomictest.StartServer(t, "--appendonly", "yes", "--appendfsync", "always")
			e := &env{t: t, url: server.URL()}
			e.known("q")
			c := e.start(append(args, "--watch", "100ms")...)
			lines := func() int { return strings.Count(c.stdout.String(), "\n") }
			luatomictest.Eventually(t, within, "it prints", func() bool { return lines() > 0 })
			server.Kill()
			c.shows(server.URL() + " does not answer: ")
			server.Restart()
			c.shows(server.URL() + " answers again")
			before := lines()
			luatomictest.Eventually(t, within, "it prints again", func() bool { return lines() > before })
			c.signal(syscall.SIGINT)
			c.exits(exitInterrupted)
		})
	}
	// A refusal ends it, also after a success.
	server := luatomictest.StartServer(t)
	c := (&env{t: t, url: server.URL()}).start("locks", "show", "x", "--watch", "100ms")
	luatomictest.Eventually(t, within, "it prints", func() bool { return c.stdout.String() != "" })
	require.NoError(t, server.Client().LPush(t.Context(), "lock:{x}", 1).Err())
	require.Contains(t, c.exits(exitFailed).stderr.String(), "holds a list, not a string")
}

// A replica welcomes each new connection, and refuses each write.
func TestReplicaIsSaid(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t, "--replicaof", "127.0.0.1", "1")
	c := (&env{t: t, url: server.URL()}).with("job").start("push", "q", "--raw")
	c.shows(server.URL() + " is a replica and does not serve writes; name the master: READONLY")
	require.NotContains(t, c.stderr.String(), "until it does", "a call is repeated for some seconds")
}

func TestReachCure(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	for url, says := range map[string]string{
		server.URL() + "/99":                    "name a database that it has",
		server.URL() + "?addr=" + server.Addr(): "leave addr out of the URL",
		server.URL() + "?master_name=x":         "password of the sentinel, or leave master_name out",
	} {
		require.Contains(t, (&env{t: t, url: url}).run("stats", "q").exits(exitFailed).stderr.String(), says)
	}
}

// Two ids of bytes that are no text are not one id.
func TestPushNamesThatAreNoText(t *testing.T) {
	t.Parallel()
	e := shared(t)
	for _, line := range []string{"{\"body\":1,\"id\":\"\xff\"}", `{"body":1,"id":"\ud800"}`,
		"{\"body\":1,\"unique\":\"\xfe\"}"} {
		c := e.with(line).run("push", "q").exits(exitFailed)
		require.Contains(t, c.stderr.String(), "is not valid UTF-8")
	}
	require.Zero(t, e.stats("q").Ready)
}

func TestCallReadsStdin(t *testing.T) {
	t.Parallel()
	e := shared(t)
	read, write, err := os.Pipe()
	require.NoError(t, err)
	defer func() { _ = write.Close() }()
	waiting := *e
	waiting.stdin = read
	c := waiting.start("rpc", "call", "m", "-")
	require.NoError(t, read.Close())
	// More than a pipe holds: when it is written, the program reads.
	_, err = write.WriteString(strings.Repeat("[", 200_000))
	require.NoError(t, err)
	c.signal(syscall.SIGINT)
	c.exits(exitInterrupted)
	c = e.with(`"`+strings.Repeat("a", 3<<20)+`"`).run("rpc", "call", "m", "-").exits(exitFailed)
	holds(t, c.object()["error"].(map[string]any), map[string]any{"code": "too_large"})
	h, flags, _ := hero(t)
	c = h.with("[1]").run(append([]string{"rpc", "call", "api.x", "-"}, flags...)...).exits(exitTryLater)
	holds(t, c.object()["error"].(map[string]any), map[string]any{"code": "no_responder"})
}
