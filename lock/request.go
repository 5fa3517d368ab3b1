package lock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/internal/lease"
	"github.com/luatomic/luatomic/lua"
)

// protocol is the scripts of one kind of lock. It knows neither who waits nor what is held.
type protocol interface {
	// acquire makes one attempt.
	acquire(ctx context.Context, r *request, a attempt) (gen.LockAcquireResult, error)
	// entry is what the queue stores for r. A lease that is handed over by it lasts for claim.
	entry(r *request, claim time.Duration) string
	// extend adds the extension to b; outcome is nil where the lease lasts for ttl now, an ErrLost where it is over.
	extend(b *lua.Batch, r *request, ttl time.Duration) (outcome func() error)
	// release gives back what has the fence. It returns an ErrLost where the lease was over.
	release(ctx context.Context, r *request, fence int64) error
	// withdraw leaves nothing of the request at the server: neither what it was granted, nor the entry in the queue,
	// nor what an attempt that arrives later would do.
	withdraw(ctx context.Context, r *request, entry string) error
	// giveBack gives back a grant that nobody waits for, if it was not confirmed.
	giveBack(ctx context.Context, r *request) error
}

// attempt says how an attempt joins the queue.
type attempt struct {
	entry string // empty not to join
	fresh gen.LockAcquireFresh
}

// request is what one acquire asks the server for, under a token of its own. Waiting and holding both refer to it.
type request struct {
	name        string
	keys        keys.Lock
	token       string // the owner in the scripts
	own         string // of a plain lock: its record from the owner on, see lock_acquire.lua
	channel     string // where the process of a token is notified, without its name
	limit       int64  // of a semaphore or a read-write lock
	opts        *Options
	scripts     protocol
	floor       *floor
	withdrawals *withdrawals
}

// floor is the greatest fence that this process knows. It is sent along with each acquire, so that a clock of a server
// that was set back gives no smaller one.
type floor struct{ fence atomic.Int64 }

// maxFence bounds the fences that are believed: the scripts count exactly up to 2^53.
const maxFence = 1<<52 - 1

func (f *floor) last() int64 { return f.fence.Load() }

// note raises the floor.
func (f *floor) note(fence int64) {
	for was := f.fence.Load(); was < fence && fence <= maxFence; was = f.fence.Load() {
		if f.fence.CompareAndSwap(was, fence) {
			return
		}
	}
}

// grant is what the server gave: the fence, and the local end of the lease.
type grant struct {
	fence    int64
	deadline time.Time
	claim    bool // it was handed over, and is to be confirmed
}

// granted is the grant of an attempt that was sent at sent; a remaining time of 0 is the whole TTL.
func (r *request) granted(sent time.Time, result gen.LockAcquireResult) grant {
	remaining := result.Remaining
	if remaining == 0 {
		remaining = r.opts.TTL
	}
	return grant{fence: result.Fence, deadline: lease.End(sent, remaining)}
}

// heldBy is the error of an attempt that found the lock held.
func (r *request) heldBy(result gen.LockAcquireResult) *HeldError {
	return &HeldError{Name: r.name, Remaining: result.Remaining, Holder: result.Holder}
}

// try makes one attempt that joins no queue. The second result is set where the lock is held.
func (r *request) try(ctx context.Context) (grant, *HeldError, error) {
	sent := time.Now()
	result, err := r.attempt(ctx, attempt{})
	switch {
	case err != nil:
		return grant{}, nil, err
	case !result.Acquired:
		return grant{}, r.heldBy(result), nil
	}
	return r.granted(sent, result), nil, nil
}

// attempt makes one attempt, and withdraws it where it may have got the lock without an answer.
func (r *request) attempt(ctx context.Context, a attempt) (gen.LockAcquireResult, error) {
	result, err := r.scripts.acquire(ctx, r, a)
	if err != nil {
		return result, r.failed(ctx, err, a.entry)
	}
	r.floor.note(max(result.Fence, result.Now))
	if result.Place == gen.LockAcquirePlaceVoid {
		return result, fmt.Errorf("luatomic: acquire %q: %w", r.name, errVoid)
	}
	return result, nil
}

// errVoid is of an attempt that arrived after it was withdrawn, or after the lock was taken away from its owner.
var errVoid = fmt.Errorf("%w: the token is void", ErrLost)

// failed withdraws an attempt without an answer, and returns its error.
func (r *request) failed(ctx context.Context, err error, entry string) error {
	if errors.Is(err, ErrLimit) {
		return err // an answer
	}
	if !errors.Is(err, lua.ErrNotExecuted) || entry != "" {
		err = errors.Join(err, r.withdraw(ctx, entry))
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		err = errors.Join(err, cause) // go-redis knows ctx.Err() alone
	}
	if errors.Is(err, ErrNotReplicated) {
		return err
	}
	return fmt.Errorf("luatomic: acquire %q: %w", r.name, recordError(err, r.keys.Record))
}

// grace is how long a caller whose context has ended waits for its withdrawal, which goes on after that.
const grace = 20 * time.Millisecond

// withdraw leaves nothing of a request at the server: neither a lock nor an entry in the queue. The call goes on when
// the caller whose context has ended has left.
func (r *request) withdraw(ctx context.Context, entry string) error {
	done := make(chan error, 1)
	r.withdrawals.begin()
	go func() {
		defer r.withdrawals.end()
		done <- r.scripts.withdraw(lease.Detach(ctx), r, entry)
	}()
	if ctx.Err() == nil {
		select {
		case err := <-done:
			return err
		case <-ctx.Done():
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

// ErrNotALock says that the key of a lock, a semaphore or a read-write lock holds something else: that of another
// version of this library, or a value of another program. Nothing was changed. Where no process uses it, delete the key.
var ErrNotALock = errors.New("luatomic: not a lock of this version")

// recordError is err, as an ErrNotALock where the server found something else under the key.
func recordError(err error, key string) error {
	if layout := (*lua.Error)(nil); errors.As(err, &layout) && layout.Code == "LAYOUT" {
		return fmt.Errorf("%w: key %q; delete it when no process uses it: %w", ErrNotALock, key, err)
	}
	return err
}
