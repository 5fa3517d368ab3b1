package send

import "time"

// Waiting returns how many items wait for a round trip.
func (p *Pipeline[T]) Waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.waiting) - p.withdrawn
}

// Active returns how many round trips are under way.
func (p *Pipeline[T]) Active() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.active
}

// FewTrips and SharedTrips are how many round trips a pipeline allows.
const (
	FewTrips    = fewTrips
	SharedTrips = sharedTrips
	MostTrips   = mostTrips
)

// SetShared makes the pipeline treat its last round trip as one of several items.
func (p *Pipeline[T]) SetShared() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shared = true
}

// NoneIsOverdue makes every round trip count against the limit, however long it takes.
func (p *Pipeline[T]) NoneIsOverdue() { p.longTrip = time.Hour }

// Overdue returns how many round trips under way no longer count against the limit.
func (p *Pipeline[T]) Overdue() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.overdue
}
