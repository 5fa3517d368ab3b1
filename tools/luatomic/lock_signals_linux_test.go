package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/luatomictest"
)

// lockWards are the ways in which a command holds a lock for a CMD.
var lockWards = map[string][]string{
	"native": nil, "write": {"--write"}, "plain": {"--dialect", "plain"},
	"redisinaction": {"--dialect", "redisinaction"}, "actionhero": {"--dialect", "actionhero"},
}

// A command under a lock gets each signal as what it is, and the lock is free when it has ended. No signal leaves the
// command behind without its lock.
func TestLockSignals(t *testing.T) {
	t.Parallel()
	signals := []syscall.Signal{
		syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGABRT, syscall.SIGUSR1,
		syscall.SIGUSR2,
	}
	for name, flags := range lockWards {
		for _, sig := range signals {
			if signal.Ignored(sig) { // the tests run under nohup, and so does the command
				t.Logf("%v is ignored here, and is not tried", sig)
				continue
			}
			t.Run(fmt.Sprint(name, " ", sig), func(t *testing.T) {
				t.Parallel()
				e := shared(t)
				holding := append([]string{"lock", "x"}, flags...)
				c := e.start(append(holding, "--", "sh", "-c",
					`echo "started $$." >&2; while :; do sleep 0.05; done`)...)
				c.shows("started")
				c.signal(sig)
				c.exits(128 + int(sig))
				goes(t, c.stderr.String(), "started ")
				e.run(append(holding, "--", "true")...).exits(exitDone) // it is free
			})
		}
	}
	e := shared(t)
	c := e.start("lock", "x", "--", "sh", "-c",
		`trap 'echo trapped; exit 3' INT; echo started >&2; while :; do sleep 0.05; done`)
	c.shows("started")
	c.signal(os.Interrupt)
	require.Equal(t, "trapped\n", c.exits(3).stdout.String())
	e.free("x")
}

// A shell or a supervisor that stops the process stops the command, and not the renewals: nobody else gets the lock
// meanwhile.
func TestAStoppedCommandKeepsItsLock(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"native", "write", "plain"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := shared(t)
			holding := append([]string{"lock", "x", "--ttl", "1s"}, lockWards[name]...)
			c := e.start(append(holding, "--", "sh", "-c",
				`trap 'exit 3' CONT; echo "started $$." >&2; while :; do sleep 0.05; done`)...)
			c.shows("started")
			group := c.group("started ")
			c.signal(syscall.SIGTSTP)
			luatomictest.Eventually(t, within, "the command is stopped", func() bool {
				state, err := exec.Command("ps", "-o", "state=", "-p", strconv.Itoa(group)).Output()
				return err == nil && strings.HasPrefix(string(state), "T")
			})
			e.run(append(holding, "--wait", "3s", "--", "true")...).exits(exitTryLater)
			c.signal(syscall.SIGCONT)
			c.exits(3)
		})
	}
}
