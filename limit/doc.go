// Package limit has rate limits over many keys at once, with a wait in order of arrival and a refund.
//
// # Use
//
//	l := limit.New(client, &limit.Options{Tag: "org-9"})
//	user := l.Rate("user:7", limit.Per(10, time.Second).Burst(20))
//	org := l.Rate("org", limit.Per(1000, time.Minute))
//
//	d, err := l.Allow(ctx, 1, user, org) // both or none; d.RetryAfter, d.By
//	err = l.Wait(ctx, 1, user, org)      // sleeps until it may go on
//
// # The record
//
// A limit is one string, limit:{name}: the time at which all of it has flowed back, by the server's clock. So a call is
// three commands, and a limit that nobody uses has no key. The algorithm is GCRA (a token bucket without a counter).
// The time is kept as a fraction with the rate as its denominator, so nothing is ever rounded, and all numbers stay
// below 2^53, above which Lua has no integers.
//
//	whole parts rate began last given
//
//	whole  us of the server's clock at which nothing is spent any more
//	parts  the rest of that time, in parts of a us
//	rate   how many parts a us has
//	began  us at which the record began; a reservation of an older one gives nothing back
//	last   us until which the last reservation waits, or 0
//	given  how many us of it were given back
//
// In no window of time do more tokens pass than the burst and what flows back in it, refunds included: a reservation
// gives back what has not flowed back since.
//
// # What is lost
//
// After a failover the new server may not have the last writes: so much can be spent again. After a clock that was set
// back, a limit passes less for as long as its burst and Options.MaxDebt take to flow back, at most.
//
// # Where to continue
//
// Limiter.Allow calls one script in allow.go, Limiter.Wait another one in reserve.go. scripts/part/gcra.lua has the
// arithmetic.
package limit
