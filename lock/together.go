package lock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/luatomic/luatomic/internal/keeper"
	"github.com/luatomic/luatomic/internal/send"
	"github.com/luatomic/luatomic/lua"
)

// round is a round trip that the calls of several leases share. It is sent when each lease has added its call, or has
// finished without a call.
type round struct {
	ctx  context.Context // of the round trip; the end of the caller's does not cut it short
	sent chan struct{}   // closed when it has an answer

	mu      sync.Mutex // guards all below
	batch   *lua.Batch
	missing int
}

// part is the share of one lease in a round.
type part struct {
	round *round
	added bool // guarded by the lock of the round
}

type partKey struct{}

// partContext is the context of one lease's calls.
type partContext struct {
	context.Context
	part *part
}

// Value returns the part or, for lease.Waits, its leave.
func (c partContext) Value(key any) any {
	switch key.(type) {
	case partKey:
		return c.part
	case keeper.Waits:
		return c.part.leave
	}
	return c.Context.Value(key)
}

// roundTimeout bounds a round trip.
const roundTimeout = 10 * time.Second

// together calls f for all leases and joins the errors. The calls of lock_release and lock_leave that f makes under its
// context share one round trip. A lease of another Locker than the first lease's has a round trip of its own, because
// its server may be another one.
func (ls Leases) together(ctx context.Context, f func(context.Context, *Lease) error) error {
	if len(ls) == 0 {
		return nil
	}
	hub := ls[0].hub
	r := &round{ctx: keeper.Detach(ctx), batch: lua.NewBatch(hub.client), sent: make(chan struct{})}
	for _, l := range ls {
		if l.hub == hub {
			r.missing++
		}
	}
	errs := make([]error, len(ls))
	var calls sync.WaitGroup
	for i, l := range ls {
		calls.Go(func() {
			if l.hub != hub {
				errs[i] = f(ctx, l)
				return
			}
			p := &part{round: r}
			defer p.leave()
			errs[i] = f(partContext{ctx, p}, l)
		})
	}
	calls.Wait()
	return errors.Join(errs...)
}

// abandon releases leases that are of no use. A lost lease is no error here. It has protected nothing, so withdraw ends
// its LockDelay. When ctx ends, the caller returns and the call goes on.
func (ls Leases) abandon(ctx context.Context) error {
	if len(ls) == 0 {
		return nil
	}
	return behind(ctx, ls[0].hub.calls, func(ctx context.Context) error {
		return ls.together(ctx, func(ctx context.Context, l *Lease) error {
			err := l.Release(ctx)
			if errors.Is(err, ErrLost) {
				err = l.request.withdraw(ctx, "")
			}
			return err
		})
	})
}

// inRound makes the call in the round of ctx. ok reports whether ctx has a round in which the lease has no call yet.
func inRound[T any](ctx context.Context, call func(*lua.Batch) *lua.Future[T]) (result T, _ error, ok bool) {
	p, ok := ctx.Value(partKey{}).(*part)
	if !ok {
		return result, nil, false
	}
	var future *lua.Future[T]
	r := p.round
	r.mu.Lock()
	if p.added {
		r.mu.Unlock()
		return result, nil, false
	}
	p.added, future = true, call(r.batch)
	last := r.less()
	r.mu.Unlock()
	if last {
		r.send()
	}
	<-r.sent
	if n, ok := ctx.Value(send.ResentKey{}).(send.ResentNoter); ok && future.Resent() {
		n.NoteResent() // of this lease's call, not of another one
	}
	result, err := future.Get()
	return result, err, true
}

// leave tells the round not to wait for the lease any longer.
func (p *part) leave() {
	r := p.round
	r.mu.Lock()
	last := !p.added && r.less()
	p.added = true
	r.mu.Unlock()
	if last {
		go r.send()
	}
}

// less counts one missing lease less, and reports whether none is missing now. The caller holds the lock.
func (r *round) less() bool {
	r.missing--
	return r.missing == 0
}

func (r *round) send() {
	defer close(r.sent)
	ctx, cancel := context.WithTimeout(r.ctx, roundTimeout)
	defer cancel()
	_ = r.batch.Exec(ctx) // each future has its own error
}
