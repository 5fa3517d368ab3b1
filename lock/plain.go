package lock

import (
	"context"
	"fmt"
	"strconv"
	"time"

	lockscript "github.com/luatomic/luatomic/gen/lock"
	"github.com/luatomic/luatomic/lua"
)

// plain is the protocol of a plain lock: scripts/lock/*.lua.
type plain struct{ client lua.Client }

// tail returns the part of a lock's record after the owner; see lock/acquire.lua.
func (o *Options) tail() string {
	return " " + milliseconds(o.LockDelay) + " " + milliseconds(o.after()) + " " + o.Note
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// whole returns the record of a lock that nobody waits for.
func (r *request) whole(fence int64) string {
	var room [160]byte // for most records
	record := append(room[:0], "2 "...)
	record = strconv.AppendInt(record, fence, 10)
	record = append(record, " 0 -"...)
	return string(append(record, r.own...))
}

// life is how long the record of a lock is stored. The added millisecond rounds up.
func (o *Options) life() time.Duration { return o.TTL + o.after() + time.Millisecond }

// lapsed is how long the record of a lock stays at least after a lease that was not released.
const lapsed = time.Second

// after is how long the record of a lock stays after the end of the lease.
func (o *Options) after() time.Duration { return max(o.Afterlife, lapsed) + o.LockDelay }

func (p *plain) acquire(ctx context.Context, r *request, a attempt) (lockscript.AcquireResult, error) {
	o := r.opts
	if a.entry == "" && o.Replicas == 0 {
		tried, err := lockscript.Try(ctx, p.client, r.tryParams())
		if err != nil || tried.State != lockscript.TryStateWanted {
			return asAcquired(tried), err
		} // else it is handed to a waiter that lives
	}
	params := r.acquireParams(a)
	if o.Replicas > 0 {
		return p.acquireReplicated(ctx, r, params)
	}
	result, err := lockscript.Acquire(ctx, p.client, params)
	return atLeast(result), err
}

func (r *request) tryParams() lockscript.TryParams {
	return lockscript.TryParams{Lock: r.keys.Record, Own: r.own, Life: r.opts.life(), Floor: r.floor.Last()}
}

func (r *request) acquireParams(a attempt) lockscript.AcquireParams {
	return lockscript.AcquireParams{
		Lock: r.keys.Record, Queue: r.keys.Queue, Own: r.own, TTL: r.opts.TTL, Floor: r.floor.Last(),
		Entry: a.entry, Fresh: a.fresh, Channel: r.channel,
	}
}

func asAcquired(tried lockscript.TryResult) lockscript.AcquireResult {
	return atLeast(lockscript.AcquireResult{
		Acquired: tried.State == lockscript.TryStateAcquired, Fence: tried.Fence,
		Remaining: tried.Remaining, Holder: tried.Holder,
	})
}

// atLeast subtracts a millisecond from the remaining time that a repeat found on its owner's lease: PTTL rounds up, so
// the key expires earlier than PTTL says.
func atLeast(r lockscript.AcquireResult) lockscript.AcquireResult {
	if r.Acquired && r.Remaining > 0 {
		r.Remaining = max(r.Remaining-time.Millisecond, time.Microsecond)
	}
	return r
}

// tryAll makes one attempt for each request, in one round trip, with a second one for the locks that are free and have
// waiters.
func (p *plain) tryAll(ctx context.Context, rs []*request) ([]lockscript.AcquireResult, []error) {
	b, wanted := lua.NewBatch(p.client), lua.NewBatch(p.client)
	tries := make([]*lua.Future[lockscript.TryResult], len(rs))
	for i, r := range rs {
		tries[i] = lockscript.TryIn(b, r.tryParams())
	}
	_ = b.Exec(ctx) // each future has its own error
	results, errs := make([]lockscript.AcquireResult, len(rs)), make([]error, len(rs))
	again := make(map[int]*lua.Future[lockscript.AcquireResult])
	for i, r := range rs {
		tried, err := tries[i].Get()
		results[i], errs[i] = asAcquired(tried), err
		if tries[i].Resent() {
			r.noted.NoteResent()
		}
		if err == nil && tried.State == lockscript.TryStateWanted {
			again[i] = lockscript.AcquireIn(wanted, r.acquireParams(attempt{}))
		}
	}
	_ = wanted.Exec(ctx)
	for i, acquire := range again {
		result, err := acquire.Get()
		results[i], errs[i] = atLeast(result), err
		if acquire.Resent() {
			rs[i].noted.NoteResent()
		}
	}
	return results, errs
}

// entry is what the queue stores: the length of the first lease, and the record from the owner on.
func (p *plain) entry(r *request, claim time.Duration) string { return milliseconds(claim) + r.own }

// acquireReplicated makes one attempt that waits for replicas in the same round trip. If the owner held the lock
// before, another connection may have written it, and WAIT counts only writes of its own connection. So the lease is
// extended, which writes the record again.
func (p *plain) acquireReplicated(
	ctx context.Context, r *request, params lockscript.AcquireParams,
) (lockscript.AcquireResult, error) {
	b := lua.NewBatch(p.client)
	b.Wait(r.opts.Replicas, r.opts.ReplicaTimeout)
	future := lockscript.AcquireIn(b, params)
	_ = b.Exec(ctx) // the future has the error
	result, err := future.Get()
	if err != nil || !result.Acquired {
		return result, err
	}
	if result.Remaining > 0 {
		result.Remaining = 0
		return result, p.replicate(ctx, r)
	}
	return result, r.replicated(b)
}

// replicated returns an error unless enough replicas have the writes of the batch.
func (r *request) replicated(b *lua.Batch) error {
	acked, err := b.Acked()
	switch {
	case acked >= r.opts.Replicas:
		return nil
	case err != nil:
		return fmt.Errorf("%w: %q: %w", ErrNotReplicated, r.name, err)
	}
	return fmt.Errorf("%w: %d of %d replicas confirmed %q within %v; see INFO replication, or raise ReplicaTimeout",
		ErrNotReplicated, acked, r.opts.Replicas, r.name, r.opts.ReplicaTimeout)
}

// replicate extends locks that are held, and waits for the replicas if any are wanted.
func (p *plain) replicate(ctx context.Context, held ...*request) error {
	if len(held) == 0 || held[0].opts.Replicas == 0 {
		return nil
	}
	o := held[0].opts
	b := lua.NewBatch(p.client)
	b.Wait(o.Replicas, o.ReplicaTimeout)
	outcomes := make([]func() error, len(held))
	for i, r := range held {
		outcomes[i] = p.extend(b, r, o.TTL)
	}
	_ = b.Exec(ctx) // the outcomes have the errors
	for _, outcome := range outcomes {
		if err := outcome(); err != nil {
			return err
		}
	}
	return held[0].replicated(b)
}

func (p *plain) extend(b *lua.Batch, r *request, ttl time.Duration) func() error {
	future := lockscript.ExtendIn(b, lockscript.ExtendParams{
		Lock: r.keys.Record, Owner: r.token, TTL: ttl,
	})
	return func() error {
		state, err := future.Get()
		switch {
		case err != nil:
			return fmt.Errorf("luatomic: extend %q: %w", r.name, recordError(err, r.keys.Record))
		case state == lockscript.ExtendResultRevoked:
			return r.revoked()
		case state != lockscript.ExtendResultExtended:
			return r.lost(state == lockscript.ExtendResultTaken)
		}
		return nil
	}
}

func (p *plain) release(ctx context.Context, r *request, fence int64) error {
	state, err := p.sendRelease(ctx, lockscript.ReleaseParams{
		Lock: r.keys.Record, Queue: r.keys.Queue, Owner: r.token, Whole: r.whole(fence),
		Stay: r.opts.Afterlife, Channel: r.channel,
	})
	if err == nil {
		r.settle(ctx)
	}
	switch {
	case err != nil:
		return recordError(err, r.keys.Record)
	case state == lockscript.ReleaseResultReleased:
		return nil
	case state == lockscript.ReleaseResultRevoked:
		return r.revoked()
	}
	return r.lost(state == lockscript.ReleaseResultTaken)
}

// sendRelease sends the release. If ctx has a round, the release is sent with the calls of the other leases.
func (p *plain) sendRelease(ctx context.Context, params lockscript.ReleaseParams) (lockscript.ReleaseResult, error) {
	if ctx.Value(partKey{}) != nil {
		state, err, ok := inRound(ctx, func(b *lua.Batch) *lua.Future[lockscript.ReleaseResult] {
			return lockscript.ReleaseIn(b, params)
		})
		if ok {
			return state, err
		}
	}
	return lockscript.Release(ctx, p.client, params)
}

func (p *plain) withdraw(ctx context.Context, r *request, entry string) error {
	params := lockscript.LeaveParams{
		Lock: r.keys.Record, Queue: r.keys.Queue, Owner: r.token, Entry: entry, How: lockscript.LeaveHowVoid,
		Stay: r.opts.Afterlife, Channel: r.channel,
	}
	_, err, ok := inRound(ctx, func(b *lua.Batch) *lua.Future[bool] { return lockscript.LeaveIn(b, params) })
	if !ok {
		_, err = lockscript.Leave(ctx, p.client, params)
	}
	return err
}

func (p *plain) void(ctx context.Context, r *request) error {
	return p.leave(ctx, r, lockscript.LeaveHowLate)
}

func (p *plain) giveBack(ctx context.Context, r *request) error {
	return p.leave(ctx, r, lockscript.LeaveHowUnconfirmed)
}

func (p *plain) leave(ctx context.Context, r *request, how lockscript.LeaveHow) error {
	_, err := lockscript.Leave(ctx, p.client, lockscript.LeaveParams{
		Lock: r.keys.Record, Queue: r.keys.Queue, Owner: r.token, How: how, Stay: r.opts.Afterlife, Channel: r.channel,
	})
	return err
}

// force takes the lock from its holder if the lock has the fence; 0 matches any fence. With steal the request's token
// is the next holder, otherwise a waiter or nobody.
func (p *plain) force(ctx context.Context, r *request, steal bool, fence int64) (lockscript.ForceResult, error) {
	o, owner := r.opts, "-"
	if steal {
		owner = r.token
	}
	result, err := lockscript.Force(ctx, p.client, lockscript.ForceParams{
		Lock: r.keys.Record, Queue: r.keys.Queue, Fence: fence, Owner: owner, Own: r.own, Life: o.life(),
		Floor: r.floor.Last(), Stay: o.Afterlife, Channel: r.channel,
	})
	return result, recordError(err, r.keys.Record)
}

// lost returns an ErrLost that says why, if that is known.
func (r *request) lost(taken bool) error {
	if taken {
		return fmt.Errorf("%w: %q has another owner", ErrLost, r.name)
	}
	return fmt.Errorf("%w: %q has expired", ErrLost, r.name)
}

// revoked is the error of a lock that was taken away by force.
func (r *request) revoked() error { return fmt.Errorf("%w: %q", ErrRevoked, r.name) }
