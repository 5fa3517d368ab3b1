package lock

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/lua"
)

// plain is the protocol of a plain lock: scripts/lock_*.lua.
type plain struct{ client lua.Client }

func (p *plain) acquire(ctx context.Context, r *request, entry string) (gen.LockAcquireResult, error) {
	o := r.opts
	if entry == "" && o.Replicas == 0 {
		tried, err := gen.LockTry(ctx, p.client, gen.LockTryParams{
			Lock: r.keys.Record, Owner: r.token, TTL: o.TTL, Keep: o.TTL + afterlife, Delay: o.LockDelay, Note: o.Note,
		})
		if err != nil || tried.State != gen.LockTryStateWanted {
			return gen.LockAcquireResult{
				Acquired: tried.State == gen.LockTryStateAcquired, Fence: tried.Fence,
				Remaining: tried.Remaining, Holder: tried.Holder,
			}, err
		} // else it is handed to a waiter that lives
	}
	params := gen.LockAcquireParams{
		Lock: r.keys.Record, Queue: r.keys.Queue, Owner: r.token, TTL: o.TTL, Keep: o.TTL + afterlife,
		Delay: o.LockDelay, Band: band(o.Priority), Entry: entry, Note: o.Note,
	}
	if o.Replicas > 0 {
		return p.acquireReplicated(ctx, r, params)
	}
	return gen.LockAcquire(ctx, p.client, params)
}

// band is the first score in the queue of a priority.
func band(priority int) int64 { return int64(-priority) << 40 }

// acquireReplicated is one attempt that waits for replicas in the same round trip. A lock that was handed over was
// written by another connection, of which WAIT knows nothing: so the lease is extended, which writes it once more.
func (p *plain) acquireReplicated(
	ctx context.Context, r *request, params gen.LockAcquireParams,
) (gen.LockAcquireResult, error) {
	b := lua.NewBatch(p.client)
	b.Wait(r.opts.Replicas, r.opts.ReplicaTimeout)
	future := gen.LockAcquireIn(b, params)
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

// replicated returns an error unless enough replicas have what the batch wrote.
func (r *request) replicated(b *lua.Batch) error {
	acked, err := b.Acked()
	switch {
	case acked >= r.opts.Replicas:
		return nil
	case err != nil:
		return fmt.Errorf("%w: %q: %w", ErrNotReplicated, r.name, err)
	}
	return fmt.Errorf("%w: %d of %d replicas confirmed %q within %v",
		ErrNotReplicated, acked, r.opts.Replicas, r.name, r.opts.ReplicaTimeout)
}

// replicate extends locks that are held, and waits for the replicas if any are wanted.
func (p *plain) replicate(ctx context.Context, held ...*request) error {
	o := held[0].opts
	if o.Replicas == 0 {
		return nil
	}
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
	future := gen.LockExtendIn(b, gen.LockExtendParams{
		Lock: r.keys.Record, Owner: r.token, TTL: ttl, Keep: ttl + afterlife,
	})
	return func() error {
		state, err := future.Get()
		switch {
		case err != nil:
			return fmt.Errorf("luatomic: extend %q: %w", r.name, err)
		case state != gen.LockExtendResultExtended:
			return r.lost(state == gen.LockExtendResultTaken)
		}
		return nil
	}
}

func (p *plain) release(ctx context.Context, r *request, entry string) error {
	state, err := gen.LockRelease(ctx, p.client, gen.LockReleaseParams{
		Lock: r.keys.Record, Queue: r.keys.Queue, Owner: r.token, Keep: r.opts.TTL + afterlife, Entry: entry,
	})
	switch {
	case err != nil:
		return err
	case state == gen.LockReleaseResultReleased, state == gen.LockReleaseResultLeft:
		return nil
	}
	return r.lost(state == gen.LockReleaseResultTaken)
}

// force makes owner the holder, "-" for nobody, if the lock has the fence; 0 is any fence.
func (p *plain) force(ctx context.Context, r *request, owner string, fence int64) (gen.LockForceResult, error) {
	o := r.opts
	result, err := gen.LockForce(ctx, p.client, gen.LockForceParams{
		Lock: r.keys.Record, Queue: r.keys.Queue, Fence: fence, Owner: owner, TTL: o.TTL, Delay: o.LockDelay,
		Inbox: keys.LockInbox(o.Prefix), Note: o.Note,
	})
	if err != nil {
		return result, fmt.Errorf("luatomic: take lock %q away: %w", r.name, err)
	}
	return result, nil
}

// afterlife is how long the string stays after the lease.
const afterlife = time.Minute

// lost is the ErrLost of a lock that the server says is another owner's, or expired.
func (r *request) lost(taken bool) error {
	what := "expired"
	if taken {
		what = "another owner"
	}
	return fmt.Errorf("%w: %q has %s", ErrLost, r.name, what)
}

func (p *plain) entry(r *request, claim time.Duration, channel string) string {
	return r.queueEntry(claim, r.opts.LockDelay, channel)
}

// queueEntry is an entry of the queue; see scripts/lock_acquire.lua.
func (r *request) queueEntry(claim, delay time.Duration, channel string) string {
	ms := func(d time.Duration) string { return strconv.FormatInt(int64(d/time.Millisecond), 10) }
	return r.token + " " + ms(claim) + " " + ms(delay) + " " + channel + "\n" + r.opts.Note
}
