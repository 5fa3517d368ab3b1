package operate

import (
	"slices"
	"sync"
	"time"
)

// Meter makes rates of counters, from what was read of them before. The zero value is ready to use. It holds at most
// maxCounters counters.
type Meter struct {
	// Signed counters may fall. Others begin again where they fall: their process has restarted.
	Signed bool

	mu   sync.Mutex
	seen map[string][]sample
}

type sample struct {
	at time.Time
	n  int64
}

const (
	maxCounters = 10_000
	// Window is what a rate is about. Counters of processes come in reports, each 5 s: a window of two reports has
	// two of them, wherever it begins.
	Window = 10 * time.Second
	// atLeast is the shortest time that has a rate.
	atLeast = 4 * time.Second
	// step is how far apart the samples are that are kept.
	step = 500 * time.Millisecond
	keep = 2 * time.Minute
)

// Rate notes the value of a counter, and returns how fast it grew per second in the last ten seconds, or since the
// value before, if that is longer ago. It is not ok while too little is known.
func (m *Meter) Rate(name string, n int64, now time.Time) (rate float64, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	past := m.seen[name]
	if last := len(past) - 1; last >= 0 && (now.Sub(past[last].at) > keep || n < past[last].n && !m.Signed) {
		past = nil
	}
	// The first sample is the latest that is as old as the window.
	for len(past) > 1 && now.Sub(past[1].at) >= Window {
		past = slices.Delete(past, 0, 1)
	}
	if len(past) > 0 {
		if since := now.Sub(past[0].at); since >= atLeast {
			rate, ok = float64(n-past[0].n)/since.Seconds(), true
		}
	}
	if len(past) == 0 || now.Sub(past[len(past)-1].at) >= step {
		past = append(past, sample{now, n})
	}
	if m.seen == nil || len(m.seen) >= maxCounters && m.seen[name] == nil {
		m.seen = make(map[string][]sample)
	}
	m.seen[name] = past
	return rate, ok
}
