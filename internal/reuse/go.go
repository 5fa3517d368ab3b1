// Package reuse runs functions in goroutines that stay for the next function.
//
// A new goroutine has a small stack, which grows in the client at every call: up to a third of what a caller spends. A
// goroutine that has made a call has the stack for the next one.
package reuse

import "time"

// idle is how long a goroutine waits for the next function.
const idle = 10 * time.Millisecond

// waiting leads to a goroutine that waits.
var waiting = make(chan func())

// Go runs f at once, in a goroutine that waits or in a new one. Like a function of its own goroutine, f may call
// runtime.Goexit, and must not leave it locked to a thread.
func Go(f func()) {
	select {
	case waiting <- f:
	default:
		go serve(f)
	}
}

// serve runs functions until none comes for a while. While it waits it holds none.
func serve(f func()) {
	timer := time.NewTimer(idle)
	defer timer.Stop()
	for {
		f()
		timer.Reset(idle)
		select {
		case f = <-waiting:
		case <-timer.C:
			return
		}
	}
}
