package plainlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/luatomic/luatomic/compat/plainlock/internal/script"
	"github.com/luatomic/luatomic/internal/clock"
	"github.com/luatomic/luatomic/internal/keeper"
	"github.com/luatomic/luatomic/internal/send"
	"github.com/luatomic/luatomic/internal/servers"
	"github.com/luatomic/luatomic/lua"
)

// Lock is a lock that this process holds. It ends with Release or when its TTL is over, whichever comes first. Extend
// and Keep renew it before that. Its methods are safe for concurrent use.
type Lock struct {
	locker           *Locker
	name, key, token string
	fence            int64
	resent           bool // copies of an attempt may still be on their way
	state            keeper.Entry
}

// Name returns the name of the lock.
func (l *Lock) Name() string { return l.name }

// Key returns its key.
func (l *Lock) Key() string { return l.key }

// Token returns the value of the key, which identifies this lock.
func (l *Lock) Token() string { return l.token }

// Fence returns a number that is greater for each holder in Go than for the one before; 0 without Options.Fence.
func (l *Lock) Fence() int64 { return l.fence }

// Deadline returns the end of the lock by this process' monotonic clock. It counts from before the request was sent,
// and is earlier by a thousandth of the lease's length, because clocks run at different speeds.
func (l *Lock) Deadline() time.Time { return l.state.Deadline() }

// Err returns nil while the lock holds by this process' clock, and after that an error that matches ErrLost or
// ErrReleased. It sends nothing.
func (l *Lock) Err() error { return l.state.Err() }

// Extend restarts the TTL. It returns an ErrLost when the lock is over or the key has another token. Keys: the lock's.
// Cost: O(1).
func (l *Lock) Extend(ctx context.Context) error { return l.state.Extend(ctx) }

// Keep extends the lock three times in its TTL, until Release or the end of ctx. It returns a context that ends with
// ctx or with the lock. context.Cause then says why. The end of ctx does not release the lock, which then ends with its
// TTL.
func (l *Lock) Keep(ctx context.Context) context.Context { return l.state.KeepWhile(ctx) }

// Release deletes the key if it has the token, and notifies waiters in Go. It also works after ctx has ended. After a
// Release that returned nil, another Release returns nil too. An ErrLost says that the lock was over before the
// release. Each later Release then returns it again. After any other error Release can be called again. Keys: the
// lock's. Cost: O(1).
func (l *Lock) Release(ctx context.Context) error { return l.state.Release(ctx) }

// holder is a Lock as its keeper sees it.
type holder Lock

// Server names the server of the key.
func (h *holder) Server(ctx context.Context) string {
	_, name, _ := servers.Of(ctx, h.locker.client, h.key) // without a server, the call has the error
	return name
}

// Extend adds the extension to the batch of the keeper.
func (h *holder) Extend(b *lua.Batch, ttl time.Duration) (outcome func() error) {
	f := script.ExtendIn(b, script.ExtendParams{Lock: h.key, Token: h.token, TTL: ttl})
	return func() error {
		held, err := f.Get()
		return h.lostUnless(held, err)
	}
}

// Release deletes the key if it has the token.
func (h *holder) Release(ctx context.Context) error {
	held, err := h.release(ctx)
	if err == nil {
		(*Lock)(h).settle(ctx)
	}
	return h.lostUnless(held, err)
}

func (h *holder) release(ctx context.Context) (held bool, err error) {
	return script.Release(ctx, h.locker.client, script.ReleaseParams{
		Lock: h.key, Token: h.token, Channel: channel(h.key),
	})
}

func (h *holder) lostUnless(held bool, err error) error {
	if err == nil && !held {
		err = fmt.Errorf("%w: the key of %q expired, or has another token", ErrLost, h.name)
	}
	return err
}

// Ended settles a loss.
func (h *holder) Ended(why error, _ time.Duration) {
	if errors.Is(why, ErrLost) {
		(*Lock)(h).settle(context.Background())
	}
}

// reply is the end of one call of the script.
type reply struct {
	script.AcquireResult
	err   error
	again send.Resent
}

