package limit

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/luatomic/luatomic/internal/keeper"
	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/internal/send"
	"github.com/luatomic/luatomic/lua"
)

// Options are the settings of a Limiter. The zero value is ready to use. All programs that use a limit have the same
// Prefix, Tag and MaxDebt.
type Options struct {
	// Prefix comes before every key, such as "app:".
	Prefix string
	// Tag puts all limits of this Limiter into one slot of a cluster, and is part of their keys. Several limits in one
	// call need it.
	Tag string
	// MaxDebt is how far reservations may go beyond the burst: no reservation waits longer. After the server's clock
	// was set back, no call waits longer than for the burst and MaxDebt. Default 1 minute.
	MaxDebt time.Duration
	// MaxWait is the longest wait of Wait and Reserve. Default and maximum: MaxDebt.
	MaxWait time.Duration
	// Keep is how long after its wait a reservation can be settled or cancelled. Default 10 minutes; about 150 B for
	// each reservation that long.
	Keep time.Duration
}

// Forever is the RetryAfter of a limit that is blocked.
const Forever = time.Duration(math.MaxInt64)

// Limiter has the limits of one client and one slot. It holds no connection and needs no Close. It is safe for
// concurrent use.
type Limiter struct {
	client lua.Client
	opts   Options
	bad    error
	tokens *keeper.Tokens
}

// New returns a Limiter; nil options mean the defaults. Nothing is sent and nothing starts. Options out of range are an
// error of each call.
func New(client lua.Client, opts *Options) *Limiter {
	l := &Limiter{client: client, tokens: keeper.NewTokens()}
	if opts != nil {
		l.opts = *opts
	}
	o := &l.opts
	if o.MaxDebt == 0 {
		o.MaxDebt = time.Minute
	}
	if o.MaxWait == 0 {
		o.MaxWait = o.MaxDebt
	}
	if o.Keep == 0 {
		o.Keep = 10 * time.Minute
	}
	l.bad = errors.Join(send.CheckClient(client), keeper.CheckSettings(
		keeper.Setting{Field: "MaxDebt", Value: o.MaxDebt, Min: time.Millisecond},
		keeper.Setting{Field: "MaxWait", Value: o.MaxWait, Min: time.Microsecond},
		keeper.Setting{Field: "Keep", Value: o.Keep, Min: time.Second},
	))
	if l.bad == nil && o.MaxWait > o.MaxDebt {
		l.bad = &lua.RangeError{
			Field: "MaxWait", Value: o.MaxWait.String(), Max: o.MaxDebt.String() + ", which is MaxDebt",
		}
	}
	return l
}

// Limit is one limit by name, with the rate that the calls of this value apply. It is safe for concurrent use.
type Limit struct {
	limiter *Limiter
	name    string
	rate    Rate
	keys    keys.Limit
	parts   parts
	bad     error
}

// Rate returns the limit of that name with a rate. Nothing is sent. Redis stores when the limit is whole again, and not
// the rate: a changed rate counts from the next call on, in each program as soon as it has it. A name that is longer
// than 128 bytes, or has characters that no key may have, is hashed. A bad rate is an error of each call.
//
// Keys: limit:{name}, or limit:{tag}:name.
func (l *Limiter) Rate(name string, rate Rate) *Limit {
	of := &Limit{limiter: l, name: name, rate: rate}
	of.keys, of.bad = keys.NewLimit(l.opts.Prefix, l.opts.Tag, name)
	if rate.kind != unlimited && rate.kind != blocked {
		var bad error
		of.parts, bad = rate.parts(l.opts.MaxDebt)
		of.bad = errors.Join(of.bad, bad)
	}
	if of.bad = errors.Join(l.bad, of.bad); of.bad != nil {
		of.bad = fmt.Errorf("luatomic: limit %q: %w", name, of.bad)
	}
	return of
}

// Name returns the name as it was given.
func (l *Limit) Name() string { return l.name }

// Rate returns the rate that the calls of this value apply.
func (l *Limit) Rate() Rate { return l.rate }

// String names the limit and its rate.
func (l *Limit) String() string { return fmt.Sprintf("%q %v", l.name, l.rate) }

func names(limits []*Limit) string {
	quoted := make([]string, 0, 4)
	for _, l := range limits {
		if len(quoted) == 3 && len(limits) > 4 {
			quoted = append(quoted, fmt.Sprintf("and %d more", len(limits)-3))
			break
		}
		quoted = append(quoted, fmt.Sprintf("%.64q", l.name))
	}
	return strings.Join(quoted, ", ")
}

// maxLimits is how many limits one call takes.
const maxLimits = 64

// check returns the limits that a call must ask the server for, or what is wrong with the call. stop is a limit that
// is blocked.
func (l *Limiter) check(n int64, limits []*Limit) (asked []*Limit, stop *Limit, err error) {
	if len(limits) == 0 || len(limits) > maxLimits {
		return nil, nil, l.refuse(outOfRange("number of limits", int64(len(limits)), "1", "64 in one call"))
	}
	for i, of := range limits {
		switch {
		case of == nil || of.limiter == nil:
			return nil, nil, l.refuse(fmt.Errorf("%w: limit %d of the call is nil; make it with Limiter.Rate",
				lua.ErrOutOfRange, i))
		case of.bad != nil:
			return nil, nil, of.bad
		case of.limiter != l:
			return nil, nil, l.refuse(fmt.Errorf("%w: limit %q is of another Limiter; take all of one call from one",
				lua.ErrOutOfRange, of.name))
		case of.rate.kind == blocked:
			stop = of
		case of.rate.kind == per:
			asked = append(asked, of)
		}
	}
	if n < 0 {
		return nil, nil, l.refuse(outOfRange("n", n, "0", ""))
	}
	return asked, stop, l.checkTogether(n, asked)
}

// checkTogether returns why the limits can never pass n, or not in one call.
func (l *Limiter) checkTogether(n int64, asked []*Limit) error {
	for i, of := range asked {
		if n > of.rate.burst {
			return l.refuse(fmt.Errorf("n: %w, which is the burst of %q: more never passes", outOfRange("n", n, "0",
				fmt.Sprint(of.rate.burst)), of.name))
		}
		for _, other := range asked[:i] {
			if other.keys.Record == of.keys.Record {
				return l.refuse(fmt.Errorf("%w: limit %q is there twice", lua.ErrOutOfRange, of.name))
			}
		}
	}
	if len(asked) > 1 && l.opts.Tag == "" {
		return l.refuse(fmt.Errorf("%w: %s; set Options.Tag to use several limits in one call", lua.ErrCrossSlot,
			names(asked)))
	}
	return nil
}

func (l *Limiter) refuse(err error) error { return fmt.Errorf("luatomic: limit: %w", err) }
