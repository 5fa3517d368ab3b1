package lock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/lua"
)

// Leases are several locks that were acquired at once.
type Leases []*Lease

// Release gives all of them back at once, so it takes 10 s at most as that of one does,
// and joins the errors.
func (ls Leases) Release(ctx context.Context) error {
	return ls.each(func(l *Lease) error { return l.Release(ctx) })
}

// each calls f for all of them at once.
func (ls Leases) each(f func(*Lease) error) error {
	errs := make([]error, len(ls))
	var calls sync.WaitGroup
	for i, l := range ls {
		calls.Go(func() { errs[i] = f(l) })
	}
	calls.Wait()
	return errors.Join(errs...)
}

// Err is the first loss among them, nil while all hold.
func (ls Leases) Err() error {
	for _, l := range ls {
		if err := l.Err(); err != nil {
			return err
		}
	}
	return nil
}

// Keep renews all of them; the context ends when the first is lost. See Lease.Keep.
func (ls Leases) Keep(ctx context.Context) context.Context {
	all, cancel := context.WithCancelCause(ctx)
	endWith := func(one context.Context) { cancel(context.Cause(one)) }
	for _, l := range ls {
		kept := l.Keep(all)
		context.AfterFunc(kept, func() { endWith(kept) })
	}
	return all
}

// maxLocks is how many locks AcquireAll takes.
const maxLocks = 100

// AcquireAll waits until it has all the locks, at most 100, or ctx ends. The leases
// are in the order of the names.
//
// Where LockerOptions.Tag puts the locks into one slot, they are acquired in one
// step. Else it is one after the other, in the order of their names. In both cases
// it holds nothing while it waits: it waits for the lock that it could not have,
// with a place in that lock's queue, and when that one is its own tries the others
// again. So two that want the same locks cannot block each other, but one that wants
// many may wait for long while others take them one at a time.
//
// Keys: those of each lock.
func (l *Locker) AcquireAll(ctx context.Context, names ...string) (Leases, error) {
	order := slices.Sorted(slices.Values(names))
	if len(names) == 0 || len(names) > maxLocks {
		return nil, fmt.Errorf("luatomic: acquire all: %w", &lua.RangeError{Field: "names", Value: fmt.Sprint(len(names)), Min: "1", Max: fmt.Sprint(maxLocks)})
	}
	if len(slices.Compact(slices.Clone(order))) < len(order) {
		return nil, fmt.Errorf("luatomic: acquire all: a name is there twice; name each lock once")
	}
	try := l.tryEach
	if l.opts.Tag != "" {
		try = l.tryAll
	}
	var first *Lease // the one that was waited for
	for {
		leases, blocked, err := try(ctx, order, first)
		if err == nil {
			return l.inOrder(leases, names), nil
		}
		if first != nil {
			err = errors.Join(err, l.giveUp(ctx, first))
		}
		var held *HeldError
		if !errors.As(err, &held) {
			return nil, err
		}
		if first, err = l.Acquire(ctx, blocked); err != nil {
			return nil, err
		}
	}
}

func (l *Locker) giveUp(ctx context.Context, lease *Lease) error {
	if err := lease.Release(ctx); err != nil && !errors.Is(err, ErrLost) {
		return err
	}
	return nil
}

func (l *Locker) giveUpAll(ctx context.Context, leases map[string]*Lease) error {
	all := Leases(slices.Collect(maps.Values(leases)))
	return all.each(func(lease *Lease) error { return l.giveUp(ctx, lease) })
}

func (l *Locker) inOrder(leases map[string]*Lease, names []string) Leases {
	out := make(Leases, len(names))
	for i, name := range names {
		out[i] = leases[name]
	}
	return out
}

// tryEach takes one lock after the other, and gives back those that it took when one
// is held.
func (l *Locker) tryEach(ctx context.Context, names []string, first *Lease) (map[string]*Lease, string, error) {
	leases := make(map[string]*Lease, len(names))
	for _, name := range names {
		if first != nil && first.name == name {
			leases[name] = first
			continue
		}
		lease, err := l.Try(ctx, name)
		if err == nil {
			leases[name] = lease
			continue
		}
		if first != nil {
			delete(leases, first.name) // it is given up later
		}
		return nil, name, errors.Join(err, l.giveUpAll(ctx, leases))
	}
	// The first may have ended while the others were taken.
	if first != nil {
		if err := first.Extend(ctx); err != nil {
			return nil, "", errors.Join(err, l.giveUpAll(ctx, leases))
		}
	}
	return leases, "", nil
}

// tryAll takes the locks in one step.
func (l *Locker) tryAll(ctx context.Context, names []string, first *Lease) (map[string]*Lease, string, error) {
	owner := first
	p := gen.LockAcquireAllParams{TTL: l.opts.TTL, Delay: l.opts.LockDelay, Note: l.opts.Note}
	leases := make(map[string]*Lease, len(names))
	for _, name := range names {
		lease, err := l.newLease(name)
		if err != nil {
			return nil, name, err
		}
		if owner == nil {
			owner = lease
		}
		lease.token = owner.token
		leases[name] = lease
		p.Locks = append(p.Locks, lease.key)
	}
	p.Owner = owner.token
	start := time.Now()
	r, err := gen.LockAcquireAll(ctx, l.client, p)
	if err == nil && r.Blocked == 0 {
		err = l.replicate(ctx, slices.Collect(maps.Values(leases))...)
	}
	switch {
	case err != nil:
		if !errors.Is(err, lua.ErrNotExecuted) {
			all := Leases(slices.Collect(maps.Values(leases)))
			err = errors.Join(err, all.each(func(lease *Lease) error { return lease.undo(ctx, "") }))
		}
		return nil, "", fmt.Errorf("luatomic: acquire all: %w", err)
	case r.Blocked > int64(len(names)) || r.Blocked == 0 && len(r.Fences) != len(names):
		return nil, "", fmt.Errorf("luatomic: acquire all: %w", lua.ErrBadReply)
	case r.Blocked > 0:
		name := names[r.Blocked-1]
		return nil, name, &HeldError{Name: name, Remaining: r.Remaining, Holder: r.Holder}
	}
	for i, name := range names {
		lease := leases[name]
		lease.fence = r.Fences[i]
		if _, err := lease.taken(start, 0); err != nil {
			return nil, "", err
		}
	}
	return leases, "", nil
}
