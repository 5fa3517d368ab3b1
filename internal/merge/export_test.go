package merge

// Waiting returns how many items wait for a round trip.
func (l *Line[T]) Waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting) - l.gone
}

// Active returns how many round trips are under way.
func (l *Line[T]) Active() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.active
}

// FewTrips and SharedTrips are how many round trips a line allows.
const (
	FewTrips    = fewTrips
	SharedTrips = sharedTrips
)

// HadCompany has the line take its last round trip for one of several.
func (l *Line[T]) HadCompany() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.company = true
}
