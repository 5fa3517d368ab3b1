package main

import (
	"os"
	"slices"
	"syscall"
)

// pass gives the signals to a command under a lock, until stop is called. If the command has no terminal, those of job
// control are among them: this process goes on, and keeps the lock while the command is stopped.
func (s *signals) pass(running *child) (stop func()) {
	further := passed
	if running.tty == nil {
		further = slices.Concat(passed, jobControl)
	}
	return s.forwardTo(func(sig os.Signal) {
		number, ok := sig.(syscall.Signal)
		if !ok {
			return
		}
		signalGroup(running.cmd, number)
		if number == suspended && inForeground() { // Ctrl-Z: the shell waits for this process
			suspend()
		}
	}, further...)
}
