package lock

import (
	"errors"
	"fmt"
	"time"
)

// ErrClosed is the error of an Acquire that waits when its Locker is closed, and of each acquire after that. It also
// ends Election.Observe.
var ErrClosed = errors.New("luatomic: locker closed")

// The errors of a lock that the caller does not hold.
var (
	// ErrHeld says that another owner holds the lock. It is returned as a *HeldError.
	ErrHeld = errors.New("luatomic: lock is held")
	// ErrLost says that a lease is over: it ended by the clock, or another owner has acquired the lock since. The work
	// under the lease may have overlapped with the work of another holder. The fences tell them apart.
	ErrLost = errors.New("luatomic: lock lost")
	// ErrRevoked is an ErrLost: ForceRelease, Steal or Revoke took the lock away.
	ErrRevoked = fmt.Errorf("%w: it was taken away", ErrLost)
	// ErrMaxHold is an ErrLost: the lock was held for Options.MaxHold.
	ErrMaxHold = fmt.Errorf("%w: held for MaxHold", ErrLost)
	// ErrReleased is the cause of a lease's context after Release.
	ErrReleased = errors.New("luatomic: lock released")
	// ErrNotReplicated says that fewer than Options.Replicas replicas confirmed the lock within ReplicaTimeout. The
	// lock was released again.
	ErrNotReplicated = errors.New("luatomic: lock not replicated")
)

// HeldError says who holds the lock and for how long. It matches ErrHeld.
type HeldError struct {
	// Name is the lock's name.
	Name string
	// Remaining is what was left of the holder's lease and its lock delay at the last attempt, by the server's clock.
	// It is 0 when both were over.
	Remaining time.Duration
	// Holder is the holder's Options.Note. During a lock delay it is the note of the holder whose lease ended without a
	// release.
	Holder string
}

// Error names the lock, the holder's note and the remaining time.
func (e *HeldError) Error() string {
	by := ""
	if e.Holder != "" {
		by = " by " + printable(e.Holder)
	}
	more := ""
	if e.Remaining > 0 {
		more = fmt.Sprintf(", for %v more unless extended", e.Remaining)
	}
	return fmt.Sprintf("%v: %q%s%s", ErrHeld, e.Name, by, more)
}

// Is matches ErrHeld.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// ErrNotALock says that the key of a lock, a semaphore or a read-write lock has something else in it: a record of
// another version of this library, or a value of another program. Nothing was changed. If no process uses the key,
// delete it.
var ErrNotALock = errors.New("luatomic: not a lock of this version")

// ErrLimit says that the weight of a permit is above the limit of the semaphore. That is the stored limit, or the limit
// of the call where none is stored. It is returned as a *LimitError.
var ErrLimit = errors.New("luatomic: weight above the limit of the semaphore")

// LimitError has the weight that was asked for and the limit of the semaphore. It matches ErrLimit.
type LimitError struct {
	// Name is the name of the semaphore.
	Name string
	// Weight is that of the call, Limit that of the semaphore.
	Weight, Limit int
}

// Error names the semaphore, the weight and the limit.
func (e *LimitError) Error() string {
	return fmt.Sprintf("%v: %q has %d, the permit weighs %d; ask for less, or Resize", ErrLimit, e.Name,
		e.Limit, e.Weight)
}

// Is matches ErrLimit.
func (e *LimitError) Is(target error) bool { return target == ErrLimit }
