package main

import (
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/show"
	"github.com/luatomic/luatomic/luatomictest"
)

// alone is an environment on a server of its own: a search sees all its keys in one step.
func alone(t *testing.T) *env {
	return &env{t: t, url: luatomictest.StartServer(t).URL(), prefix: "app:"}
}

func TestTop(t *testing.T) {
	t.Parallel()
	e := alone(t)
	push := func(lines string) { e.with(lines).run("push", "mail").exits(exitDone) }
	push(`{"body":1,"id":"held"}`)
	script, file := untilFile(t)
	consumer := e.start("consume", "mail", "--", "sh", "-c", script)
	consumer.shows("started")
	node := e.serve("text.upper", "--text", "--node", "web-1", "--", "tr", "a-z", "A-Z")
	e.run("locks", "steal", "nightly", "--ttl", "10m", "--note", "maintenance").exits(exitDone)
	p := e.onTerminal(110, 30, "top", "--every", "100ms")
	for _, text := range []string{"prefix " + e.prefix, "QUEUE", "mail", "held", "nightly", "maintenance", "web-1.",
		"text.upper"} {
		p.seen(text)
	}
	push("{\"body\":1}\n{\"body\":2}\n{\"body\":3}")
	luatomictest.Eventually(t, within, "it counts", func() bool {
		return regexp.MustCompile(`\bmail +3 `).MatchString(p.picture.String())
	})
	p.drew()
	p.types("xq")
	p.ends(exitDone)
	require.Equal(t, p.before, p.mode())
	require.Empty(t, p.picture.String(), "the screen of the shell is back")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for _, c := range []*cli{consumer, node} {
		c.signal(syscall.SIGTERM)
		c.exits(exitDone)
	}
}

// Whatever ends it, the terminal is as it was.
func TestTopGivesTheTerminalBack(t *testing.T) {
	t.Parallel()
	ends := map[string]func(p *pty){
		"Ctrl-C":  func(p *pty) { p.types("\x03") },
		"SIGTERM": func(p *pty) { p.signal(syscall.SIGTERM) },
		"SIGHUP":  func(p *pty) { p.signal(syscall.SIGHUP) },
	}
	if signal.Ignored(syscall.SIGHUP) { // the tests run under nohup, and so does the command
		delete(ends, "SIGHUP")
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := shared(t).onTerminal(80, 24, "top")
			p.seen("no queue is in use")
			require.NotEqual(t, p.before, p.mode())
			end(p)
			p.ends(exitInterrupted)
			require.Equal(t, p.before, p.mode())
		})
	}
}

// Ctrl-Z gives the terminal to the shell, fg takes it again.
func TestTopSuspends(t *testing.T) {
	t.Parallel()
	p := shared(t).onTerminal(80, 24, "top")
	p.seen("no queue is in use")
	p.types("\x1a")
	p.stopped()
	luatomictest.Eventually(t, within, "the modes are those of the shell", func() bool {
		return len(p.picture.asked()) == 0
	})
	require.Equal(t, p.before, p.mode())
	p.signal(syscall.SIGCONT)
	p.drew()
	p.seen("no queue is in use")
	p.types("q")
	p.ends(exitDone)
}

func TestTopFollowsTheSizeOfTheTerminal(t *testing.T) {
	t.Parallel()
	e := alone(t)
	e.run("locks", "steal", strings.Repeat("long-name-", 5), "--ttl", "10m").exits(exitDone)
	p := e.onTerminal(120, 30, "top", "--every", "1s")
	p.seen("long-name-long-name-")
	p.picture.unbounded()
	p.resize(21, 4)
	luatomictest.Eventually(t, within, "the picture is smaller", func() bool {
		lines := strings.Split(strings.TrimSuffix(p.picture.String(), "\n"), "\n")
		for _, line := range lines {
			if show.Width(line) > 21 {
				return false
			}
		}
		return len(lines) <= 4
	})
	p.resize(120, 30)
	p.seen("long-name-long-name-")
	p.types("q")
	p.ends(exitDone)
}

// A server that is away is named in the picture, and what it had stays until it is back.
func TestTopOutlivesItsServer(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	e := &env{t: t, url: server.URL()}
	steal := func() {
		e.run("locks", "steal", "nightly", "--ttl", "10m").exits(exitDone)
	}
	steal()
	p := e.onTerminal(150, 24, "top", "--every", "100ms")
	p.seen("nightly")
	server.Kill()
	p.seen("the server does not answer: ")
	p.seen("it is asked again until it does; below is what it had ")
	p.seen("nightly")
	server.Restart()
	luatomictest.Eventually(t, within, "it recovers", func() bool {
		return !strings.Contains(p.picture.String(), "does not answer")
	})
	p.seen("no lock is held")
	steal()
	p.seen("nightly")
	server.Kill()
	p.seen("the server does not answer: ")
	begun := time.Now()
	p.types("q")
	p.ends(exitDone)
	require.Less(t, time.Since(begun), within/2)
}

func TestTopNeedsATerminalThatDraws(t *testing.T) {
	t.Parallel()
	e := shared(t)
	e.extra = []string{"TERM=dumb"}
	p := e.onTerminal(80, 24, "top")
	p.seen("luatomic: stdout is no terminal")
	p.ends(exitFailed)
}
