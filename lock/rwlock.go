package lock

import (
	"context"
	"errors"

	"github.com/luatomic/luatomic/internal/keys"
)

// RWLock is held by many readers or by one writer. Those who wait are served in
// order of arrival, so that readers who come after a waiting writer do not keep it
// out; the readers at the head of the queue are let in together. Each reader has a
// lease of its own: one that died is gone with it, however many others read.
//
// It is a semaphore of which a reader takes one part and a writer all. It is safe
// for concurrent use. Of LockerOptions it heeds those that a Semaphore does.
type RWLock struct{ permits }

// RW returns the read-write lock of that name. It has nothing to do with the plain
// lock of the same name. Nothing is sent.
func (l *Locker) RW(name string) *RWLock {
	rw := &RWLock{permits{locker: l, name: name}}
	rw.keys, rw.bad = keys.NewRWLock(l.opts.Prefix, l.opts.Tag, name)
	rw.bad = errors.Join(rw.bad, l.bad, l.plainOnly())
	return rw
}

const readerWeight, writerWeight = 1, maxPermits

// newLease makes the token of a reader or a writer.
func (rw *RWLock) newLease(weight int) (*Lease, error) { return rw.permit(weight, maxPermits) }

// Try acquires the lock for writing if nobody has it or waits for it, in one round
// trip, else returns a *HeldError. Keys: rw:{name}, rwq:{name}. Cost: O(log n) of
// the readers.
func (rw *RWLock) Try(ctx context.Context) (*Lease, error) { return rw.try(ctx, writerWeight) }

// RTry acquires the lock for reading if no writer has it or waits for it, in one
// round trip, else returns a *HeldError. Keys: rw:{name}, rwq:{name}. Cost: O(log n)
// of the readers.
func (rw *RWLock) RTry(ctx context.Context) (*Lease, error) { return rw.try(ctx, readerWeight) }

func (rw *RWLock) try(ctx context.Context, weight int) (*Lease, error) {
	lease, err := rw.newLease(weight)
	if err != nil {
		return nil, err
	}
	return lease.tryOnce(ctx)
}

// Acquire waits until it has the lock for writing or ctx ends, as Locker.Acquire
// does. Keys: rw:{name}, rwq:{name}. Cost: O(log n) of the readers and those who wait.
func (rw *RWLock) Acquire(ctx context.Context) (*Lease, error) { return rw.wait(ctx, writerWeight) }

// RAcquire waits until it has the lock for reading or ctx ends. Keys: rw:{name},
// rwq:{name}. Cost: O(log n) of the readers and those who wait.
func (rw *RWLock) RAcquire(ctx context.Context) (*Lease, error) { return rw.wait(ctx, readerWeight) }

func (rw *RWLock) wait(ctx context.Context, weight int) (*Lease, error) {
	lease, err := rw.newLease(weight)
	if err != nil {
		return nil, err
	}
	return lease.wait(ctx, rw.locker.opts.TTL)
}

// Do runs f while it has the lock for writing, as Locker.Do does.
func (rw *RWLock) Do(ctx context.Context, f func(context.Context, *Lease) error) error {
	return rw.do(ctx, writerWeight, f)
}

// RDo runs f while it has the lock for reading, as Locker.Do does.
func (rw *RWLock) RDo(ctx context.Context, f func(context.Context, *Lease) error) error {
	return rw.do(ctx, readerWeight, f)
}

func (rw *RWLock) do(ctx context.Context, weight int, f func(context.Context, *Lease) error) error {
	lease, err := rw.newLease(weight)
	if err != nil {
		return err
	}
	return lease.do(ctx, f)
}

// RWInfo is what is known of a read-write lock.
type RWInfo struct {
	Name, Key string
	// Writing says whether a writer has it, Readers how many read.
	Writing bool
	Readers int
	// Fence is the last one that was given.
	Fence int64
	// Holders are those whose leases end first, 500 at most.
	Holders []Permit
	// Waiting is the length of the queue, Waiters the notes of the first ten there.
	Waiting int
	Waiters []string
}

// Info reads who has the lock and who waits. It changes nothing.
// Keys: rw:{name}, rwq:{name}. Cost: O(n) of the readers.
func (rw *RWLock) Info(ctx context.Context) (RWInfo, error) {
	s, err := rw.info(ctx)
	return rwInfo(s), err
}

func rwInfo(s SemaphoreInfo) RWInfo {
	info := RWInfo{
		Name: s.Name, Key: s.Key, Writing: s.Used >= writerWeight, Fence: s.Fence, Holders: s.Holders, Waiting: s.Waiting, Waiters: s.Waiters,
	}
	if !info.Writing {
		info.Readers = s.Used
	}
	return info
}

// Revoke takes the lock from one holder, as Semaphore.Revoke does.
// Keys: rw:{name}, rwq:{name}.
func (rw *RWLock) Revoke(ctx context.Context, token string) (bool, error) {
	return rw.revoke(ctx, token)
}
