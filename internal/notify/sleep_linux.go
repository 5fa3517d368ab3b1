package notify

import (
	"syscall"
	"time"
)

// sleepExactly sleeps for less than about a millisecond, exactly. A timer of the runtime ends on a whole millisecond
// of epoll's, half a millisecond late on average. The sleeping thread blocks no other goroutine: the runtime hands
// its work to another one.
func sleepExactly(d time.Duration) {
	for end := time.Now().Add(d); d > 0; d = time.Until(end) {
		ts := syscall.NsecToTimespec(int64(d))
		_ = syscall.Nanosleep(&ts, nil) // a signal ends it early: the loop sleeps again
	}
}
