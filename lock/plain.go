package lock

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/lua"
)

// lockKind is the kind of a plain lock.
type lockKind struct{}

func (lockKind) acquire(ctx context.Context, l *Lease, entry string) (gen.LockAcquireResult, error) {
	o := &l.locker.opts
	if entry == "" && o.Replicas == 0 {
		r, err := gen.LockTry(ctx, l.locker.client, gen.LockTryParams{
			Lock: l.keys.Record, Owner: l.token, TTL: o.TTL, Keep: o.TTL + afterlife, Delay: o.LockDelay, Note: o.Note,
		})
		if err != nil || r.State != gen.LockTryStateWanted {
			return gen.LockAcquireResult{Acquired: r.State == gen.LockTryStateAcquired, Fence: r.Fence, Remaining: r.Remaining, Holder: r.Holder}, err
		} // else it is handed to those who wait, if they live
	}
	p := gen.LockAcquireParams{
		Lock: l.keys.Record, Queue: l.keys.Queue, Owner: l.token, TTL: o.TTL, Keep: o.TTL + afterlife,
		Delay: o.LockDelay, Band: band(o.Priority), Entry: entry, Note: o.Note,
	}
	if o.Replicas > 0 {
		return l.acquireReplicated(ctx, p)
	}
	return gen.LockAcquire(ctx, l.locker.client, p)
}

// band is the first score in the queue of a priority.
func band(priority int) int64 { return int64(-priority) << 40 }

// acquireReplicated is one attempt that waits for replicas in the same round trip.
// A lock that was handed over was written by another connection: WAIT says nothing
// of that, so the lease is extended, which writes it once more.
func (l *Lease) acquireReplicated(ctx context.Context, p gen.LockAcquireParams) (gen.LockAcquireResult, error) {
	o := &l.locker.opts
	b := lua.NewBatch(l.locker.client)
	b.Wait(o.Replicas, o.ReplicaTimeout)
	f := gen.LockAcquireIn(b, p)
	_ = b.Exec(ctx) // the future has the error
	r, err := f.Get()
	if err != nil || !r.Acquired {
		return r, err
	}
	if r.Remaining > 0 {
		r.Remaining = 0
		return r, l.locker.replicate(ctx, l)
	}
	return r, l.locker.replicated(b, l.name)
}

// replicated says whether enough replicas have what the batch wrote.
func (l *Locker) replicated(b *lua.Batch, name string) error {
	acked, err := b.Acked()
	switch {
	case acked >= l.opts.Replicas:
		return nil
	case err != nil:
		return fmt.Errorf("%w: %q: %w", ErrNotReplicated, name, err)
	}
	return fmt.Errorf("%w: %d of %d replicas confirmed %q within %v", ErrNotReplicated, acked, l.opts.Replicas, name, l.opts.ReplicaTimeout)
}

// replicate extends leases that are held, and waits for the replicas if any are
// wanted.
func (l *Locker) replicate(ctx context.Context, leases ...*Lease) error {
	if l.opts.Replicas == 0 {
		return nil
	}
	b := lua.NewBatch(l.client)
	b.Wait(l.opts.Replicas, l.opts.ReplicaTimeout)
	verdicts := make([]func() error, len(leases))
	for i, lease := range leases {
		verdicts[i] = lease.kind.extend(b, lease, l.opts.TTL)
	}
	_ = b.Exec(ctx) // the verdicts have the errors
	for _, verdict := range verdicts {
		if err := verdict(); err != nil {
			return err
		}
	}
	return l.replicated(b, leases[0].name)
}

func (lockKind) extend(b *lua.Batch, l *Lease, ttl time.Duration) func() error {
	f := gen.LockExtendIn(b, gen.LockExtendParams{Lock: l.key, Owner: l.token, TTL: ttl, Keep: ttl + afterlife})
	return func() error {
		state, err := f.Get()
		if err != nil {
			return fmt.Errorf("luatomic: extend %q: %w", l.name, err)
		}
		if state != gen.LockExtendResultExtended {
			return fmt.Errorf("%w: %q has %s", ErrLost, l.name, lossOf(state == gen.LockExtendResultTaken))
		}
		return nil
	}
}

func (lockKind) release(ctx context.Context, l *Lease, entry string) error {
	state, err := gen.LockRelease(ctx, l.locker.client, gen.LockReleaseParams{
		Lock: l.keys.Record, Queue: l.keys.Queue, Owner: l.token, Keep: l.locker.opts.TTL + afterlife, Entry: entry,
	})
	switch {
	case err != nil:
		return err
	case state == gen.LockReleaseResultReleased, state == gen.LockReleaseResultLeft:
		return nil
	}
	return fmt.Errorf("%w: %q has %s", ErrLost, l.name, lossOf(state == gen.LockReleaseResultTaken))
}

// afterlife is how long the string stays after the lease.
const afterlife = time.Minute

func lossOf(taken bool) string {
	if taken {
		return "another owner"
	}
	return "expired"
}

func (lockKind) entry(l *Lease, granted time.Duration, channel string) string {
	return queueEntry(l, granted, l.locker.opts.LockDelay, channel)
}

// queueEntry makes an entry of the queue; see lock_acquire.lua.
func queueEntry(l *Lease, granted, delay time.Duration, channel string) string {
	var b strings.Builder
	for _, s := range []string{
		l.token, strconv.FormatInt(int64(granted/time.Millisecond), 10), strconv.FormatInt(int64(delay/time.Millisecond), 10),
	} {
		b.WriteString(s)
		b.WriteByte(' ')
	}
	b.WriteString(channel)
	b.WriteByte('\n')
	b.WriteString(l.locker.opts.Note)
	return b.String()
}
