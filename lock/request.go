package lock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	lockscript "github.com/luatomic/luatomic/gen/lock"
	"github.com/luatomic/luatomic/internal/calls"
	"github.com/luatomic/luatomic/internal/keeper"
	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/internal/send"
	"github.com/luatomic/luatomic/lua"
)

// protocol calls the scripts of one kind of lock. It knows neither the waiters nor the leases.
type protocol interface {
	// acquire makes one attempt.
	acquire(ctx context.Context, r *request, a attempt) (lockscript.AcquireResult, error)
	// entry is what the queue stores for r. A lease that is handed over to this entry lasts for claim.
	entry(r *request, claim time.Duration) string
	// extend adds the extension to b. outcome returns nil if the lease now lasts for ttl, and an ErrLost if it is over.
	extend(b *lua.Batch, r *request, ttl time.Duration) (outcome func() error)
	// release gives back the lease that has the fence. It returns an ErrLost if the lease was over.
	release(ctx context.Context, r *request, fence int64) error
	// withdraw leaves nothing of the request at the server: neither a grant nor its entry in the queue. An attempt that
	// arrives later does nothing.
	withdraw(ctx context.Context, r *request, entry string) error
	// void is withdraw for a lease that was lost: what the server has of it ends by itself.
	void(ctx context.Context, r *request) error
	// giveBack gives back a grant that nobody waits for, unless it was confirmed.
	giveBack(ctx context.Context, r *request) error
}

// attempt says how an attempt joins the queue.
type attempt struct {
	entry string // empty not to join
	fresh lockscript.AcquireFresh
}

// request is what one acquire asks the server for, under a token of its own. The waiter and the lease both refer to it.
type request struct {
	name    string
	keys    keys.Lock
	token   string // the owner in the scripts
	own     string // of a plain lock: its record from the owner on, see lock/acquire.lua
	channel string // where the process of a token is notified, without its name
	limit   int64  // of a semaphore or a read-write lock
	opts    *Options
	scripts protocol
	floor   *keeper.Floor // the greatest fence that this Locker knows
	calls   *calls.Group
	noted   noted
	mayHold bool // an attempt was granted something, or may have been; see noteOutcome
}

// noted is the context of a request's attempts. It records that one of them was sent twice: a copy may then still be on
// its way, and have the effect of the attempt again. It can record that while the lease of the request ends.
type noted struct {
	context.Context
	resent atomic.Bool
}

// NoteResent is called when a reply answers a repeat.
func (n *noted) NoteResent() { n.resent.Store(true) }

func (n *noted) Value(key any) any {
	if key == (send.ResentKey{}) {
		return n
	}
	return n.Context.Value(key)
}

// noteOutcome records the outcome of an attempt. The error of the last attempt does not say what earlier attempts did.
func (r *request) noteOutcome(acquired bool, err error) {
	r.mayHold = r.mayHold || acquired || err != nil && !errors.Is(err, lua.ErrNotExecuted)
}

// unsettled reports whether the server has granted something to the request, or may still do so.
func (r *request) unsettled() bool { return r.mayHold || r.noted.resent.Load() }

// unsure turns the error of the last attempt into one of all attempts: "not executed" may be false for the earlier
// ones. What the error says besides, such as the name of the lock and its key, stays.
func (r *request) unsure(err error) error {
	var last *lua.Error
	if !r.unsettled() || !errors.As(err, &last) || last.Outcome != lua.ErrNotExecuted {
		return err
	}
	all := *last
	all.Outcome, all.Detail = lua.ErrOutcomeUnknown, "a request before it was executed"
	if last.Detail != "" {
		all.Detail += ": " + last.Detail
	}
	before, after, _ := strings.Cut(err.Error(), last.Error())
	return fmt.Errorf("%s%w%s", before, &all, after)
}

// settle makes sure that no late copy of a request that is over holds anything.
func (r *request) settle(ctx context.Context) {
	if r.noted.resent.Load() {
		_ = r.withdraw(ctx, "") // what cannot be withdrawn ends with its TTL
	}
}

// settleLost is settle for a lease that was lost. It frees nothing: after the loss the lock may be closed for the
// LockDelay.
func (r *request) settleLost(ctx context.Context) {
	if r.noted.resent.Load() {
		_ = behind(ctx, r.calls, func(ctx context.Context) error { return r.scripts.void(ctx, r) })
	}
}

// voidAfter makes a request that changed a setting void, if a late copy of it may arrive and change the setting back.
func (r *request) voidAfter(ctx context.Context, call func(ctx context.Context) error) error {
	r.noted.Context = ctx
	err := call(&r.noted)
	r.noteOutcome(false, err)
	if r.unsettled() {
		_ = r.withdraw(ctx, "") // where that fails, a copy has its effect
	}
	return err
}

// grant is what the server granted: the fence, and the local end of the lease.
type grant struct {
	fence    int64
	deadline time.Time
	claim    bool // it was handed over, and is to be confirmed
}

