package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	lockscript "github.com/luatomic/luatomic/gen/lock"
	"github.com/luatomic/luatomic/internal/clock"
	"github.com/luatomic/luatomic/internal/keeper"
	"github.com/luatomic/luatomic/internal/send"
	"github.com/luatomic/luatomic/lua"
)

// Leases are several locks that AcquireAll has acquired.
type Leases []*Lease

// Release releases all leases in one round trip, within 10 s, and joins their errors. A lease from another Locker than
// the first lease's takes a round trip of its own. See Lease.Release.
func (ls Leases) Release(ctx context.Context) error {
	return ls.together(ctx, func(ctx context.Context, l *Lease) error { return l.Release(ctx) })
}

// Err returns the error of the first lease that is lost, and nil while all leases hold. It sends nothing.
func (ls Leases) Err() error {
	for _, l := range ls {
		if err := l.Err(); err != nil {
			return err
		}
	}
	return nil
}

// Keep renews all leases. The context that it returns ends when the first lease is lost. See Lease.Keep.
func (ls Leases) Keep(ctx context.Context) context.Context {
	all := &keptAll{}
	all.Context, all.cancel = context.WithCancelCause(ctx)
	for _, l := range ls {
		kept := l.Keep(all.Context)
		all.kept = append(all.kept, kept)
		context.AfterFunc(kept, func() { all.cancel(context.Cause(kept)) })
	}
	return all
}

// keptAll is a context that ends with the first of its leases. Its Err reads the clocks, as Err of each lease's context
// does.
type keptAll struct {
	context.Context // ended by cancel
	cancel          context.CancelCauseFunc
	kept            []context.Context // of the leases
}

// Err is nil while all leases hold.
func (k *keptAll) Err() error {
	for _, kept := range k.kept {
		if kept.Err() != nil {
			k.cancel(context.Cause(kept)) // the first cause counts
		}
	}
	return k.Context.Err()
}

// maxLocks is how many locks AcquireAll takes.
const maxLocks = 100

// AcquireAll waits until it has all locks, at most 100, or until ctx ends. The leases are in the order of the names.
//
// With Options.Tag all locks are in one slot, and one script acquires all locks or none. Without a tag, one round trip
// tries all locks (on a cluster, one round trip to each node). A second one tries the locks that are free and have
// waiters. In both cases AcquireAll holds nothing while it waits. It waits in the queue of one lock: of those that it
// found held, the first by name. When it has that lock, it tries the others again. So two calls for the same locks
// cannot block each other. But a call for many locks may wait for long while others acquire them one at a time. If the
// lease of the first lock ends before the call has the others, AcquireAll starts over after Poll at most: use a TTL
// that is longer than two round trips.
//
// Keys: those of each lock. Cost of each attempt: O(n) of the names.
func (l *Locker) AcquireAll(ctx context.Context, names ...string) (Leases, error) {
	order, err := lockOrder(names)
	if err != nil {
		return nil, err
	}
	ctx, leave, err := l.hub.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	attempt := l.acquireEach
	if l.opts.Tag != "" {
		attempt = l.acquireInOneScript
	}
	begun := time.Now()
	var first *Lease // the lock that was waited for
	for {
		leases, blocked, err := attempt(ctx, begun, order, first)
		if err == nil {
			if err = l.hub.open(); err != nil {
				return nil, errors.Join(err, leases.abandon(ctx))
			}
			return inOrder(leases, order, names), nil
		}
		if first, err = l.waitFor(ctx, blocked, first, err); err != nil {
			return nil, err
		}
	}
}

// waitFor releases first, if there is one, and waits for the lock that blocked an attempt. It returns that lease, or
// the error of the attempt if another attempt would be of no use.
func (l *Locker) waitFor(ctx context.Context, blocked string, first *Lease, err error) (*Lease, error) {
	if first != nil {
		err = errors.Join(err, Leases{first}.abandon(ctx))
	}
	switch {
	case errors.Is(err, ErrHeld):
		return l.Acquire(ctx, blocked)
	case first != nil && errors.Is(err, ErrLost):
		// The lease of first ended before the other locks were acquired: the lock is free or another owner holds it.
		clock.Sleep(ctx, l.opts.pollDelay()) // where TTL is shorter than a round, the next one may end so, too
		return nil, nil
	}
	return nil, err
}

