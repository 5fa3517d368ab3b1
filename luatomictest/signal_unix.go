//go:build unix

package luatomictest

import "syscall"

func pauseProcess(pid int) error { return syscall.Kill(pid, syscall.SIGSTOP) }

func resumeProcess(pid int) error { return syscall.Kill(pid, syscall.SIGCONT) }
