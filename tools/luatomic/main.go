// Luatomic is the command line of the module: queues, locks, calls and a demo, with JSON
// on stdout.
//
// Run it with -h for usage; docs/cli.md is its reference.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/internal/show"
	"github.com/luatomic/luatomic/lua"
)

// The exit codes.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2
	exitTryLater    = 75 // EX_TEMPFAIL of sysexits.h
	exitNotRunnable = 126
	exitNotFound    = 127
	exitInterrupted = 130
	exitBrokenPipe  = 141 // as if SIGPIPE had ended it
)

// errInterrupted ends a command that a signal stopped. Its messages are printed by then.
var errInterrupted = errors.New("interrupted")

// usageError is a mistake in the command line itself.
type usageError struct{ msg string }

func (e *usageError) Error() string { return e.msg }

func usagef(format string, args ...any) error {
	return &usageError{fmt.Sprintf(format, args...)}
}

// exitError chooses the exit code. With a nil err nothing more is printed.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return fmt.Sprint(e.err) }
func (e *exitError) Unwrap() error { return e.err }

func main() {
	// go-redis reports each failed dial by itself; the commands report it once, with
	// the cure.
	redis.SetLogger(silence{})
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	s, cmd, err := parseCommand(args, stdout, stderr)
	switch {
	case errors.Is(err, errHelp):
		return exitDone
	case err != nil:
		return conclude(stderr, cmd, err)
	}
	s.signals = watchSignals(s.children.kill)
	defer s.signals.close()
	defer s.children.kill() // whatever the way out, no command outlives it
	if err = cmd.run(s); errors.Is(err, errInterrupted) && s.drained() {
		err = nil
	}
	s.mu.Lock()
	lost := s.lost
	s.mu.Unlock()
	var chosen *exitError
	switch {
	case lost == nil || errors.As(err, &chosen):
	case errors.Is(lost, syscall.EPIPE):
		return exitBrokenPipe // the reader has closed the output: print nothing
	case err == nil || errors.Is(err, errInterrupted):
		err = lost
	}
	return conclude(stderr, cmd, err)
}

// conclude reports how the command ended and turns it into the exit code.
func conclude(stderr io.Writer, cmd *command, err error) int {
	var chosen *exitError
	var wrong *usageError
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &chosen):
		if chosen.err != nil {
			complain(stderr, chosen.err)
		}
		return chosen.code
	case errors.Is(err, errInterrupted):
		return exitInterrupted
	case errors.As(err, &wrong), errors.Is(err, lua.ErrBadName):
		complain(stderr, err)
		if cmd != nil {
			fmt.Fprintf(stderr, "usage: %s\nmore:  luatomic %s -h\n", cmd.usageLine(), cmd.name)
		} else {
			fmt.Fprintf(stderr, "usage: %s\nmore:  luatomic help\n", synopsis)
		}
		return exitUsage
	}
	complain(stderr, err)
	return exitFailed
}

// complain writes an error and its cure as one line that starts with the program's name, once:
// the errors of the library begin with it too.
func complain(w io.Writer, err error) {
	fmt.Fprintf(w, "luatomic: %s\n", show.Message(messageText, withCure(err)))
}

// flagNames are the flags that set here what an error of the library names.
var flagNames = strings.NewReplacer(", or extend in time", "", "call Release again, or ", "",
	"queue.Options.Lease", "--lease", "Options.Keys", "--keys")

// oneLine is the text of an error without line ends and without the library's name.
func oneLine(err error) string {
	lines := strings.Split(err.Error(), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimPrefix(line, "luatomic: ")
	}
	return flagNames.Replace(strings.ReplaceAll(strings.Join(lines, "; "), ": luatomic: ", ": "))
}
