package main

import (
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"time"
)

// killAfter is how long a child may take to end after SIGTERM.
const killAfter = 2 * time.Second

// errNoCommand is for the commands that run another one.
var errNoCommand = &usageError{"the command to run is missing; write it after --"}

// lookChild checks that there is a command line after -- and that its program
// exists, so that nothing is taken or locked for a command that cannot run.
func lookChild(s *session) (path string, err error) {
	if len(s.child) == 0 {
		return "", errNoCommand
	}
	path, err = exec.LookPath(s.child[0])
	if err != nil {
		var cause *exec.Error
		if errors.As(err, &cause) {
			err = cause.Err
		}
		return "", fmt.Errorf("cannot run %q: %w; check the name, and that it is on PATH", s.child[0], err)
	}
	return path, nil
}

// child is a running command in a process group of its own: a terminal's Ctrl-C
// does not reach it, and what it started ends with it.
type child struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	tty  *terminal     // lent to the child; nil if it has none

	// Valid once done is closed.
	code     int // exit code, 128 plus the number for a signal
	signaled bool
}

// startChild starts cmd. With lend, a terminal on its stdin is its own until it
// ends, so that it can read from it, and it does not outlive this process where the system can see to that.
func startChild(cmd *exec.Cmd, lend bool) (*child, error) {
	c := &child{cmd: cmd, done: make(chan struct{})}
	ownGroup(cmd)
	if lend {
		endWithThis(cmd)
		c.tty = lendTerminal(cmd)
	}
	// What the child leaves running may hold the pipes open.
	cmd.WaitDelay = killAfter
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(c.done)
		if c.tty != nil {
			c.code, c.signaled = c.tty.wait(cmd)
			return
		}
		_ = cmd.Wait() // the state has the exit code
		c.code, c.signaled = outcome(cmd.ProcessState.Sys())
	}()
	return c, nil
}

// err is nil if the child ended with exit code 0.
func (c *child) err() error {
	switch {
	case c.signaled:
		return fmt.Errorf("killed by signal %d (%v)", c.code-128, syscall.Signal(c.code-128))
	case c.code != 0:
		return fmt.Errorf("exit code %d", c.code)
	}
	return nil
}

// terminate ends the child's group, by force after killAfter, and returns when the
// child has ended. Call it only for a child that still runs.
func (c *child) terminate() {
	signalGroup(c.cmd, syscall.SIGTERM)
	deadline := time.Now().Add(killAfter)
	for groupRuns(c.cmd) && time.Now().Before(deadline) {
		time.Sleep(5 * time.Millisecond)
	}
	signalGroup(c.cmd, syscall.SIGKILL)
	<-c.done
}
