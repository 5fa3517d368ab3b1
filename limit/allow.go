package limit

import (
	"context"
	"fmt"
	"math"
	"time"

	limitscript "github.com/luatomic/luatomic/gen/limit"
	"github.com/luatomic/luatomic/lua"
)

// Decision is the answer of Allow and Peek.
type Decision struct {
	// Allowed says whether the call may go on: all limits had n tokens.
	Allowed bool
	// Remaining is how many tokens can be spent at once now, after the call. Of several limits it is the least one.
	Remaining int64
	// RetryAfter is after how long the same call can pass if nobody else spends: 0 when it is allowed, Forever when a
	// limit is blocked. Of several limits it is the longest one.
	RetryAfter time.Duration
	// ResetAfter is after how long nothing is spent, if nobody else spends. Of several limits it is the longest one.
	ResetAfter time.Duration
	// By is the name of the limit that binds: when refused the one of RetryAfter, when allowed the one of Remaining. It
	// is empty where all limits are unlimited.
	By string
}

// Allow spends n tokens of each of the limits, if all of them have so many now, or nothing. It does not wait; see Wait.
// n of 0 spends nothing, and n above the burst of a limit is an error. 1 to 64 limits; several need Options.Tag.
//
// All of it is one script: no other call comes between. The clock is that of the server. The call has no token: if it
// may have run and the reply was lost, it is not sent again, and the error is a [lua.ErrOutcomeUnknown]: n may have
// been spent. Bad input is a [lua.ErrOutOfRange] before anything is sent; a key with something else in it is an
// ErrNotALimit or a [lua.ErrWrongType].
//
// Keys: limit:{name}. Cost: one round trip, which concurrent callers share; 3 commands on the server, about one more
// for each further limit.
func (l *Limiter) Allow(ctx context.Context, n int64, limits ...*Limit) (Decision, error) {
	asked, stop, err := l.check(n, limits)
	switch {
	case err != nil:
		return Decision{}, err
	case stop != nil:
		return Decision{RetryAfter: Forever, ResetAfter: Forever, By: stop.name}, nil
	case len(asked) == 0:
		return Decision{Allowed: true, Remaining: math.MaxInt64}, nil
	case len(asked) == 1:
		return l.allowOne(ctx, n, asked[0])
	}
	result, err := limitscript.AllowAll(ctx, l.client, limitscript.AllowAllParams{
		Limits: records(asked), Rows: allowRows(n, asked),
	})
	if err != nil {
		return Decision{}, recordError("allow", err, asked)
	}
	return decide(n, asked, result.Debts, result.Allowed)
}

func (l *Limiter) allowOne(ctx context.Context, n int64, of *Limit) (Decision, error) {
	p := &of.parts
	debt, err := limitscript.Allow(ctx, l.client, limitscript.AllowParams{
		Limit: of.keys.Record, Rate: p.rate, Cost: n * p.token, Room: p.room, Most: p.most,
	})
	if err != nil {
		return Decision{}, recordError("allow", err, []*Limit{of})
	}
	allowed := debt >= 0
	if !allowed {
		debt = -1 - debt
	}
	var d Decision
	d.of(n, of, debt, allowed)
	d.Allowed = allowed
	return d, nil
}

// of adds what one limit says to the decision.
func (d *Decision) of(n int64, of *Limit, debt int64, allowed bool) {
	p := &of.parts
	left := p.tokens(debt)
	first := d.By == ""
	if first || allowed && left < d.Remaining {
		d.By = of.name
	}
	if first || left < d.Remaining {
		d.Remaining = left
	}
	if !allowed {
		if retry := p.until(debt, p.room-n*p.token); retry > d.RetryAfter {
			d.RetryAfter, d.By = retry, of.name
		}
	}
	d.ResetAfter = max(d.ResetAfter, p.until(debt, 0))
}

func decide(n int64, asked []*Limit, debts []int64, allowed bool) (Decision, error) {
	if len(debts) != len(asked) {
		return Decision{}, fmt.Errorf("luatomic: limit: %w: %d debts of %d limits", lua.ErrBadReply, len(debts),
			len(asked))
	}
	var d Decision
	for i, of := range asked {
		d.of(n, of, debts[i], allowed)
	}
	d.Allowed = allowed
	return d, nil
}

// Peek returns what Allow of 0 tokens would, and writes nothing. Remaining is what can be spent at once.
//
// Keys: limit:{name}. Cost: one round trip.
func (l *Limiter) Peek(ctx context.Context, limits ...*Limit) (Decision, error) {
	asked, stop, err := l.check(0, limits)
	switch {
	case err != nil:
		return Decision{}, err
	case stop != nil:
		return Decision{RetryAfter: Forever, ResetAfter: Forever, By: stop.name}, nil
	case len(asked) == 0:
		return Decision{Allowed: true, Remaining: math.MaxInt64}, nil
	}
	debts, err := limitscript.Peek(ctx, l.client, limitscript.PeekParams{
		Limits: records(asked), Rows: peekRows(asked),
	})
	if err != nil {
		return Decision{}, recordError("peek at", err, asked)
	}
	return decide(0, asked, debts, true)
}

// Reset makes a limit whole, whatever was spent. Reservations that are still to be settled give nothing back then.
//
// Keys: limit:{name}. Cost: one round trip.
func (l *Limiter) Reset(ctx context.Context, of *Limit) error {
	return l.setDebt(ctx, "reset", of, func(*parts) (int64, error) { return 0, nil })
}

// SetLevel sets how many tokens of a limit can be spent at once now, from 0 to the burst, after an import for example.
// Reservations that are still to be settled give nothing back then. A lost reply is a [lua.ErrOutcomeUnknown]: the
// level may have been set, and setting it again is as good.
//
// Keys: limit:{name}. Cost: one round trip.
func (l *Limiter) SetLevel(ctx context.Context, of *Limit, tokens int64) error {
	return l.setDebt(ctx, "set the level of", of, func(p *parts) (int64, error) {
		if tokens < 0 || tokens > of.rate.burst {
			return 0, outOfRange("level", tokens, "0", fmt.Sprint(of.rate.burst)+", which is the burst")
		}
		return p.room - tokens*p.token, nil
	})
}

func (l *Limiter) setDebt(ctx context.Context, what string, of *Limit, to func(*parts) (int64, error)) error {
	asked, _, err := l.check(0, []*Limit{of})
	if err != nil || len(asked) == 0 {
		return err
	}
	debt, err := to(&of.parts)
	if err == nil {
		err = limitscript.Level(ctx, l.client, limitscript.LevelParams{
			Limit: of.keys.Record, Rate: of.parts.rate, Debt: debt,
		})
	}
	return recordError(what, err, asked)
}

func records(limits []*Limit) []string {
	keys := make([]string, len(limits))
	for i, of := range limits {
		keys[i] = of.keys.Record
	}
	return keys
}

func allowRows(n int64, limits []*Limit) []limitscript.AllowAllRow {
	rows := make([]limitscript.AllowAllRow, len(limits))
	for i, of := range limits {
		p := &of.parts
		rows[i] = limitscript.AllowAllRow{Rate: p.rate, Cost: n * p.token, Room: p.room, Most: p.most}
	}
	return rows
}

func peekRows(limits []*Limit) []limitscript.PeekRow {
	rows := make([]limitscript.PeekRow, len(limits))
	for i, of := range limits {
		p := &of.parts
		rows[i] = limitscript.PeekRow{Rate: p.rate, Room: p.room, Most: p.most}
	}
	return rows
}
