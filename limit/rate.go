package limit

import (
	"fmt"
	"math/bits"
	"strconv"
	"time"

	"github.com/luatomic/luatomic/lua"
)

// Rate is how much of a limit flows back, and how much can be spent at once. Per makes one; Unlimited and Blocked are
// two more. The zero value is an error of each call: a limit that was forgotten neither blocks nor passes all.
type Rate struct {
	kind   rateKind
	n      int64
	period time.Duration
	burst  int64
}

type rateKind uint8

const (
	unset rateKind = iota
	per
	unlimited
	blocked
)

// Per is the rate of n tokens in each period, which flow back one by one. Its burst is n. At most 10^6 tokens a second.
// The numbers are kept as a fraction, so nothing is rounded: 7 a second are 604 800 a day.
func Per(n int64, period time.Duration) Rate { return Rate{kind: per, n: n, period: period, burst: n} }

// Burst returns the rate with another number of tokens that can be spent at once.
func (r Rate) Burst(n int64) Rate {
	r.burst = n
	return r
}

// Unlimited is the rate of a limit that passes everything. Nothing is sent for it.
func Unlimited() Rate { return Rate{kind: unlimited} }

// Blocked is the rate of a limit that passes nothing. Nothing is sent for it.
func Blocked() Rate { return Rate{kind: blocked} }

// Quota returns the burst, and in which time all of it flows back. Both are 0 for a rate without a burst.
func (r Rate) Quota() (burst int64, window time.Duration) {
	p, err := r.parts(0)
	if err != nil {
		return 0, 0
	}
	return r.burst, p.until(p.room, 0)
}

// String returns the rate as "10/1s burst 20", or "unlimited", "blocked" or "unset".
func (r Rate) String() string {
	switch r.kind {
	case unlimited:
		return "unlimited"
	case blocked:
		return "blocked"
	case per:
		return fmt.Sprintf("%d/%v burst %d", r.n, r.period, r.burst)
	}
	return "unset"
}

// most is the greatest number of parts: a debt and a cost add up to an integer that Lua holds.
const most = 1 << 52

// parts is a rate in the integers of the scripts, see scripts/part/gcra.lua.
type parts struct {
	token int64 // parts of one token
	rate  int64 // parts that flow back in a us
	room  int64 // of the burst
	most  int64 // of the burst and the longest debt
}

// parts returns the rate in integers. A token is the least number of parts with which a us is a whole number of them.
func (r Rate) parts(maxDebt time.Duration) (parts, error) {
	switch {
	case r.kind != per:
		return parts{}, fmt.Errorf("%w: the rate is unset; make it with limit.Per, or say limit.Blocked or "+
			"limit.Unlimited", lua.ErrOutOfRange)
	case r.n < 1:
		return parts{}, outOfRange("Per", r.n, "1; limit.Blocked passes nothing", "")
	case r.period < time.Microsecond || r.period > longestPeriod:
		return parts{}, &lua.RangeError{Field: "period of Per", Value: r.period.String(), Min: "1µs",
			Max: longestPeriod.String()}
	case r.burst < 1:
		return parts{}, outOfRange("Burst", r.burst, "1", "")
	}
	token, rate, fits := reduce(r.period.Nanoseconds(), r.n)
	if !fits || rate > token {
		return parts{}, &lua.RangeError{Field: "rate", Value: r.String(),
			Max: "1000000 a second; limit.Unlimited passes all"}
	}
	room, fits := product(r.burst, token)
	ahead, also := product(maxDebt.Microseconds(), rate)
	if !fits || !also || room+ahead > most {
		return parts{}, &lua.RangeError{
			Field: "burst", Value: r.String(), Max: fmt.Sprintf("%d with these numbers; rounder ones, a shorter "+
				"period or a smaller Options.MaxDebt allow more", (most-min(ahead, most))/token),
		}
	}
	return parts{token: token, rate: rate, room: room, most: room + ahead}, nil
}

// longestPeriod bounds the period of a rate.
const longestPeriod = 366 * 24 * time.Hour

// reduce returns n tokens in so many ns as the least integers: parts of a token, and parts in a us.
func reduce(ns, n int64) (token, rate int64, fits bool) {
	in, fits := product(n, 1000)
	d := gcd(ns, in)
	return ns / d, in / d, fits
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// product reports whether the product of two numbers from 0 on is one of parts, too.
func product(a, b int64) (_ int64, fits bool) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi > 0 || lo > most {
		return most, false
	}
	return int64(lo), true
}

// tokens is how many whole tokens are left beside a debt.
func (p *parts) tokens(debt int64) int64 { return max(p.room-debt, 0) / p.token }

// whole is after how long a debt has flowed back down to what is left of it.
func (p *parts) until(debt, left int64) time.Duration {
	if debt <= left {
		return 0
	}
	return time.Duration((debt-left+p.rate-1)/p.rate) * time.Microsecond
}

func outOfRange(field string, n int64, least, most string) error {
	return &lua.RangeError{Field: field, Value: strconv.FormatInt(n, 10), Min: least, Max: most}
}