// lockOrder sorts the names, so that all processes acquire them in one order.
func lockOrder(names []string) ([]string, error) {
	if len(names) == 0 || len(names) > maxLocks {
		return nil, fmt.Errorf("luatomic: acquire all: %w", &lua.RangeError{
			Field: "names", Value: strconv.Itoa(len(names)), Min: "1", Max: strconv.Itoa(maxLocks),
		})
	}
	order := slices.Sorted(slices.Values(names))
	for i := range order[1:] {
		if order[i] == order[i+1] {
			return nil, fmt.Errorf("luatomic: acquire all: %q is there twice; name each lock once", order[i])
		}
	}
	return order, nil
}

// inOrder takes leases in the order of the sorted names and returns them in the order of the caller's names.
func inOrder(leases Leases, order, names []string) Leases {
	out := make(Leases, len(names))
	for i, name := range names {
		at, _ := slices.BinarySearch(order, name)
		out[i] = leases[at]
	}
	return out
}

// acquireEach tries all locks in one round trip; first is the lease that the caller already has. When another owner
// holds one of the locks, acquireEach releases the locks that it acquired, but not first, and returns the name of that
// lock.
func (l *Locker) acquireEach(
	ctx context.Context, begun time.Time, names []string, first *Lease,
) (Leases, string, error) {
	leases := make(Leases, 0, len(names))
	missing := make(Leases, 0, len(names))
	for _, name := range names {
		lease := first
		if first == nil || first.Name() != name {
			var err error
			if lease, err = l.newLease(name); err != nil {
				return nil, "", err
			}
			missing = append(missing, lease)
		}
		leases = append(leases, lease)
	}
	acquired, blocked, err := l.tryEach(ctx, begun, missing)
	if err == nil && first != nil { // its lease may have ended meanwhile
		err = first.Extend(ctx)
	}
	if err == nil { // first was acquired with them
		err = l.hub.plain.replicate(ctx, acquired.requests()...)
	}
	if err != nil && len(acquired) > 0 {
		return nil, blocked, errors.Join(acquired[0].request.unsure(err), acquired.abandon(ctx))
	}
	if err != nil {
		return nil, blocked, err
	}
	return leases, "", nil
}

// tryEach makes one attempt for each lease, in one round trip, and begins the leases that it acquired. It returns the
// name of the first lock that it did not acquire, and the error of that lock.
func (l *Locker) tryEach(ctx context.Context, begun time.Time, leases Leases) (
	acquired Leases, blocked string, _ error,
) {
	sent, results, errs := l.tryAll(ctx, leases.requests())
	var unknown Leases
	var failed error
	for i, lease := range leases {
		r, err := results[i], errs[i]
		if err == nil {
			l.hub.floor.Note(max(r.Fence, r.Now))
		}
		if err == nil && r.Acquired {
			acquired = append(acquired, lease.begin(begun, lease.request.granted(sent, r)))
			continue
		}
		switch {
		case err == nil:
			err = lease.request.heldBy(r)
			if lease.request.unsettled() {
				unknown = append(unknown, lease)
			}
		case lease.request.unsettled() && !isForeign(err):
			unknown = append(unknown, lease)
			err = lease.request.unsure(err)
			fallthrough
		default:
			err = fmt.Errorf("luatomic: acquire all: %q: %w", lease.Name(), recordError(err, lease.Key()))
		}
		if failed == nil {
			blocked, failed = lease.Name(), err
		}
	}
	withdrawn := unknown.together(ctx, func(ctx context.Context, lease *Lease) error {
		return lease.request.withdraw(ctx, "")
	})
	return acquired, blocked, errors.Join(failed, withdrawn)
}

// tryAll makes one attempt for all requests, in time as lease.InTime defines it; sent is when the attempt was sent.
func (l *Locker) tryAll(ctx context.Context, rs []*request) (
	sent time.Time, results []lockscript.AcquireResult, errs []error,
) {
	keeper.InTime(func(now time.Time) (until time.Time) {
		sent = now
		results, errs = l.hub.plain.tryAll(ctx, rs)
		for i, r := range rs {
			r.noteOutcome(results[i].Acquired, errs[i])
			if errs[i] != nil || !results[i].Acquired {
				continue
			}
			if end := r.granted(sent, results[i]).deadline; until.IsZero() || end.Before(until) {
				until = end
			}
		}
		return until
	})
	return sent, results, errs
}

