package limit

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	limitscript "github.com/luatomic/luatomic/gen/limit"
	"github.com/luatomic/luatomic/internal/clock"
	"github.com/luatomic/luatomic/internal/send"
	"github.com/luatomic/luatomic/lua"
)

// Reservation is a right to n tokens, from a time on.
type Reservation struct {
	limiter *Limiter
	limits  []*Limit
	n       int64
	token   string
	at      time.Time     // by this process's clock
	whole   time.Duration // when it was made, until the first limit is whole
}

// Reserve spends n tokens of each of the limits, also ahead of the time at which they flow back, and says with Delay
// how long to wait before the work. It returns a *WaitError, and has spent nothing, if the wait would be longer than
// Options.MaxWait; the deadline of ctx does not matter, see Wait. n above a burst is an error.
//
// All of it is one script, with a token: after a lost reply it is sent again and spends once. If the outcome stays
// unknown, or ctx ends first, the reservation is given back. Reservations of the same limits come in order of arrival.
// With several limits it counts in each of them at the end of the wait, and occupies all of them until then.
//
// Keys: limit:{name}, limitr:{name}:token. Cost: one round trip.
func (l *Limiter) Reserve(ctx context.Context, n int64, limits ...*Limit) (*Reservation, error) {
	return l.reserve(ctx, n, l.opts.MaxWait, l.opts.Keep, limits)
}

func (l *Limiter) reserve(
	ctx context.Context, n int64, longest, keep time.Duration, limits []*Limit,
) (*Reservation, error) {
	asked, stop, err := l.check(n, limits)
	switch {
	case err != nil:
		return nil, err
	case ctx.Err() != nil:
		return nil, fmt.Errorf("luatomic: reserve %s: %w: %w", names(limits), lua.ErrNotExecuted, clock.EndOf(ctx))
	case stop != nil:
		return nil, &WaitError{By: stop.name, Wait: Forever, Max: longest}
	}
	r := &Reservation{limiter: l, limits: asked, n: n, token: l.tokens.Next(), at: time.Now()}
	if len(asked) == 0 || n == 0 {
		return r, nil
	}
	var resent send.Resent
	result, err := limitscript.Reserve(send.WatchResent(ctx, &resent), l.client, r.params(longest, keep))
	switch {
	case errors.Is(err, lua.ErrOutcomeUnknown), errors.Is(err, lua.ErrExecutedInPart):
		return nil, recordError("reserve", errors.Join(err, r.giveBack(ctx)), asked)
	case err != nil:
		return nil, recordError("reserve", err, asked)
	case result.State == limitscript.ReserveStateSettled: // by a call of this process: no other has the token
		return nil, recordError("reserve", ErrSettled, asked)
	}
	wait := time.Duration(result.Wait) * time.Microsecond
	if result.State == limitscript.ReserveStateRefused {
		if resent { // a late duplicate may find room
			_ = r.giveBack(ctx)
		}
		return nil, &WaitError{By: asked[result.By-1].name, Wait: wait, Max: longest}
	}
	r.at, r.whole = time.Now().Add(wait), time.Duration(result.Whole)*time.Microsecond
	return r, nil
}

func (r *Reservation) params(longest, keep time.Duration) limitscript.ReserveParams {
	rows := make([]limitscript.ReserveRow, len(r.limits))
	for i, of := range r.limits {
		p := &of.parts
		rows[i] = limitscript.ReserveRow{Rate: p.rate, Cost: r.n * p.token, Room: p.room, Most: p.most}
	}
	return limitscript.ReserveParams{
		Receipt: r.receipt(), Limits: records(r.limits), Wait: longest.Microseconds(), Keep: keep, Rows: rows,
	}
}

func (r *Reservation) receipt() string { return r.limits[0].keys.Receipt(r.token) }

// Delay is how long to wait still before the work. The time that the reply took is not subtracted, so no work begins
// too early.
func (r *Reservation) Delay() time.Duration { return max(time.Until(r.at), 0) }

// Cancel gives all of it back: Settle with 0.
func (r *Reservation) Cancel(ctx context.Context) error { return r.Settle(ctx, 0) }

