package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// SIGTERM is no failure of a command that runs until it is stopped, unless it cuts something short.
func TestConsumeTerminated(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		flags  []string
		finish bool
		code   int
	}{
		"clean":      {nil, true, exitDone},
		"killed":     {[]string{"--grace", "50ms"}, false, exitInterrupted},
		"not at end": {[]string{"--drain"}, true, exitInterrupted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := shared(t)
			script, file := untilFile(t)
			e.push("q", queue.Job{}, queue.Job{})
			c := e.start(append(append([]string{"consume", "q"}, test.flags...), "--", "sh", "-c", script)...)
			c.shows("started")
			c.signal(syscall.SIGTERM)
			c.shows("stopping")
			if test.finish {
				require.NoError(t, os.WriteFile(file, nil, 0o600))
			}
			c.exits(test.code)
		})
	}
}

// A page that is ended while it serves a request has not finished what it had begun.
func TestWebTerminatedInARequest(t *testing.T) {
	t.Parallel()
	page := shared(t).start("web", "--write", "--listen", "127.0.0.1:0")
	host := strings.Trim(strings.TrimPrefix(page.first("url")["url"].(string), "http://"), "/")
	conn, err := net.Dial("tcp", host)
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_, err = fmt.Fprintf(conn,
		"POST /jobs?name=q HTTP/1.1\r\nHost: %s\r\nContent-Length: 9\r\nExpect: 100-continue\r\n"+
			"Content-Type: application/x-www-form-urlencoded\r\n\r\n", host)
	require.NoError(t, err)
	line, err := bufio.NewReader(conn).ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, line, "100 Continue")
	page.signal(syscall.SIGTERM)
	luatomictest.Eventually(t, within, "it stops listening", func() bool {
		other, err := net.Dial("tcp", host)
		if err == nil {
			_ = other.Close()
		}
		return err != nil
	})
	page.signal(syscall.SIGTERM)
	page.exits(exitInterrupted)
	require.Empty(t, page.stderr.String())
}

// Each signal by which a manager of services ends a command ends one that lasts, and is no failure of it. That of a
// terminal is: somebody wanted to see more.
func TestLastingCommandsTerminated(t *testing.T) {
	t.Parallel()
	for sig, code := range map[syscall.Signal]int{
		syscall.SIGTERM: exitDone, syscall.SIGQUIT: exitDone, syscall.SIGABRT: exitDone,
		syscall.SIGINT: exitInterrupted,
	} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			lastingEnd(shared(t), sig, code)
		})
	}
}

// lastingEnd checks that each command that lasts ends with that code.
func lastingEnd(e *env, sig syscall.Signal, code int) {
	t := e.t
	e.push("a", queue.Job{Delay: 20 * time.Millisecond})
	promoter := e.start("promote", "--watch", "a")
	luatomictest.Eventually(t, within, "it moves the job", func() bool { return len(promoter.objects()) > 0 })
	page := e.start("web", "--listen", "127.0.0.1:0")
	luatomictest.Eventually(t, within, "it listens", func() bool { return len(page.objects()) > 0 })
	counting := e.start("stats", "a", "--watch", "20ms")
	luatomictest.Eventually(t, within, "it counts", func() bool { return len(counting.objects()) > 0 })
	hero := *e
	hero.prefix = ""
	heroNode := hero.start("rpc", "serve", "api.m", "--dialect", "actionhero", "--channel",
		strings.TrimSuffix(e.prefix, ":"), "--", "cat")
	heroNode.shows("Ctrl-C ends it")
	worker := e.start("consume", "b", "--", "cat")
	sidekiq := e.start("consume", "c", "--dialect", "sidekiq7", "--", "cat")
	pushes := map[*cli][]string{worker: {"push", "b", "--raw"}, sidekiq: {"push", "c", "--dialect", "sidekiq7"}}
	for c, job := range pushes {
		e.with(`{"class":"A","args":["it runs"]}` + "\n").run(job...).exits(exitDone)
		c.shows("it runs")
	}
	for c, code := range map[*cli]int{
		promoter: code, page: code, e.serve("cat", "--", "cat"): code, heroNode: code, worker: code, sidekiq: code,
		counting: exitInterrupted,
	} {
		c.signal(sig)
		c.exits(code)
	}
}

// A node whose command is killed has not finished what it began.
func TestServeTerminatedInACall(t *testing.T) {
	t.Parallel()
	e := shared(t)
	node := e.serve("sleep", "--grace", "50ms", "--", "sh", "-c", sleeper)
	caller := e.start("rpc", "call", "sleep", "1", "--timeout", "1h")
	node.shows("\nchild ")
	node.signal(syscall.SIGTERM)
	caller.exits(exitFailed)
	node.exits(exitInterrupted)
}
