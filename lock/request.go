package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/internal/lease"
	"github.com/luatomic/luatomic/lua"
)

// protocol is the scripts of one kind of lock. It knows neither who waits nor what is held.
type protocol interface {
	// acquire makes one attempt. It joins the queue with the entry, unless that is empty.
	acquire(ctx context.Context, r *request, entry string) (gen.LockAcquireResult, error)
	// entry is what the queue stores for r. A lease that is handed over by it lasts for claim.
	entry(r *request, claim time.Duration, channel string) string
	// extend adds the extension to b; outcome is nil where the lease lasts for ttl now, an ErrLost where it is over.
	extend(b *lua.Batch, r *request, ttl time.Duration) (outcome func() error)
	// release gives the lock back, or leaves the queue with the entry. It returns an ErrLost where the lease was
	// over.
	release(ctx context.Context, r *request, entry string) error
}

// request is what one acquire asks the server for, under a token of its own. Waiting and holding both refer to it.
type request struct {
	name    string
	keys    keys.Lock
	token   string // the owner in the scripts
	limit   int64  // of a semaphore or a read-write lock
	opts    *Options
	scripts protocol
}

// grant is what the server gave: the fence, and the local end of the lease.
type grant struct {
	fence    int64
	deadline time.Time
}

// granted is the grant of an attempt that was sent at sent; a remaining time of 0 is the whole TTL.
func (r *request) granted(sent time.Time, result gen.LockAcquireResult) grant {
	remaining := result.Remaining
	if remaining == 0 {
		remaining = r.opts.TTL
	}
	return grant{result.Fence, lease.End(sent, remaining)}
}

// heldBy is the error of an attempt that found the lock held.
func (r *request) heldBy(result gen.LockAcquireResult) *HeldError {
	return &HeldError{Name: r.name, Remaining: result.Remaining, Holder: result.Holder}
}

// try makes one attempt that joins no queue. The second result is set where the lock is held.
func (r *request) try(ctx context.Context) (grant, *HeldError, error) {
	sent := time.Now()
	result, err := r.attempt(ctx, "")
	switch {
	case err != nil:
		return grant{}, nil, err
	case !result.Acquired:
		return grant{}, r.heldBy(result), nil
	}
	return r.granted(sent, result), nil, nil
}

// attempt makes one attempt, and withdraws it where it may have got the lock without an answer.
func (r *request) attempt(ctx context.Context, entry string) (gen.LockAcquireResult, error) {
	result, err := r.scripts.acquire(ctx, r, entry)
	if err != nil {
		err = r.failed(ctx, err, entry)
	}
	return result, err
}

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
	return fmt.Errorf("luatomic: acquire %q: %w", r.name, err)
}

// withdraw leaves nothing of a request at the server: neither a lock nor an entry in the queue.
func (r *request) withdraw(ctx context.Context, entry string) error {
	if err := r.scripts.release(lease.Detach(ctx), r, entry); err != nil && !errors.Is(err, ErrLost) {
		return err
	}
	return nil
}
