//go:build !linux

package wake

import "time"

// nap sleeps, as exactly as the runtime's timers are.
func nap(d time.Duration) { time.Sleep(d) }
