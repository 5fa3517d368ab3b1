package send

import (
	"sync"
	"time"
)

// idle is how long a goroutine waits for the next function, at least; at most twice as long.
const idle = 10 * time.Millisecond

// Runner is a function with its state. Run costs no allocation where Go makes one for what its function refers to.
type Runner interface{ Run() }

// function is a Runner without an allocation of its own.
type function func()

func (f function) Run() { f() }

// worker is a goroutine that waits.
type worker struct {
	next  chan Runner // closed when it is to end
	round uint64      // in which it began to wait
}

// waiting are the goroutines that wait. The last one runs the next function, so that those that are not needed end.
var waiting struct {
	mu    sync.Mutex
	stack []*worker
	round uint64 // counts the sweeps
	timed bool   // the next sweep is
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

// Behind runs f as Go does, but after the goroutines that can run now on this processor. A goroutine that wakes is the
// next to run, and sends the one that was next to the end of the processor's queue: so a second one wakes, for nothing.
// After runtime.Gosched f would be behind all that use up their time as well: tens of milliseconds where a program
// computes.
func Behind(f func()) {
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

// serve runs functions until none comes for a while. While it waits it holds none.
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
	w.round = s.round
	s.stack = append(s.stack, w)
	if !s.timed {
		s.timed = true
		time.AfterFunc(idle, sweep)
	}
}

// sweep ends the goroutines that wait since before the last sweep. One timer for all costs less than one for each.
func sweep() {
	s := &waiting
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for n < len(s.stack) && s.stack[n].round < s.round {
		close(s.stack[n].next)
		n++
	}
	kept := copy(s.stack, s.stack[n:])
	clear(s.stack[kept:])
	s.stack = s.stack[:kept]
	s.round++
	if s.timed = kept > 0; s.timed {
		time.AfterFunc(idle, sweep)
	}
}
