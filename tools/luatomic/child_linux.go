package main

import (
	"os/exec"
	"syscall"
)

// endWithThis lets the kernel kill the child when this process ends, in whatever way. It follows ownGroup.
func endWithThis(cmd *exec.Cmd) { cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL }
