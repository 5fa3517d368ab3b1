package send

import "time"

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
	MostTrips   = mostTrips
)

// HadCompany has the line take its last round trip for one of several.
func (l *Line[T]) HadCompany() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.company = true
}

// NoneIsLong has the line wait for its round trips, however long they take.
func (l *Line[T]) NoneIsLong() { l.longTrip = time.Hour }

// Long returns how many of the round trips under way take long.
func (l *Line[T]) Long() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.long
}
