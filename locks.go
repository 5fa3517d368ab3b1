package luatomic

import (
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/lua"
)

// The nouns of locks. Package lock documents their methods.
type (
	// Locker acquires locks by name; see [lock.Locker].
	Locker = lock.Locker
	// LockerOptions are the settings of a Locker; see [lock.Options].
	LockerOptions = lock.Options
	// Lease is the hold on a lock that was acquired, or on a permit of a Semaphore or RWLock; see [lock.Lease].
	Lease = lock.Lease
	// Semaphore lets a number of holders in at once; see [lock.Semaphore].
	Semaphore = lock.Semaphore
	// RWLock lets many readers in, or one writer; see [lock.RWLock].
	RWLock = lock.RWLock
	// Election lets one process of many lead; see [lock.Election].
	Election = lock.Election
	// Leadership is the lease of the process that leads; see [lock.Leadership].
	Leadership = lock.Leadership
	// HeldError reports who holds a lock, and for how long; see [lock.HeldError].
	HeldError = lock.HeldError
)

// Errors of locks.
var (
	// ErrHeld reports that another owner holds the lock; see [lock.ErrHeld].
	ErrHeld = lock.ErrHeld
	// ErrLost reports that a lease was over before its release; see [lock.ErrLost].
	ErrLost = lock.ErrLost
	// ErrRevoked is the ErrLost of a lock that an operator took away; see [lock.ErrRevoked].
	ErrRevoked = lock.ErrRevoked
	// ErrNotALock reports that the key of a lock holds something else; see [lock.ErrNotALock].
	ErrNotALock = lock.ErrNotALock
	// ErrReleased is the cause of a lease's context after Release; see [lock.ErrReleased].
	ErrReleased = lock.ErrReleased
)

// NewLocker returns a Locker; nil options mean the defaults. Nothing is sent and nothing starts. See [lock.New].
func NewLocker(client lua.Client, opts *LockerOptions) *Locker { return lock.New(client, opts) }
