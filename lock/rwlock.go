package lock

import (
	"context"
	"errors"

	"github.com/luatomic/luatomic/internal/keys"
)

// RWLock is held by many readers or by one writer. Waiters are served in order of arrival, so readers that come after a
// waiting writer do not keep it out. The readers at the head of the queue are granted the lock together. Each reader
// has a lease of its own: when a reader dies, its lease ends, however many others read.
//
// An RWLock is a semaphore of which a reader takes one permit and a writer takes all. It is safe for concurrent use. It
// uses the same Options of its Locker as a Semaphore.
type RWLock struct{ set permitSet }

// RW returns the read-write lock of that name. It is independent of the plain lock of the same name. Nothing is sent.
func (l *Locker) RW(name string) *RWLock {
	rw := &RWLock{permitSet{locker: l, name: name}}
	rw.set.keys, rw.set.bad = keys.NewRWLock(l.opts.Prefix, l.opts.Tag, name)
	rw.set.bad = errors.Join(rw.set.bad, l.bad, l.plainOnly())
	return rw
}

const readerWeight, writerWeight = 1, maxPermits

// Try acquires the lock for writing if nobody holds it or waits for it, in one round trip. Otherwise it returns a
// *HeldError. Keys: rw:{name}, rwq:{name}. Cost: O(log n) of the readers.
func (rw *RWLock) Try(ctx context.Context) (*Lease, error) { return rw.try(ctx, writerWeight) }

// RTry acquires the lock for reading if no writer holds it and nobody waits for it, in one round trip. Otherwise it
// returns a *HeldError. Keys: rw:{name}, rwq:{name}. Cost: O(log n) of the readers.
func (rw *RWLock) RTry(ctx context.Context) (*Lease, error) { return rw.try(ctx, readerWeight) }

func (rw *RWLock) try(ctx context.Context, weight int) (*Lease, error) {
	lease, err := rw.set.newLease(weight, maxPermits)
	if err != nil {
		return nil, err
	}
	return lease.try(ctx)
}

// Acquire waits until it has the lock for writing or ctx ends, as Locker.Acquire does.
// Keys: rw:{name}, rwq:{name}. Cost: O(log n) of the readers and the waiters.
func (rw *RWLock) Acquire(ctx context.Context) (*Lease, error) { return rw.acquire(ctx, writerWeight) }

// RAcquire waits until it has the lock for reading or ctx ends, as Locker.Acquire does.
// Keys: rw:{name}, rwq:{name}. Cost: O(log n) of the readers and the waiters.
func (rw *RWLock) RAcquire(ctx context.Context) (*Lease, error) { return rw.acquire(ctx, readerWeight) }

func (rw *RWLock) acquire(ctx context.Context, weight int) (*Lease, error) {
	lease, err := rw.set.newLease(weight, maxPermits)
	if err != nil {
		return nil, err
	}
	return lease.acquire(ctx)
}

// Do runs f while it has the lock for writing, as Locker.Do does.
// Keys: rw:{name}, rwq:{name}. Cost: O(log n) of the readers and the waiters.
func (rw *RWLock) Do(ctx context.Context, f func(context.Context, *Lease) error) error {
	return rw.do(ctx, writerWeight, f)
}

// RDo runs f while it has the lock for reading, as Locker.Do does.
// Keys: rw:{name}, rwq:{name}. Cost: O(log n) of the readers and the waiters.
func (rw *RWLock) RDo(ctx context.Context, f func(context.Context, *Lease) error) error {
	return rw.do(ctx, readerWeight, f)
}

func (rw *RWLock) do(ctx context.Context, weight int, f func(context.Context, *Lease) error) error {
	lease, err := rw.set.newLease(weight, maxPermits)
	if err != nil {
		return err
	}
	return lease.do(ctx, f)
}

// RWInfo describes a read-write lock at the time that it was read.
type RWInfo struct {
	Name, Key string
	// Writing says whether a writer holds the lock. Readers is how many readers hold it.
	Writing bool
	Readers int
	// Fence is the last fence that was given.
	Fence int64
	// Holders are the holders whose leases end first, 500 at most.
	Holders []Permit
	// Waiting is the length of the queue, Waiters the notes of the first ten waiters.
	Waiting int
	Waiters []string
}

// Info reads the holders and the queue, in one script. It changes nothing.
// Keys: rw:{name}, rwq:{name}. Cost: O(n) of the readers.
func (rw *RWLock) Info(ctx context.Context) (RWInfo, error) {
	s, err := rw.set.info(ctx)
	return rwInfo(s), err
}

func rwInfo(s SemaphoreInfo) RWInfo {
	info := RWInfo{
		Name: s.Name, Key: s.Key, Writing: s.Used >= writerWeight, Fence: s.Fence,
		Holders: s.Holders, Waiting: s.Waiting, Waiters: s.Waiters,
	}
	if !info.Writing {
		info.Readers = s.Used
	}
	return info
}

// Revoke takes the lock from one holder, as Semaphore.Revoke does.
// Keys: rw:{name}, rwq:{name}. Cost: O(log n) of the readers.
func (rw *RWLock) Revoke(ctx context.Context, token string) (bool, error) {
	return rw.set.revoke(ctx, token)
}
