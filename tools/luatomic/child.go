package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
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

// children has the commands that run. What still runs when the program ends is killed.
type children struct {
	mu      sync.Mutex
	running map[*child]bool
	ended   bool
}

var errEnding = errors.New("the program ends")

// start starts the child, unless the program ends.
func (a *children) start(c *child) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		return errEnding
	}
	if err := c.cmd.Start(); err != nil {
		return err
	}
	if a.running == nil {
		a.running = make(map[*child]bool)
	}
	a.running[c] = true
	return nil
}

func (a *children) remove(c *child) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.running, c)
}

// kill ends all that runs, with what it started, and lets nothing start any more.
func (a *children) kill() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = true
	for c := range a.running {
		signalGroup(c.cmd, syscall.SIGKILL)
	}
}

// startChild starts cmd. With lend, a terminal on its stdin is its own until it
// ends, so that it can read from it, and it does not outlive this process where the system can see to that.
func (s *session) startChild(cmd *exec.Cmd, lend bool) (*child, error) {
	c := &child{cmd: cmd, done: make(chan struct{})}
	ownGroup(cmd)
	if lend {
		endWithThis(cmd)
		c.tty = lendTerminal(cmd)
	}
	// What the child leaves running may hold the pipes open.
	cmd.WaitDelay = killAfter
	if err := s.children.start(c); err != nil {
		return nil, err
	}
	go func() {
		defer close(c.done)
		defer s.children.remove(c)
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

// unfinishedError is why a CMD has not finished its work, where that is no failure of it: the end of this program has
// ended it.
type unfinishedError struct{ why string }

func (e *unfinishedError) Error() string { return e.why }

// await returns how a CMD has ended. It kills the CMD when ctx ends, or when commands may run no longer. An
// *unfinishedError means that its work is neither done nor failed.
func (s *session) await(ctx context.Context, running *child) error {
	select {
	case <-running.done:
		if s.endedWithThis(running) {
			s.cut.Store(true)
			return &unfinishedError{fmt.Sprintf("%v, with this program", running.err())}
		}
		return running.err()
	case <-ctx.Done():
		s.kill(running)
		return fmt.Errorf("command killed: %w", context.Cause(ctx))
	case <-s.signals.over.Done():
		s.kill(running)
		if context.Cause(s.signals.over) == errGraceOver {
			return &unfinishedError{errGraceOver.Error()}
		}
		return &unfinishedError{"the command was killed by a second interrupt"}
	}
}

// stopping are the signals by which a supervisor or a terminal ends a whole group or service, and by which a closed
// output does.
var stopping = []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE}

// sameStop is how far apart the signals can arrive that one sender sends to this process and to its children.
const sameStop = time.Second

// endedWithThis reports whether what ends this program has ended the child too: a signal to the whole service, or a
// reader that has closed the output which both write to. A shell ends with 128 plus the number of the signal.
func (s *session) endedWithThis(running *child) bool {
	sig := syscall.Signal(running.code - 128)
	if !slices.Contains(stopping, sig) {
		return false
	}
	if sig == syscall.SIGPIPE {
		if running.cmd.Stderr == os.Stderr { // this write finds out whether it is the output that is closed
			s.note("luatomic: a command has written to where nobody reads (SIGPIPE)")
		}
		return s.signals.stop.Err() != nil
	}
	select {
	case <-s.signals.stop.Done():
		return true
	case <-time.After(sameStop):
		return false
	}
}
