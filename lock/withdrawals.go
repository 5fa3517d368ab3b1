package lock

import (
	"sync"
	"time"
)

// withdrawals counts those that are under way. Their callers may have left. A program that ends then would cut them off,
// and its entry would stay in the queue until a hand-over passes it over.
type withdrawals struct {
	mu   sync.Mutex
	n    int
	none chan struct{} // closed when the last one has ended; nil while there is none
}

func (w *withdrawals) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.n == 0 {
		w.none = make(chan struct{})
	}
	w.n++
}

func (w *withdrawals) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.n--; w.n == 0 {
		close(w.none)
		w.none = nil
	}
}

// wait waits until none is under way, for that time at most.
func (w *withdrawals) wait(most time.Duration) {
	w.mu.Lock()
	none := w.none
	w.mu.Unlock()
	if none == nil {
		return
	}
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-none:
	case <-timer.C:
	}
}
