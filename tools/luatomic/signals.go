package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// effect is what a signal does to every command. A command that has lent its signals to a child passes them on instead.
type effect int

const (
	ends      effect = iota + 1 // the first one ends stop; another one changes nothing
	escalates                   // a terminal's key: the first one ends stop, the second hard, the third the program
	quiets                      // ends quiet, in a command that can be quiet
)

// signals turns signals into contexts. The first that asks for an end ends stop, after which a command finishes what is
// in flight. A second interrupt ends hard, which cuts that short; the third ends the program. A supervisor repeats its
// signals without impatience, so that only interrupts count.
type signals struct {
	stop, hard context.Context
	// over ends when running commands may run no longer: with hard, or before, when bound says so.
	over context.Context
	// quiet ends when a worker may take nothing more.
	quiet context.Context

	got  chan os.Signal
	pipe chan os.Signal // never received from
	done chan struct{}

	endStop, endHard, endOver context.CancelCauseFunc
	endQuiet                  context.CancelFunc
	lastly                    func() // before the program ends at a third interrupt

	mu      sync.Mutex
	forward func(os.Signal) // takes the signals instead, when set
	first   os.Signal       // the one that ended stop
	holding bool            // further signals wait in held for forwardTo
	held    []os.Signal
}

// errGraceOver ends over.
var errGraceOver = errors.New("the command was killed: its grace is over")

func watchSignals(lastly func()) *signals {
	s := &signals{
		got: make(chan os.Signal, 8), pipe: make(chan os.Signal, 1), done: make(chan struct{}), lastly: lastly,
	}
	s.stop, s.endStop = context.WithCancelCause(context.Background())
	s.hard, s.endHard = context.WithCancelCause(context.Background())
	s.over, s.endOver = context.WithCancelCause(s.hard)
	s.quiet, s.endQuiet = context.WithCancel(context.Background())
	for sig, does := range effects {
		// Under nohup SIGHUP stays ignored. Otherwise a closed terminal would leave children
		// behind, which are in process groups of their own.
		if does != quiets && (sig != syscall.SIGHUP || !signal.Ignored(sig)) {
			signal.Notify(s.got, sig)
		}
	}
	// A closed output is an error of the write, which ends the command in order: the signal
	// would leave children, leases and a server behind.
	signal.Notify(s.pipe, syscall.SIGPIPE)
	go func() {
		for {
			select {
			case <-s.done:
				return
			case sig := <-s.got:
				s.handle(sig)
			}
		}
	}()
	return s
}

func (s *signals) handle(sig os.Signal) {
	switch taken := s.taken(sig); {
	case taken || effects[sig] != escalates:
	case s.hard.Err() == nil:
		s.endHard(errInterrupted)
	default:
		s.lastly()
		os.Exit(exitInterrupted)
	}
}

// taken passes the signal to a child, or ends stop or quiet. It reports whether it did.
func (s *signals) taken(sig os.Signal) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.forward != nil {
		s.forward(sig)
		return true
	}
	if does := effects[sig]; s.holding && does != ends && does != escalates {
		s.held = append(s.held, sig)
		return true
	}
	switch effects[sig] {
	case ends, escalates:
		return s.stoppedWith(sig)
	case quiets:
		s.endQuiet()
		return true
	}
	return false
}

// quiets lets the signals that quiet a worker do so, where the command is one. Elsewhere they have the system's effect.
func (s *signals) quiets() {
	for sig, does := range effects {
		if does == quiets {
			signal.Notify(s.got, sig)
		}
	}
}

// bound ends over when the grace after stop is over.
func (s *signals) bound(grace time.Duration) (release func()) {
	var timer *time.Timer
	kept := context.AfterFunc(s.stop, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		timer = time.AfterFunc(grace, func() { s.endOver(errGraceOver) })
	})
	return func() {
		kept()
		s.mu.Lock()
		defer s.mu.Unlock()
		if timer != nil {
			timer.Stop()
		}
	}
}

// hold keeps the further signals for forwardTo: one that arrives before the child is there would stop or end this
// process alone.
func (s *signals) hold(further ...os.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holding = true
	if len(further) > 0 {
		signal.Notify(s.got, further...)
	}
}

// forwardTo passes the signals to f until stop is called, and those that came before, if any.
func (s *signals) forwardTo(f func(os.Signal)) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forward, s.holding = f, false
	if s.first != nil {
		f(s.first)
	}
	for _, sig := range s.held {
		f(sig)
	}
	s.held = nil
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
	s.stoppedWith(os.Interrupt)
}

// stoppedWith ends stop, unless it has ended. The caller holds the lock.
func (s *signals) stoppedWith(sig os.Signal) bool {
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
