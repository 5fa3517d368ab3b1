//go:build unix

package suspend

import "syscall"

// Stop stops the process: it keeps its memory and connections, and executes nothing.
func Stop(pid int) error { return syscall.Kill(pid, syscall.SIGSTOP) }

// Continue lets a stopped process run on.
func Continue(pid int) error { return syscall.Kill(pid, syscall.SIGCONT) }
