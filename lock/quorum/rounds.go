package quorum

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	lockscript "github.com/luatomic/luatomic/gen/lock"
	"github.com/luatomic/luatomic/internal/keeper"
	"github.com/luatomic/luatomic/internal/send"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/lua"
)

// onServers is how long the servers store a lease of that length. It is longer, because the clocks of the servers may
// run faster than ours.
func onServers(ttl time.Duration) time.Duration { return ttl + ttl/100 + 2*time.Millisecond }

// stay is how long the record of a lock stays on a server after the lease. So the next fence there is greater, even if
// this fence came from a server whose clock is ahead.
const stay = time.Minute

// maxSkew bounds how much the clocks of a majority's servers may differ. It is well below stay: after stay, a server
// has only its clock to make the next fence greater.
const maxSkew = stay / 2

// grant is the answer of a server that granted the lock: its fence, and its clock in us.
type grant struct{ fence, clock int64 }

// votes are the answers of the first round.
type votes struct {
	grants map[int]grant // by node
	held   int
	holder lock.HeldError // the one whose lease ends first
	errs   []error
}

// acquire takes two rounds. In the first one a majority grants the lock, each server with a fence of its own. In the
// second one the majority agrees on the greatest of these fences. The first result is set if other owners hold the
// lock.
func (l *Lease) acquire(ctx context.Context) (*lock.HeldError, error) {
	sent := time.Now()
	v := l.vote(ctx)
	err := v.failure(l.q)
	if fences := v.together(); len(fences) >= l.q.majority() {
		if err = l.agree(ctx, fences); err == nil && keeper.Left(keeper.End(sent, l.q.opts.TTL)) <= 0 {
			err = fmt.Errorf("%w: the answers took longer than the TTL of %v", ErrNoQuorum, l.q.opts.TTL)
		}
		if err == nil {
			return nil, nil
		}
	}
	l.withdraw(context.WithoutCancel(ctx))
	if err != nil {
		return nil, err
	}
	return &v.holder, nil
}

// vote is the first round. It ends when no further answer can change the result.
func (l *Lease) vote(ctx context.Context) votes {
	q := l.q
	ttl := onServers(q.opts.TTL)
	params := lockscript.AcquireParams{
		Lock: l.keys.Record, Queue: l.keys.Queue, TTL: ttl, Floor: q.floor.Last(),
		Own: fmt.Sprintf(" %s 0 %d %s", l.token, stay.Milliseconds(), q.opts.Note),
	}
	answers := askAll(ctx, q, q.opts.NodeTimeout, func(ctx context.Context, node int) (lockscript.AcquireResult,
		error) {
		var again send.Resent
		r, err := lockscript.Acquire(send.WatchResent(ctx, &again), q.clients[node], params)
		l.nodes[node].again = bool(again)
		l.nodes[node].may = bool(again) || r.Acquired || err != nil && !errors.Is(err, lua.ErrNotExecuted)
		close(l.nodes[node].asked)
		return r, l.named(err)
	})
	answers.closed = q.calls.Closed()
	v := votes{grants: make(map[int]grant), holder: lock.HeldError{Name: l.name}}
	for !v.decided(q) {
		a, ok := answers.next()
		if !ok {
			v.errs = append(v.errs, answers.missing(ctx))
			break
		}
		v.add(a)
	}
	return v
}

// decided reports whether a majority has granted the lock, or no majority can: a majority has answered and too many
// servers refused, failed or have a clock that is too far off, or too many servers failed. Which of these it is does
// not depend on who answers first.
func (v *votes) decided(q *Quorum) bool {
	most := len(q.clients) - q.majority() // may fail or refuse
	if granted := len(v.grants); granted+v.held >= q.majority() {
		together := len(v.together())
		return together >= q.majority() || v.held+len(v.errs)+granted-together > most
	}
	return len(v.errs) > most
}

// failure is why no majority granted the lock, and nil where others hold it.
func (v *votes) failure(q *Quorum) error {
	switch {
	case len(v.grants)+v.held < q.majority():
		return q.failure(v.errs)
	case v.held == 0:
		return fmt.Errorf("%w: they differ by %v, and may differ by %v at most", ErrClocks, v.skew(), maxSkew)
	}
	return nil
}

// together returns the fences, by node, of the most servers that granted the lock and whose clocks differ by maxSkew at
// most. The clock of each other one is a fault of its server, as if that did not answer.
func (v *votes) together() map[int]int64 {
	var most map[int]int64
	for _, first := range v.grants {
		fences := make(map[int]int64, len(v.grants))
		for node, g := range v.grants {
			if g.clock >= first.clock && g.clock-first.clock <= maxSkew.Microseconds() {
				fences[node] = g.fence
			}
		}
		if len(fences) > len(most) {
			most = fences
		}
	}
	return most
}

// skew is by how much the clocks of the servers that granted the lock differ.
func (v *votes) skew() time.Duration {
	least, most := int64(math.MaxInt64), int64(math.MinInt64)
	for _, g := range v.grants {
		least, most = min(least, g.clock), max(most, g.clock)
	}
	return time.Duration(most-least) * time.Microsecond
}