// attempt makes one attempt, in time as lease.InTime defines it. held is set if another holder has the lock.
func (l *Lock) attempt(ctx context.Context) (held *HeldError, err error) {
	terms := keeper.Terms{Name: l.name, TTL: l.locker.opts.TTL}
	var until time.Time
	keeper.InTime(func(sent time.Time) time.Time {
		late := !until.IsZero()
		until = time.Time{}
		if held, err = l.ask(ctx); err == nil && held == nil {
			until = keeper.End(sent, terms.TTL)
		}
		l.resent = l.resent || late && err != nil // what the first attempt acquired is given back as a late copy is
		return until
	})
	if !until.IsZero() {
		l.state.Begin(l.locker.keeper, (*holder)(l), terms, until)
	}
	return held, err
}

// ask makes one attempt, and returns when ctx ends or the Locker is closed although the call goes on.
func (l *Lock) ask(ctx context.Context) (held *HeldError, err error) {
	if !l.locker.calls.Begin() {
		return nil, l.failed(ErrClosed)
	}
	replies, failed := make(chan reply, 1), &send.Failure{}
	go func() {
		var r reply
		ctx := send.WatchFailures(send.WatchResent(ctx, &r.again), failed)
		r.AcquireResult, r.err = script.Acquire(ctx, l.locker.client, script.AcquireParams{
			Lock: l.key, Fences: l.locker.fenceKeys(l.key), Token: l.token, TTL: l.locker.opts.TTL,
		})
		replies <- r
	}()
	var r reply
	select {
	case r = <-replies:
	case <-ctx.Done():
		go l.undo(ctx, replies)
		return nil, l.failed(failed.After(clock.EndOf(ctx)))
	case <-l.locker.calls.Closed():
		go l.undo(ctx, replies)
		return nil, l.failed(failed.After(ErrClosed))
	}
	if r.err != nil {
		replies <- r
		go l.undo(ctx, replies)
		return nil, l.failed(r.err)
	}
	l.locker.calls.End()
	l.resent = l.resent || bool(r.again)
	if !r.Acquired {
		return l.heldFor(r.Remaining), nil
	}
	l.fence = r.Fence
	return nil, nil
}

// heldFor returns the error for a lock that another holder has for that many ms. Below 0 means without an end.
func (l *Lock) heldFor(remaining int64) *HeldError {
	held := &HeldError{Name: l.name}
	if remaining >= 0 {
		held.Remaining = lua.Some(time.Duration(remaining) * time.Millisecond)
	}
	return held
}

func (l *Lock) failed(err error) error { return fmt.Errorf("plainlock: acquire %q: %w", l.name, err) }

// undoAfter has the times at which releases of an attempt without an answer are sent, until one of them has released
// something: the server may get the attempt after a release.
var undoAfter = [...]time.Duration{0, time.Second, 10 * time.Second}

// undo releases what an attempt without a caller has acquired, or may have acquired. It ends the attempt. What it
// cannot release ends with its TTL.
func (l *Lock) undo(ctx context.Context, replies <-chan reply) {
	defer l.locker.calls.End()
	r := <-replies
	if r.err == nil && r.Acquired {
		_, _ = (*holder)(l).release(keeper.Detach(ctx))
	}
	if bool(r.again) || errors.Is(r.err, lua.ErrOutcomeUnknown) {
		l.releaseLate(ctx)
	}
}

// releaseLate releases what a late request acquires.
func (l *Lock) releaseLate(ctx context.Context) {
	for _, after := range undoAfter {
		select {
		case <-time.After(after):
		case <-l.locker.calls.Closed(): // Close waits for this
		}
		if held, err := (*holder)(l).release(keeper.Detach(ctx)); err == nil && held {
			return
		}
	}
}

// settle makes sure that no late copy of a request that was refused, released or lost holds the lock.
func (l *Lock) settle(ctx context.Context) {
	if l.resent && l.locker.calls.Begin() {
		go func() {
			defer l.locker.calls.End()
			l.releaseLate(ctx)
		}()
	}
}
