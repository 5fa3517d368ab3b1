package merge

// Waiting returns how many items wait for a round trip.
func (l *Line[T]) Waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting) - l.gone
}

// MaxActive is how many round trips a line allows.
const MaxActive = maxActive
