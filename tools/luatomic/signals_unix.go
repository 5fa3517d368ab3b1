//go:build unix

package main

import (
	"os"
	"syscall"
)

// effects is the one table of signals, of all commands. docs/deploy.md shows it.
var effects = map[os.Signal]effect{
	syscall.SIGINT:  escalates,
	syscall.SIGTERM: ends,
	syscall.SIGHUP:  ends,
	syscall.SIGQUIT: ends, // the STOPSIGNAL of many images
	syscall.SIGABRT: ends, // what a watchdog sends
	syscall.SIGTSTP: quiets,
	syscall.SIGUSR1: quiets, // Sidekiq 4's
}

// passed are the further signals that a command under a lock gets: it alone knows what they mean to it.
var passed = []os.Signal{syscall.SIGUSR1, syscall.SIGUSR2}

// jobControl are the signals of job control that a command under a lock gets if it has no terminal.
var jobControl = []os.Signal{syscall.SIGTSTP, syscall.SIGCONT}
