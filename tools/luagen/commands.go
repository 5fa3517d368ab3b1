package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

var errInterrupted = errors.New("interrupted")

// untilInterrupted is a context that Ctrl-C, SIGTERM, a closed terminal and a closed output end: a signal that ends
// luagen itself would leave a server, tests or a folder behind. Under nohup SIGHUP stays ignored.
func untilInterrupted() (context.Context, context.CancelFunc) {
	list := []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGPIPE}
	if !signal.Ignored(syscall.SIGHUP) {
		list = append(list, syscall.SIGHUP)
	}
	return signal.NotifyContext(context.Background(), list...)
}

// inFolder gives do a folder that goes with it, and a context that an interrupt ends.
func inFolder(pattern string, do func(ctx context.Context, dir string) error) error {
	ctx, stop := untilInterrupted()
	defer stop()
	dir, err := os.MkdirTemp("", pattern)
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err = do(ctx, dir); ctx.Err() != nil {
		return errInterrupted
	}
	return err
}

// commandOf is a command that is interrupted when ctx ends, as by Ctrl-C in a terminal, and killed where that does
// not end it.
func commandOf(ctx context.Context, words []string, variables ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Env = append(os.Environ(), variables...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// testsAnew are the words of a command, with the flag that has go test run what it has a result of.
func testsAnew(words []string) []string {
	if isGoTest(words) {
		return slices.Insert(slices.Clone(words), 2, "-count=1")
	}
	return words
}

// checkOutput refuses the file of a -o that has no folder: before a run, not behind it, and no folder is made that a
// typo names.
func checkOutput(file string) error {
	dir := filepath.Dir(file)
	if info, err := os.Stat(dir); file == "" || err == nil && info.IsDir() {
		return nil
	}
	return fmt.Errorf("-o %s: there is no folder %s: make it first, or name another", file, dir)
}