// granted returns the grant of an attempt that was sent at sent. A remaining time of 0 means the whole TTL.
func (r *request) granted(sent time.Time, result lockscript.AcquireResult) grant {
	remaining := result.Remaining
	if remaining == 0 {
		remaining = r.opts.TTL
	}
	return grant{fence: result.Fence, deadline: keeper.End(sent, remaining)}
}

// heldBy returns the error of an attempt that found the lock held.
func (r *request) heldBy(result lockscript.AcquireResult) *HeldError {
	return &HeldError{Name: r.name, Remaining: result.Remaining, Holder: result.Holder}
}

// try makes one attempt that joins no queue. The second result is set if another owner holds the lock.
func (r *request) try(ctx context.Context) (grant, *HeldError, error) {
	sent, result, err := r.attempt(ctx, attempt{})
	switch {
	case err != nil:
		return grant{}, nil, err
	case !result.Acquired:
		return grant{}, r.heldBy(result), nil
	}
	return r.granted(sent, result), nil, nil
}

// attempt makes one attempt, in time as lease.InTime defines it; sent is when the attempt was sent.
func (r *request) attempt(ctx context.Context, a attempt) (sent time.Time, result lockscript.AcquireResult, err error) {
	keeper.InTime(func(now time.Time) (until time.Time) {
		sent = now
		if result, err = r.ask(ctx, a); err == nil && result.Acquired {
			until = r.granted(sent, result).deadline
		}
		return until
	})
	return sent, result, err
}

// ask makes one attempt. If no answer came and the attempt may have acquired the lock, ask withdraws it.
func (r *request) ask(ctx context.Context, a attempt) (lockscript.AcquireResult, error) {
	r.noted.Context = ctx
	result, err := r.scripts.acquire(&r.noted, r, a)
	r.noteOutcome(result.Acquired, err)
	if err != nil {
		return result, r.failed(ctx, err, a.entry)
	}
	r.floor.Note(max(result.Fence, result.Now))
	if result.Place == lockscript.AcquirePlaceVoid {
		return result, fmt.Errorf("luatomic: acquire %q: %w", r.name, errVoid)
	}
	return result, nil
}

// errVoid is the error of an attempt that arrived after it was withdrawn, or after the lock was taken from its owner.
var errVoid = fmt.Errorf("%w: it was taken away, or this acquire withdrawn, before its request arrived; acquire it "+
	"again",
	ErrLost)

// failed withdraws an attempt that had no answer, and returns its error.
func (r *request) failed(ctx context.Context, err error, entry string) error {
	if errors.Is(err, ErrLimit) { // an answer
		r.settle(ctx)
		return err
	}
	err = r.undone(ctx, err, entry)
	if errors.Is(err, ErrNotReplicated) {
		return err
	}
	return fmt.Errorf("luatomic: acquire %q: %w", r.name, recordError(err, r.keys.Record))
}

// undone withdraws the request unless the server has executed none of its attempts. It returns the errors of both.
func (r *request) undone(ctx context.Context, err error, entry string) error {
	if isForeign(err) || !r.unsettled() && entry == "" {
		return err
	}
	return errors.Join(r.unsure(err), r.withdraw(ctx, entry))
}

// withdraw leaves nothing of a request at the server: neither a lock nor an entry in the queue. When ctx ends, the
// caller returns and the call goes on.
func (r *request) withdraw(ctx context.Context, entry string) error {
	return behind(ctx, r.calls, func(ctx context.Context) error { return r.scripts.withdraw(ctx, r, entry) })
}

// isLayout reports whether a script found something else under the key. The script has changed nothing.
func isLayout(err error) bool {
	layout := (*lua.Error)(nil)
	return errors.As(err, &layout) && layout.Code == "LAYOUT"
}

// isForeign reports whether a script found a value under the key that is no lock. The script has changed nothing, and
// there is nothing to withdraw.
func isForeign(err error) bool { return isLayout(err) || errors.Is(err, lua.ErrWrongType) }

// recordError returns err, as an ErrNotALock if the script found something else under the key.
func recordError(err error, key string) error {
	if isLayout(err) {
		return fmt.Errorf("%w: key %q; delete it when no process uses it: %w", ErrNotALock, key, err)
	}
	return err
}

// grace is how long a caller still waits for a call after its context has ended or its Locker was closed. The call goes
// on after that.
const grace = 20 * time.Millisecond

// behind makes a call that gives something back or notifies, under a context that does not end with ctx. It returns
// when the call does. When ctx ends or all is closed, it returns nil a moment later, and the call goes on. Close waits
// for the call.
func behind(ctx context.Context, all *calls.Group, call func(context.Context) error) error {
	done := make(chan error, 1)
	all.Add()
	go func() {
		defer all.End()
		done <- call(keeper.Detach(ctx))
	}()
	if ctx.Err() == nil {
		select {
		case err := <-done:
			return err
		case <-ctx.Done():
		case <-all.Closed():
		}
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return nil
	}
}
