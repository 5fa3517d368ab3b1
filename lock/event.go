package lock

import "time"

// Event is a change in the life of a lock, for metrics and logs.
type Event struct {
	// Kind is what happened.
	Kind EventKind
	// Name is the name of the lock, semaphore or read-write lock.
	Name string
	// Wait is how long the acquire took, Held how long the lease lasted.
	Wait, Held time.Duration
	// Waiting is the length of the queue when it was joined, with the new waiter.
	Waiting int
	// Err says why the lease was lost.
	Err error
}

// EventKind says what happened to a lock.
type EventKind uint8

const (
	// EventAcquired has Name and Wait.
	EventAcquired EventKind = iota + 1
	// EventQueued has Name and Waiting: an acquire has joined the queue.
	EventQueued
	// EventReleased has Name and Held: the server has confirmed a release.
	EventReleased
	// EventLost has Name, Held and Err: the lease ended before its release.
	EventLost
)

// String is the kind in lower case, such as "acquired".
func (k EventKind) String() string {
	if int(k) >= len(eventNames) {
		return "unknown"
	}
	return eventNames[k]
}

var eventNames = [...]string{"unknown", "acquired", "queued", "released", "lost"}

// observe passes the event to Options.Observe.
func (o *Options) observe(e Event) {
	if o.Observe != nil {
		o.Observe(e)
	}
}
