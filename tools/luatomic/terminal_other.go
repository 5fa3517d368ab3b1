//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package main

import (
	"os"
	"os/exec"
)

func isTerminal(*os.File) bool { return false }

// terminal is never lent where job control is unknown.
type terminal struct{}

func lendTerminal(*exec.Cmd) *terminal { return nil }

func (*terminal) wait(*exec.Cmd) (code int, signaled bool) { return 1, false }
