package send

import (
	"sync"
	"time"
)

// idle is how long a goroutine waits for the next function, at least; at most twice as long.
const idle = 10 * time.Millisecond

// Runner is a function with its state. Reuse of a Runner allocates nothing; Go of a closure allocates the closure.
type Runner interface{ Run() }

// function makes a Runner of a func without another allocation.
type function func()

func (f function) Run() { f() }

// worker is a goroutine that waits.
type worker struct {
	next  chan Runner // closed to end the goroutine
	sweep uint64      // the number of sweeps when it began to wait
}

// waiting are the idle goroutines. The one that became idle last runs the next function, so that the others can end.
var waiting struct {
	mu     sync.Mutex
	stack  []*worker
	sweeps uint64 // so far
	timed  bool   // the timer of the next sweep runs
}

// Go runs f at once, in a goroutine that waits or in a new one. Like a function of its own goroutine, f may call
// runtime.Goexit, and must not leave it locked to a thread.
func Go(f func()) { Reuse(function(f)) }

// Reuse runs r as Go does its function.
func Reuse(r Runner) {
	if w := take(); w != nil {
		w.next <- r
		return
	}
	go serve(r)
}

// GoLast runs f as Go does, but after the goroutines that can run now on this processor. The scheduler runs a goroutine
// that was woken next, and moves the one that was next to the end of the processor's queue. So GoLast wakes a second
// goroutine, which does nothing. runtime.Gosched would also put f after goroutines that use up their time slices: tens
// of milliseconds in a program that computes.
func GoLast(f func()) {
	Go(f)
	Go(func() {})
}

func take() *worker {
	s := &waiting
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.stack)
	if n == 0 {
		return nil
	}
	w := s.stack[n-1]
	s.stack[n-1], s.stack = nil, s.stack[:n-1]
	return w
}

// serve runs functions until none comes for a while. While it waits it refers to no function.
func serve(r Runner) {
	w := &worker{next: make(chan Runner, 1)}
	for r != nil {
		r.Run()
		w.wait()
		r = <-w.next
	}
}

func (w *worker) wait() {
	s := &waiting
	s.mu.Lock()
	defer s.mu.Unlock()
	w.sweep = s.sweeps
	s.stack = append(s.stack, w)
	if !s.timed {
		s.timed = true
		time.AfterFunc(idle, sweep)
	}
}

// sweep ends the goroutines that were idle at the last sweep. One timer for all costs less than one for each.
func sweep() {
	s := &waiting
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for n < len(s.stack) && s.stack[n].sweep < s.sweeps {
		close(s.stack[n].next)
		n++
	}
	kept := copy(s.stack, s.stack[n:])
	clear(s.stack[kept:])
	s.stack = s.stack[:kept]
	s.sweeps++
	if s.timed = kept > 0; s.timed {
		time.AfterFunc(idle, sweep)
	}
}
