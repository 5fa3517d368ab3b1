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
	first   os.Signal       // the one that ended stop
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
				case s.taken(sig):
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

// taken passes the signal to a child, or ends stop. It reports whether it did either.
func (s *signals) taken(sig os.Signal) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.forward != nil {
		s.forward(sig)
		return true
	}
	return s.interruptedBy(sig)
}

// forwardTo passes the signals to f until stop is called, and the one that came before, if any.
func (s *signals) forwardTo(f func(os.Signal)) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forward = f
	if s.first != nil {
		f(s.first)
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.forward = nil
	}
}

// interrupt is the first interrupt, without a signal.
func (s *signals) interrupt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.interruptedBy(os.Interrupt)
}

// interruptedBy ends stop, unless it has ended. The caller holds the lock.
func (s *signals) interruptedBy(sig os.Signal) bool {
	if s.first != nil {
		return false
	}
	s.first = sig
	s.endStop(errInterrupted)
	return true
}

// stoppedBy is the signal that ended stop, or nil.
func (s *signals) stoppedBy() os.Signal {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.first
}

func (s *signals) close() {
	signal.Stop(s.got)
	signal.Stop(s.pipe)
	close(s.done)
}
