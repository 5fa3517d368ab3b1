package limit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/luatomic/luatomic/internal/clock"
	"github.com/luatomic/luatomic/lua"
)

// LeasedOptions are the settings of a Leased.
type LeasedOptions struct {
	// Chunk is how many tokens one round trip takes. The default is what flows back in 50 ms, and 1 at least; at most
	// the burst.
	Chunk int64
}

// Leased passes calls of one limit without a round trip for each: it takes tokens in chunks, and spends them in this
// process. All of its tokens are spent in Redis before it passes any. So all processes together never pass more than
// the limit; they pass less by what they hold, at most a chunk each. It is safe for concurrent use.
type Leased struct {
	limit *Limit
	chunk int64
	bad   error
	fetch chan struct{} // holds one value while nobody fetches

	mu    sync.Mutex
	epoch time.Time     // the times below are since then, by this process' clock
	left  int64         // tokens of the chunk
	lapse time.Duration // when none of them would be left if they flowed back
	token time.Duration // how long one takes to flow back, rounded up
	held  *Reservation  // of the chunk
	shut  time.Duration // until when the limit has no room
	need  int64         // for so many tokens
}

// leastLeased is the least rate in tokens a second of which a chunk is worth its round trip.
const leastLeased = 10

// Leased returns the limit with a share of its tokens in this process; nil options mean the defaults. Nothing is sent.
// A rate below 10 tokens a second is an error of each call: a chunk of one token saves no round trip.
func (l *Limiter) Leased(of *Limit, opts *LeasedOptions) *Leased {
	out := &Leased{limit: of, fetch: make(chan struct{}, 1), epoch: time.Now()}
	out.fetch <- struct{}{}
	asked, _, err := l.check(0, []*Limit{of})
	if out.bad = err; err != nil || len(asked) == 0 {
		return out
	}
	p := &of.parts
	out.chunk = min(max(1, int64(float64(p.rate)*50_000/float64(p.token))), of.rate.burst)
	if opts != nil && opts.Chunk != 0 {
		out.chunk = opts.Chunk
	}
	out.token = time.Duration((p.token*1000 + p.rate - 1) / p.rate)
	switch {
	case p.rate*1_000_000/p.token < leastLeased:
		out.bad = l.refuse(&lua.RangeError{
			Field: "rate of Leased", Value: of.rate.String(),
			Min: "10 tokens a second; a slower one saves no round trip, use Allow",
		})
	case out.chunk < 1 || out.chunk > of.rate.burst:
		out.bad = l.refuse(outOfRange("Chunk", out.chunk, "1", fmt.Sprint(of.rate.burst)+", which is the burst"))
	}
	return out
}

// Allow spends n tokens if they are there, and reports whether they were. While the chunk has them, nothing is sent and
// ctx does not matter; else one caller takes the next chunk, and the others wait for it. It remembers until when the
// limit has no room, and sends nothing until then. Errors are those of Reserve; nothing was passed then.
//
// A token of the chunk counts in Redis from the time at which it was taken. As it flows back there, it ends here: so a
// process that is slower than its chunk loses the rest, and no window passes more than the limit.
func (l *Leased) Allow(ctx context.Context, n int64) (bool, error) {
	if l.bad != nil {
		return false, l.bad
	}
	if l.limit.rate.kind != per || n < 0 || n > l.limit.rate.burst {
		d, err := l.limit.limiter.Allow(ctx, n, l.limit)
		return d.Allowed, err
	}
	if passed, known := l.spend(n); known {
		return passed, nil
	}
	select {
	case <-l.fetch:
	case <-ctx.Done():
		return false, fmt.Errorf("luatomic: limit %q: %w", l.limit.name, clock.EndOf(ctx))
	}
	defer func() { l.fetch <- struct{}{} }()
	if passed, known := l.spend(n); known {
		return passed, nil
	}
	return l.next(ctx, n)
}

// spend takes n tokens of the chunk. It knows no answer where the limit must be asked.
func (l *Leased) spend(n int64) (passed, known bool) {
	now := time.Since(l.epoch)
	l.mu.Lock()
	defer l.mu.Unlock()
	if n <= l.left && n <= int64((l.lapse-now)/l.token) {
		l.left = min(l.left, int64((l.lapse-now)/l.token)) - n
		return true, true
	}
	return false, now < l.shut && n >= l.need
}

// next takes the next chunk, or n tokens where there is no room for more.
func (l *Leased) next(ctx context.Context, n int64) (bool, error) {
	for _, size := range []int64{max(l.chunk, n), n} {
		from := time.Since(l.epoch)
		r, err := l.limit.limiter.reserve(ctx, size, 0, waitKeep, []*Limit{l.limit})
		var refused *WaitError
		switch {
		case err == nil:
			l.add(r, n, from)
			return true, nil
		case !errors.As(err, &refused):
			return false, err
		case size == n:
			l.close(size, from+refused.Wait)
		}
		if size == n {
			break
		}
	}
	return false, nil
}

// add adds a chunk of which n is spent. What is left of the one before stays as long as this one.
func (l *Leased) add(r *Reservation, n int64, from time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	kept := max(min(l.left, int64((l.lapse-time.Since(l.epoch))/l.token)), 0)
	l.left, l.lapse, l.held = kept+r.n-n, from+r.whole, r
}

func (l *Leased) close(n int64, until time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.need, l.shut = n, until
}

// Close gives the rest of the chunk back, as Reservation.Settle does. An Allow after it takes a new chunk.
func (l *Leased) Close(ctx context.Context) error {
	l.mu.Lock()
	r, left := l.held, l.left
	l.left, l.held = 0, nil
	l.mu.Unlock()
	if r == nil || left == 0 {
		return nil
	}
	if err := r.Settle(ctx, max(r.n-left, 0)); err != nil && !errors.Is(err, ErrSettled) {
		return err
	}
	return nil
}
