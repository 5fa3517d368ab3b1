package lab

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"
)

// worker is a process of its own.
type Worker struct {
	Cmd   *exec.Cmd
	Stdin io.Closer
	Out   *bufio.Scanner
}

func (w *Worker) Kill() {
	_ = w.Cmd.Process.Kill()
	_ = w.Cmd.Wait() // says that it was killed
}

// stopAt lets the worker go on until finish, and reports whether it found a fault.
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

// ends closes the process' standard input and returns what it says.
func (w *Worker) Ends() string {
	_ = w.Stdin.Close()
	var said []string
	for w.Out.Scan() {
		said = append(said, w.Out.Text())
	}
	return strings.Join(said, "\n")
}
