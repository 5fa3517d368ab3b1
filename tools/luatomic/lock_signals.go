package main

import (
	"os"
	"os/signal"
	"slices"
	"syscall"
)

// holdPassed keeps the signals for pass, before the command is started.
func (s *signals) holdPassed() { s.hold(slices.Concat(passed, jobControl)...) }

// pass gives the signals to a command under a lock, until stop is called. If the command has no terminal, those of job
// control are among them: this process goes on, and keeps the lock while the command is stopped.
func (s *signals) pass(running *child) (stop func()) {
	if running.tty != nil && len(jobControl) > 0 { // without one, Reset is for all signals
		signal.Reset(jobControl...)
	}
	return s.forwardTo(func(sig os.Signal) {
		number, ok := sig.(syscall.Signal)
		if !ok || running.tty != nil && slices.Contains(jobControl, sig) {
			return
		}
		signalGroup(running.cmd, number)
		if number == suspended && inForeground() { // Ctrl-Z: the shell waits for this process
			suspend()
		}
	})
}
