//go:build !linux

package notify

import "time"

// sleepExactly sleeps, as exactly as the runtime's timers are.
func sleepExactly(d time.Duration) { time.Sleep(d) }
