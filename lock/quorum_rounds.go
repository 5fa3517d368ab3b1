package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/resent"
	"github.com/luatomic/luatomic/lua"
)

// quorumKind is the kind of one lease on a majority of servers.
type quorumKind struct {
	q     *Quorum
	nodes []nodeLock
}

// nodeLock is what one server has to do with a lease.
type nodeLock struct {
	asked chan struct{} // closed when the acquire there has come to its end
	may   bool          // it may have given the lock; known then
}

func newQuorumKind(q *Quorum) *quorumKind {
	k := &quorumKind{q: q, nodes: make([]nodeLock, len(q.nodes))}
	for i := range k.nodes {
		k.nodes[i].asked = make(chan struct{})
	}
	return k
}

// padded is how long a lease of that length is on the servers: longer by what their
// clocks may run faster than ours.
func padded(ttl time.Duration) time.Duration { return ttl + ttl/100 + 2*time.Millisecond }

func (*quorumKind) entry(*Lease, time.Duration, string) string { return "" }

// acquire takes two rounds: in the first a majority gives the lock, each server with a
// fence of its own; in the second it agrees on the greatest of them.
func (k *quorumKind) acquire(ctx context.Context, l *Lease, _ string) (gen.LockAcquireResult, error) {
	q := k.q
	start, ttl := time.Now(), q.locker.opts.TTL
	owner, lock := l.token, l.keys
	first := ask(ctx, q, q.opts.NodeTimeout, func(ctx context.Context, node int) (gen.LockAcquireResult, error) {
		r, err := gen.LockAcquire(ctx, q.nodes[node], gen.LockAcquireParams{
			Lock: lock.Record, Queue: lock.Queue, Owner: owner, TTL: padded(ttl), Keep: padded(ttl) + afterlife, Note: q.opts.Note,
		})
		k.nodes[node].may = r.Acquired || err != nil && !errors.Is(err, lua.ErrNotExecuted)
		close(k.nodes[node].asked)
		return r, err
	})
	out := gen.LockAcquireResult{}
	fences := make([]int64, len(q.nodes))
	var errs []error
	got, held := 0, 0
	for got < q.majority() && len(errs)+held <= len(q.nodes)-q.majority() {
		a, ok := first.next()
		switch {
		case !ok:
			errs = append(errs, q.silent(ctx))
		case a.err != nil:
			errs = append(errs, a.err)
		case a.value.Acquired:
			got++
			fences[a.node] = a.value.Fence
			out.Fence = max(out.Fence, a.value.Fence)
		default:
			if held == 0 || a.value.Remaining < out.Remaining {
				out.Remaining, out.Holder = a.value.Remaining, a.value.Holder
			}
			held++
		}
		if !ok {
			break
		}
	}
	var err error
	if out.Acquired = got >= q.majority(); out.Acquired {
		err = q.agree(ctx, l, fences, out.Fence)
		if err == nil && !time.Now().Before(l.ends(start, 0)) {
			err = fmt.Errorf("%w: it took longer than the lease", ErrNoQuorum)
		}
		if err == nil {
			return out, nil
		}
	} else if got+held < q.majority() {
		err = errors.Join(append([]error{ErrNoQuorum}, errs...)...)
	}
	out.Acquired = false
	k.giveBack(context.WithoutCancel(ctx), l)
	return out, err
}

// silent is why the next answer did not come.
func (q *Quorum) silent(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("no answer within %v", q.opts.NodeTimeout)
}

// errNotTaken is of a server that has no part in the second round.
var errNotTaken = errors.New("did not give the lock in time")

// agree raises the fences of the nodes that gave the lock to the greatest, until a
// majority has it.
func (q *Quorum) agree(ctx context.Context, l *Lease, fences []int64, fence int64) error {
	lock, owner := l.keys.Record, l.token
	second := ask(ctx, q, q.opts.NodeTimeout, func(ctx context.Context, node int) (bool, error) {
		switch fences[node] {
		case 0:
			return false, errNotTaken
		case fence:
			return true, nil
		}
		return gen.LockFence(ctx, q.nodes[node], gen.LockFenceParams{Lock: lock, Owner: owner, Least: fence})
	})
	if err := tally(q, second, func(raised bool) bool { return raised }); err != nil {
		return fmt.Errorf("%w: no common fence: %v", ErrNoQuorum, err)
	}
	return nil
}

// tally wants a majority of the answers to be good. It returns ErrLost when so many
// are not that this cannot be, else what kept the servers from answering.
func tally[T any](q *Quorum, came *answers[T], good func(T) bool) error {
	errs := []error{ErrNoQuorum}
	for yes, no := 0, 0; ; {
		a, ok := came.next()
		switch {
		case !ok && came.left > 0:
			return errors.Join(append(errs, q.silent(context.Background()))...)
		case !ok:
			return errors.Join(errs...)
		case a.err != nil:
			errs = append(errs, a.err)
		case good(a.value):
			yes++
		default:
			no++
		}
		if yes >= q.majority() {
			return nil
		}
		if no > len(q.nodes)-q.majority() {
			return ErrLost
		}
	}
}

// giveBack releases the lock wherever it was given or may be given yet: on each
// server after the acquire there has come to its end, and until the lease would be
// over anyway. The answers are whether a server had it.
func (k *quorumKind) giveBack(ctx context.Context, l *Lease) *answers[bool] {
	q := k.q
	// Each server has its own answer: none of them is the one that was sent again.
	ctx = context.WithValue(ctx, resent.Key{}, nil)
	ttl := padded(q.locker.opts.TTL)
	params := gen.LockReleaseParams{Lock: l.keys.Record, Queue: l.keys.Queue, Owner: l.token, Keep: ttl + afterlife}
	return ask(ctx, q, ttl, func(ctx context.Context, node int) (bool, error) {
		<-k.nodes[node].asked
		if !k.nodes[node].may {
			return false, nil
		}
		state, err := gen.LockRelease(ctx, q.nodes[node], params)
		return state == gen.LockReleaseResultReleased, err
	})
}

func (k *quorumKind) extend(_ *lua.Batch, l *Lease, ttl time.Duration) func() error {
	q, lock, owner := k.q, l.key, l.token
	came := ask(context.Background(), q, q.opts.NodeTimeout, func(ctx context.Context, node int) (gen.LockExtendResult, error) {
		return gen.LockExtend(ctx, q.nodes[node], gen.LockExtendParams{Lock: lock, Owner: owner, TTL: padded(ttl), Keep: padded(ttl) + afterlife})
	})
	return func() error {
		return l.verdict("extend", tally(q, came, func(r gen.LockExtendResult) bool { return r == gen.LockExtendResultExtended }))
	}
}

// verdict says what became of the lease.
func (l *Lease) verdict(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrLost):
		return fmt.Errorf("%w: too few servers hold %q", err, l.name)
	}
	return fmt.Errorf("luatomic: %s %q: %w", what, l.name, err)
}

func (k *quorumKind) release(ctx context.Context, l *Lease, _ string) error {
	err := tally(k.q, k.giveBack(ctx, l), func(had bool) bool { return had })
	if errors.Is(err, ErrLost) {
		err = l.verdict("release", err)
	}
	return err
}
