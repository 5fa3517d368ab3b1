//go:build !unix

package main

import (
	"os"
	"syscall"
)

// effects is the one table of signals, of all commands. docs/deploy.md shows it.
var effects = map[os.Signal]effect{os.Interrupt: escalates, syscall.SIGTERM: ends, syscall.SIGHUP: ends}

// No further signals are known here.
var passed, jobControl []os.Signal
