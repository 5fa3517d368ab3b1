//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package main

import (
	"os"
	"os/exec"
	"syscall"
)

func isTerminal(*os.File) bool { return false }

func sizeOf(*os.File) (columns, lines int) { return 0, 0 }

func readKeys(*os.File) (restore func(), err error) { return func() {}, nil }

// Signals that a terminal here does not send.
const (
	resized   = syscall.Signal(-1)
	suspended = syscall.Signal(-2)
)

func suspend() {}

func inForeground() bool { return false }

// terminal is never lent where job control is unknown.
type terminal struct{}

func lendTerminal(*exec.Cmd) *terminal { return nil }

func (*terminal) wait(*exec.Cmd) (code int, signaled bool) { return 1, false }
