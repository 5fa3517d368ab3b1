package lab

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"
)

// Worker is a process of a test.
type Worker struct {
	Cmd   *exec.Cmd
	Stdin io.Closer
	Out   *bufio.Scanner
}

func (w *Worker) Kill() {
	_ = w.Cmd.Process.Kill()
	_ = w.Cmd.Wait() // the error of the kill
}

// StopAt lets the worker run until finish, and returns the fault that it found.
func (w *Worker) StopAt(ctx context.Context, finish <-chan struct{}) error {
	select {
	case <-finish:
	case <-ctx.Done():
		w.Kill()
		return ctx.Err()
	}
	_ = w.Stdin.Close()
	var said []string
	for w.Out.Scan() {
		said = append(said, w.Out.Text())
	}
	if err := w.Cmd.Wait(); err != nil {
		return fmt.Errorf("worker: %w: %s", err, strings.Join(said, "\n"))
	}
	return nil
}

// Ends closes the process' standard input and returns its output.
func (w *Worker) Ends() string {
	_ = w.Stdin.Close()
	var said []string
	for w.Out.Scan() {
		said = append(said, w.Out.Text())
	}
	return strings.Join(said, "\n")
}
