//go:build !unix

package main

import (
	"os/exec"
	"syscall"
)

// Without process groups a child is on its own, and what it started outlives it.

func ownGroup(*exec.Cmd) {}

func signalGroup(cmd *exec.Cmd, _ syscall.Signal) { _ = cmd.Process.Kill() }

func groupRuns(cmd *exec.Cmd) bool { return false }

func outcome(sys any) (code int, signaled bool) {
	if status, ok := sys.(interface{ ExitStatus() int }); ok {
		return status.ExitStatus(), false
	}
	return 1, false
}
