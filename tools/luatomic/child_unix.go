//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func signalGroup(cmd *exec.Cmd, sig syscall.Signal) {
	_ = syscall.Kill(-cmd.Process.Pid, sig) // the group may have ended
	if sig == syscall.SIGTERM {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGCONT) // a stopped process ends only when it is continued
	}
}

// groupRuns reports whether a process of the group is left. The group's number is
// not given to another one as long as that is so.
func groupRuns(cmd *exec.Cmd) bool { return syscall.Kill(-cmd.Process.Pid, 0) == nil }

// outcome reads a shell's exit code from a process' state.
func outcome(sys any) (code int, signaled bool) {
	status := sys.(syscall.WaitStatus)
	if status.Signaled() {
		return 128 + int(status.Signal()), true
	}
	return status.ExitStatus(), false
}