// acquireInOneScript acquires all locks or none, under the token of first if first is not nil. When another owner holds
// one of the locks, it returns the name of that lock.
func (l *Locker) acquireInOneScript(
	ctx context.Context, begun time.Time, names []string, first *Lease,
) (Leases, string, error) {
	leases, err := l.oneToken(names, first)
	if err != nil {
		return nil, "", err
	}
	sent, r, err := l.runAll(ctx, leases)
	if err == nil && r.Blocked == 0 {
		err = l.hub.plain.replicate(ctx, leases.requests()...)
	}
	switch {
	case err != nil:
		return nil, "", fmt.Errorf("luatomic: acquire all: %w", leases.undone(ctx, first, err))
	case r.Blocked > int64(len(names)) || r.Blocked == 0 && len(r.Fences) != len(names):
		return nil, "", fmt.Errorf("luatomic: acquire all: %w", lua.ErrBadReply)
	case r.Blocked > 0:
		name := names[r.Blocked-1]
		_ = leases.together(ctx, func(ctx context.Context, lease *Lease) error {
			if lease != first { // which its release settles
				lease.request.settle(ctx)
			}
			return nil
		})
		return nil, name, &HeldError{Name: name, Remaining: r.Remaining, Holder: r.Holder}
	}
	return leases, "", leases.beginAll(ctx, begun, first, sent, r.Fences)
}

// runAll makes one attempt with one script, in time as lease.InTime defines it; sent is when the attempt was sent.
func (l *Locker) runAll(ctx context.Context, leases Leases) (sent time.Time, r lockscript.AcquireAllResult, err error) {
	first := &leases[0].request
	p := lockscript.AcquireAllParams{Own: first.own, Life: l.opts.life(), Floor: l.hub.floor.Last()}
	for _, lease := range leases {
		p.Locks = append(p.Locks, lease.Key())
	}
	var again send.Resent
	noting := send.WatchResent(ctx, &again)
	keeper.InTime(func(now time.Time) (until time.Time) {
		sent = now
		r, err = lockscript.AcquireAll(noting, l.hub.client, p)
		for _, lease := range leases {
			lease.request.noteOutcome(err == nil && r.Blocked == 0, err)
		}
		if err == nil && r.Blocked == 0 {
			until = first.granted(sent, lockscript.AcquireResult{}).deadline
		}
		return until
	})
	for _, lease := range leases {
		if again {
			lease.request.noted.NoteResent()
		}
	}
	return sent, r, err
}

// undone withdraws all requests unless the server has executed no attempt. Before that it releases first, whose lease
// has begun. It returns the errors of both.
func (ls Leases) undone(ctx context.Context, first *Lease, err error) error {
	if !ls[0].request.unsettled() || errors.Is(err, lua.ErrWrongType) {
		return err
	}
	err = ls[0].request.unsure(err)
	withdrawn := ls.together(ctx, func(ctx context.Context, lease *Lease) error {
		if lease == first {
			_ = lease.Release(ctx) // where it fails, the withdrawal does the same
		}
		return recordError(lease.request.withdraw(ctx, ""), lease.Key())
	})
	if errors.Is(withdrawn, ErrNotALock) {
		return withdrawn // it says the same, and of which key
	}
	return errors.Join(err, withdrawn)
}

// beginAll begins the leases that one script granted to an acquire that has waited since begun. The lease of first
// began earlier, so beginAll only moves its end.
func (ls Leases) beginAll(ctx context.Context, begun time.Time, first *Lease, sent time.Time, fences []int64) error {
	others, lost := make(Leases, 0, len(ls)), error(nil)
	for i, lease := range ls {
		if lease == first {
			lost = first.regranted(sent, fences[i])
			continue
		}
		g := lease.request.granted(sent, lockscript.AcquireResult{Fence: fences[i]})
		others = append(others, lease.begin(begun, g))
	}
	if lost != nil {
		return errors.Join(lost, others.abandon(ctx))
	}
	return nil
}

// regranted moves the end of a lease that its owner acquired again, with that fence, by a request sent at sent. It
// returns an ErrLost when the lease was over in between.
func (l *Lease) regranted(sent time.Time, fence int64) error {
	err := l.Err()
	if err == nil && fence != l.fence {
		err = l.request.lost(false)
		l.state.End(err)
	}
	if err != nil {
		return err
	}
	return l.state.Extended(sent, l.request.opts.TTL)
}

// oneToken makes leases with one common token: that of first, which is one of them, or a new one if first is nil.
func (l *Locker) oneToken(names []string, first *Lease) (Leases, error) {
	leases := make(Leases, 0, len(names))
	for _, name := range names {
		if first != nil && first.Name() == name {
			leases = append(leases, first)
			continue
		}
		lease, err := l.newLease(name)
		if err != nil {
			return nil, err
		}
		if first == nil {
			first = lease
		}
		lease.request.token, lease.request.own = first.request.token, first.request.own
		leases = append(leases, lease)
	}
	return leases, nil
}

func (ls Leases) requests() []*request {
	all := make([]*request, len(ls))
	for i, l := range ls {
		all[i] = &l.request
	}
	return all
}
