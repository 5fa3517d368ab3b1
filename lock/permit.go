package lock

import (
	"context"
	"fmt"
	"time"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/lua"
)

// permitKind is the kind of a permit: of a Semaphore or a RWLock.
type permitKind struct {
	*permits
	limit int64
}

func (p *permitKind) acquire(ctx context.Context, l *Lease, entry string) (gen.LockAcquireResult, error) {
	o := &p.locker.opts
	r, err := gen.SemAcquire(ctx, p.locker.client, gen.SemAcquireParams{
		Permits: p.keys.Record, Queue: p.keys.Queue, Owner: l.token, Limit: p.limit, TTL: o.TTL, Band: band(o.Priority), Entry: entry, Note: o.Note,
	})
	out := gen.LockAcquireResult{
		Acquired: r.Acquired, Fence: r.Fence, Remaining: r.Remaining, Waiting: r.Waiting, Holder: r.Holder, Now: r.Now,
	}
	switch {
	case err != nil:
	case r.Place == gen.SemAcquirePlaceRefused:
		err = &LimitError{Name: p.name, Asked: int(p.limit), Limit: int(r.Limit)}
	case r.Place == gen.SemAcquirePlaceJoined:
		out.Place = gen.LockAcquirePlaceJoined
	case r.Place == gen.SemAcquirePlaceWaiting:
		out.Place = gen.LockAcquirePlaceWaiting
	}
	return out, err
}

func (p *permitKind) entry(l *Lease, granted time.Duration, channel string) string {
	return queueEntry(l, granted, 0, channel)
}

func (p *permitKind) extend(b *lua.Batch, l *Lease, ttl time.Duration) func() error {
	f := gen.SemExtendIn(b, gen.SemExtendParams{Permits: p.keys.Record, Owner: l.token, TTL: ttl, Note: p.locker.opts.Note})
	return func() error {
		state, err := f.Get()
		if err != nil {
			return fmt.Errorf("luatomic: extend %q: %w", l.name, err)
		}
		if state != gen.SemExtendResultExtended {
			return fmt.Errorf("%w: %q has %s", ErrLost, l.name, lossOf(false))
		}
		return nil
	}
}

func (p *permitKind) release(ctx context.Context, l *Lease, entry string) error {
	state, err := gen.SemRelease(ctx, p.locker.client, gen.SemReleaseParams{
		Permits: p.keys.Record, Queue: p.keys.Queue, Owner: l.token, Entry: entry, Note: p.locker.opts.Note,
	})
	if err == nil && state == gen.SemReleaseResultExpired {
		err = fmt.Errorf("%w: %q has %s", ErrLost, l.name, lossOf(false))
	}
	return err
}

// tryOnce makes one attempt.
func (l *Lease) tryOnce(ctx context.Context) (*Lease, error) {
	start := time.Now()
	r, err := l.try(ctx)
	if err != nil {
		return nil, err
	}
	if !r.Acquired {
		return nil, l.held(r)
	}
	return l.taken(start, r.Remaining)
}