// Settle says what the work really cost: the rest goes back, or more is spent. It counts once: a second Settle with
// another number, or one later than Options.Keep after the wait, is an ErrSettled. It is safe to send again after a
// lost reply.
//
// What is given back can be spent by later calls; a caller that waits already waits no less. At most as much goes back
// as has not flowed back since the reservation: more would let through more than the burst and the rate allow. What
// was used beyond the reservation is spent also if there is no room for it, up to MaxDebt. If ctx has ended, Settle
// makes one attempt behind the caller, within 10 s.
//
// Keys: limit:{name}, limitr:{name}:token. Cost: one round trip.
func (r *Reservation) Settle(ctx context.Context, used int64) error {
	if used < 0 {
		return r.limiter.refuse(outOfRange("used", used, "0", ""))
	}
	if len(r.limits) == 0 || r.n == 0 {
		return nil
	}
	if ctx.Err() != nil {
		return behind(ctx, func(ctx context.Context) error { return r.settle(ctx, used) })
	}
	return r.settle(ctx, used)
}

func (r *Reservation) settle(ctx context.Context, used int64) error {
	rows := make([]limitscript.SettleRow, len(r.limits))
	for i, of := range r.limits {
		p := &of.parts
		row := limitscript.SettleRow{Rate: p.rate, Most: p.most, Back: max(r.n-used, 0) * p.token}
		var fits bool
		if row.More, fits = product(max(used-r.n, 0), p.token); !fits {
			row.More = p.most
		}
		rows[i] = row
	}
	result, err := limitscript.Settle(ctx, r.limiter.client, limitscript.SettleParams{
		Receipt: r.receipt(), Limits: records(r.limits), Used: strconv.FormatInt(used, 10), Keep: r.limiter.opts.Keep,
		Rows: rows,
	})
	if err == nil && result != limitscript.SettleResultSettled {
		err = fmt.Errorf("%w: before, or its receipt is gone after %v", ErrSettled, r.limiter.opts.Keep)
	}
	return recordError("settle", err, r.limits)
}

// giveBack cancels a reservation that may have been made. A reserve that arrives later finds it cancelled.
func (r *Reservation) giveBack(ctx context.Context) error {
	return behind(ctx, func(ctx context.Context) error {
		if err := r.settle(ctx, 0); err != nil && !errors.Is(err, ErrSettled) {
			return err
		}
		return nil
	})
}

// waitKeep is how long a reservation of Wait can be given back after its wait.
const waitKeep = time.Minute

// Wait waits until n tokens of each of the limits are there, and spends them. It returns nil when the caller may go on.
// If that takes longer than Options.MaxWait, or than ctx has a deadline for, it returns a *WaitError at once and has
// spent nothing. Waiters of the same limits go on in order of arrival at the server, unless one before them gives up:
// then nobody moves up.
//
// It is a Reserve and a sleep in this process: nobody polls, and nothing is sent while it waits. When ctx ends, the
// reservation goes back behind the caller, within 10 s, and Wait returns why ctx ended. A process that dies has spent
// what it waited for.
//
// Keys: limit:{name}, limitr:{name}:token. Cost: one round trip.
func (l *Limiter) Wait(ctx context.Context, n int64, limits ...*Limit) error {
	longest := l.opts.MaxWait
	if end, ok := ctx.Deadline(); ok {
		longest = max(min(longest, time.Until(end)), 0)
	}
	r, err := l.reserve(ctx, n, longest, waitKeep, limits)
	if err != nil {
		return err
	}
	if clock.Sleep(ctx, r.Delay()) {
		return nil
	}
	return recordError("wait for", errors.Join(clock.EndOf(ctx), r.giveBack(ctx)), r.limits)
}

// grace is how long a caller still waits for what gives something back after its context has ended.
const grace = 20 * time.Millisecond

// behind makes a call that gives something back, under a context that lasts 10 s beyond ctx. When ctx ends, it returns
// nil a moment later, and the call goes on.
func behind(ctx context.Context, call func(context.Context) error) error {
	done := make(chan error, 1)
	go func() {
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTime)
		defer cancel()
		done <- call(within)
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

const giveBackTime = 10 * time.Second
