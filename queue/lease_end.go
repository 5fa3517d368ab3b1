package queue

import (
	"sync/atomic"
	"time"
)

// leaseEnd is when a lease is over by the clocks of the process: that long after its request was sent, less what two
// clocks may differ by. The server ends the lease later, so to learn of the end takes no network.
type leaseEnd struct {
	at atomic.Pointer[time.Time]
}

func (e *leaseEnd) set(sent time.Time, lease time.Duration) {
	at := sent.Add(lease - lease/1000)
	e.at.Store(&at)
}

// left is the time until the end, by the monotonic clock or by the wall clock, whichever says less: the monotonic
// clock stands still while the machine is suspended.
func (e *leaseEnd) left() time.Duration {
	now, at := time.Now(), *e.at.Load()
	return min(at.Sub(now), at.Round(0).Sub(now.Round(0)))
}
