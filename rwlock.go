package luatomic

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/lua"
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

// Downgrade exchanges a writer's lease for a reader's, without a moment in between,
// and lets in the readers at the head of the queue. The writer's lease is then over
// with ErrReleased; the new one is not kept until Keep is called. ErrLost says that
// the writer's lease was over before. After any other error the writer's lease goes on
// if the server still knows it, and is lost else; see its Err.
// Keys: rw:{name}, rwq:{name}.
func (rw *RWLock) Downgrade(ctx context.Context, writer *Lease) (*Lease, error) {
	return rw.change(ctx, writer, readerWeight)
}

// TryUpgrade exchanges a reader's lease for a writer's if there is no other reader,
// past those who wait, else returns a *HeldError and leaves the reader's lease as it
// is. It never waits: two readers that wait for each other would do so for ever. Other
// errors are as for Downgrade.
// Keys: rw:{name}, rwq:{name}.
func (rw *RWLock) TryUpgrade(ctx context.Context, reader *Lease) (*Lease, error) {
	return rw.change(ctx, reader, writerWeight)
}

// change exchanges a lease for one of another weight.
func (rw *RWLock) change(ctx context.Context, from *Lease, weight int) (*Lease, error) {
	if from.key != rw.keys.Record {
		return nil, fmt.Errorf("luatomic: change %q: the lease is of %q", rw.name, from.name)
	}
	to, err := rw.newLease(weight)
	if err != nil {
		return nil, err
	}
	if err := from.Err(); err != nil {
		return nil, err
	}
	o := &rw.locker.opts
	from.setReleased(true) // a renewal that comes between does not find it lost
	start := time.Now()
	r, err := gen.SemChange(ctx, rw.locker.client, gen.SemChangeParams{
		Permits: rw.keys.Record, Queue: rw.keys.Queue, Former: from.token, Owner: to.token, TTL: o.TTL, Note: o.Note,
	})
	switch {
	case err != nil:
		return nil, rw.unchanged(ctx, from, to, err)
	case r.State == gen.SemChangeStateHeld:
		from.setReleased(false)
		return nil, &HeldError{Name: rw.name, Remaining: r.Remaining}
	case r.State == gen.SemChangeStateExpired:
		lost := fmt.Errorf("%w: %q has %s", ErrLost, rw.name, lossOf(false))
		from.end(lost)
		return nil, lost
	}
	from.end(ErrReleased)
	to.fence = r.Fence
	return to.taken(start, r.Remaining)
}

// unchanged gives back what a change without an answer may have got. The old lease goes
// on only where the server says so, and again when no change can come any more: it may
// be another's lock by now.
func (rw *RWLock) unchanged(ctx context.Context, from, to *Lease, err error) error {
	from.setReleased(false)
	if errors.Is(err, lua.ErrNotExecuted) {
		return to.failed(ctx, err, "")
	}
	held := from.Extend(detached(ctx))
	if held != nil {
		from.end(fmt.Errorf("%w: %q may have been exchanged", ErrLost, rw.name))
	}
	err = to.failed(ctx, err, "")
	if held == nil && from.Extend(detached(ctx)) != nil {
		from.end(fmt.Errorf("%w: %q may have been exchanged", ErrLost, rw.name))
	}
	return err
}

func (l *Lease) setReleased(is bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.released = is
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
