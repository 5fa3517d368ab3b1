package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// signals turns interrupts into contexts: the first ends stop, after which a
// command finishes what is in flight; the second ends hard, which cuts that short;
// the third ends the program.
type signals struct {
	stop, hard context.Context

	got  chan os.Signal
	pipe chan os.Signal // never received from
	done chan struct{}

	endStop context.CancelCauseFunc

	mu      sync.Mutex
	forward func(os.Signal) // takes the signals instead, when set
}

func watchSignals() *signals {
	s := &signals{got: make(chan os.Signal, 8), pipe: make(chan os.Signal, 1), done: make(chan struct{})}
	list := []os.Signal{os.Interrupt, syscall.SIGTERM}
	// Under nohup SIGHUP stays ignored. Otherwise a closed terminal would leave children
	// behind, which are in process groups of their own.
	if !signal.Ignored(syscall.SIGHUP) {
		list = append(list, syscall.SIGHUP)
	}
	stop, endStop := context.WithCancelCause(context.Background())
	hard, endHard := context.WithCancelCause(context.Background())
	s.stop, s.hard, s.endStop = stop, hard, endStop
	signal.Notify(s.got, list...)
	// A closed output is an error of the write, which ends the command in order: the signal
	// would leave children, leases and a server behind.
	signal.Notify(s.pipe, syscall.SIGPIPE)
	go func() {
		for {
			select {
			case <-s.done:
				return
			case sig := <-s.got:
				switch {
				case s.forwarded(sig):
				case stop.Err() == nil:
					endStop(errInterrupted)
				case hard.Err() == nil:
					endHard(errInterrupted)
				default:
					os.Exit(exitInterrupted)
				}
			}
		}
	}()
	return s
}

func (s *signals) forwarded(sig os.Signal) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.forward == nil {
		return false
	}
	s.forward(sig)
	return true
}

// forwardTo passes the signals to f from now on; nil ends that. It reports whether an
// interrupt came before.
func (s *signals) forwardTo(f func(os.Signal)) (interrupted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forward = f
	return s.stop.Err() != nil
}

// interrupt is the first interrupt, without a signal.
func (s *signals) interrupt() { s.endStop(errInterrupted) }

func (s *signals) close() {
	signal.Stop(s.got)
	signal.Stop(s.pipe)
	close(s.done)
}