func (v *votes) add(a answer[lockscript.AcquireResult]) {
	switch r := a.value; {
	case a.err != nil:
		v.errs = append(v.errs, a.err)
	case r.Acquired:
		v.grants[a.node] = grant{r.Fence, r.Now}
	default:
		if v.held == 0 || r.Remaining < v.holder.Remaining {
			v.holder.Remaining, v.holder.Holder = r.Remaining, r.Holder
		}
		v.held++
	}
}

// errNotGranted is the error of a server that takes no part in the second round.
var errNotGranted = errors.New("did not grant the lock in time, or by a clock that is too far off")

// agree is the second round. It raises the fences of the servers to the greatest one, until a majority has that.
func (l *Lease) agree(ctx context.Context, fences map[int]int64) error {
	q := l.q
	for _, fence := range fences {
		l.fence = max(l.fence, fence)
	}
	q.floor.Note(l.fence)
	params := lockscript.FenceParams{Lock: l.keys.Record, Owner: l.token, Least: l.fence}
	second := askAll(ctx, q, q.opts.NodeTimeout, func(ctx context.Context, node int) (bool, error) {
		switch fences[node] {
		case 0:
			return false, errNotGranted
		case params.Least:
			return true, nil
		}
		return lockscript.Fence(ctx, q.clients[node], params)
	})
	if err := tally(q, second, func(raised bool) bool { return raised }); err != nil {
		return fmt.Errorf("%w: no common fence: %v", ErrNoQuorum, err)
	}
	return nil
}

// withdraw releases the lock on each server that granted it or may still grant it.
func (l *Lease) withdraw(ctx context.Context) { l.giveBack(ctx, l.leave) }

// leave releases the lock on one server, and makes its token void there: a request that arrives later does nothing.
func (l *Lease) leave(ctx context.Context, node int) (bool, error) {
	return lockscript.Leave(ctx, l.q.clients[node], lockscript.LeaveParams{
		Lock: l.keys.Record, Queue: l.keys.Queue, Owner: l.token, How: lockscript.LeaveHowVoid, Stay: stay,
	})
}

// settle keeps copies of the requests of a lease that is over from holding anything.
func (l *Lease) settle() {
	l.giveBack(context.Background(), func(ctx context.Context, node int) (bool, error) {
		return false, l.settleAt(ctx, node)
	})
}

func (l *Lease) settleAt(ctx context.Context, node int) error {
	if !l.nodes[node].again {
		return nil
	}
	_, err := l.leave(ctx, node)
	return err
}

func (l *Lease) release(ctx context.Context) error {
	answers := l.giveBack(ctx, l.releaseAt)
	return l.tooFew(tally(l.q, answers, func(had bool) bool { return had }))
}

// releaseAt releases the lock on one server, once. A repeat finds what the request before it has released.
func (l *Lease) releaseAt(ctx context.Context, node int) (had bool, err error) {
	at := &l.nodes[node]
	at.releasing.Lock()
	defer at.releasing.Unlock()
	if at.released {
		return true, nil
	}
	var repeated send.Resent
	state, err := lockscript.Release(send.WatchResent(ctx, &repeated), l.q.clients[node], lockscript.ReleaseParams{
		Lock: l.keys.Record, Queue: l.keys.Queue, Owner: l.token, Stay: stay,
	})
	if err == nil {
		_ = l.settleAt(ctx, node) // where it fails, a copy ends with its TTL
	}
	at.released = state == lockscript.ReleaseResultReleased || bool(repeated) &&
		state != lockscript.ReleaseResultRevoked
	return at.released, l.named(err)
}

// giveBack calls each server that granted the lock or may still: after the acquire there has ended, and until the lease
// would be over. The answers are whether the server had granted it.
func (l *Lease) giveBack(ctx context.Context, call func(context.Context, int) (bool, error)) *answers[bool] {
	// A repeat at one server says nothing of the answers of the others.
	ctx = context.WithValue(ctx, send.ResentKey{}, nil)
	return askAll(ctx, l.q, onServers(l.q.opts.TTL), func(ctx context.Context, node int) (bool, error) {
		<-l.nodes[node].asked
		if !l.nodes[node].may {
			return false, nil
		}
		return call(ctx, node)
	})
}

func (l *Lease) extend(ttl time.Duration) (outcome func() error) {
	q := l.q
	length := onServers(ttl)
	params := lockscript.ExtendParams{Lock: l.keys.Record, Owner: l.token, TTL: length}
	extend := func(ctx context.Context, node int) (lockscript.ExtendResult, error) {
		r, err := lockscript.Extend(ctx, q.clients[node], params)
		return r, l.named(err)
	}
	answers := askAll(context.Background(), q, q.opts.NodeTimeout, extend)
	return func() error {
		err := tally(q, answers, func(r lockscript.ExtendResult) bool { return r == lockscript.ExtendResultExtended })
		if err != nil && !errors.Is(err, lock.ErrLost) {
			return fmt.Errorf("luatomic: extend %q: %w", l.name, err)
		}
		return l.tooFew(err)
	}
}

// tooFew adds to a loss what it is a loss of.
func (l *Lease) tooFew(err error) error {
	if errors.Is(err, lock.ErrLost) {
		return fmt.Errorf("%w: too few servers hold %q", err, l.name)
	}
	return err
}
