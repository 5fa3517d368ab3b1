// Package limithttp limits the requests of a net/http server by package limit.
//
//	protect, err := limithttp.New(l, limithttp.Options{
//		Limits: func(r *http.Request) []*limit.Limit {
//			return []*limit.Limit{l.Rate("ip:"+host(r), limit.Per(10, time.Second).Burst(20))}
//		},
//		OnError: limithttp.FailOpen,
//	})
//	http.ListenAndServe(":8080", protect(mux))
//
// A request beyond its limit is answered with 429 Too Many Requests and Retry-After, in seconds. Every answer has the
// fields RateLimit-Policy and RateLimit of draft-ietf-httpapi-ratelimit-headers, about the limit that binds.
package limithttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/luatomic/luatomic/limit"
)

// OnError says what becomes of a request whose limit is not known: the server of Redis does not answer, for example.
type OnError int

const (
	// FailOpen lets it pass.
	FailOpen OnError = iota + 1
	// FailClosed answers 503 Service Unavailable.
	FailClosed
)

// Options are the settings of a middleware. Limits or Leased, and OnError, must be set.
type Options struct {
	// Limits returns the limits of a request; none lets it pass. Several need limit.Options.Tag. It runs for each
	// request: a Limit costs no round trip.
	Limits func(r *http.Request) []*limit.Limit
	// Leased is used instead of Limits, for limits that pass most requests without a round trip; nil lets a request
	// pass. The RateLimit fields are left out, and Retry-After is a second.
	Leased func(r *http.Request) *limit.Leased
	// Cost is how many tokens a request takes. The default is 1.
	Cost func(r *http.Request) int64
	// OnError has no default: to fail open lets all pass while Redis is away, to fail closed lets none.
	OnError OnError
	// Timeout bounds the call to Redis. The default is 1 s.
	Timeout time.Duration
	// Report is called with each error that OnError decides on.
	Report func(r *http.Request, err error)
	// Policy is the name of the limit in the RateLimit fields. The default is "default": names of limits are not shown,
	// as they may tell one client about another.
	Policy string
}

// New returns a middleware. It returns an error for options that are missing or contradict each other.
func New(l *limit.Limiter, o Options) (func(http.Handler) http.Handler, error) {
	switch {
	case l == nil && o.Leased == nil:
		return nil, errors.New("luatomic: limithttp: the Limiter is nil; make it with limit.New")
	case (o.Limits == nil) == (o.Leased == nil):
		return nil, errors.New("luatomic: limithttp: set one of Limits and Leased")
	case o.OnError != FailOpen && o.OnError != FailClosed:
		return nil, errors.New("luatomic: limithttp: set OnError to FailOpen or FailClosed")
	case o.Timeout < 0:
		return nil, fmt.Errorf("luatomic: limithttp: Timeout is %v; 0 is a second", o.Timeout)
	case strings.ContainsFunc(o.Policy, func(c rune) bool { return c < ' ' || c > '~' || c == '"' || c == '\\' }):
		return nil, fmt.Errorf("luatomic: limithttp: Policy is %q; printable ASCII without quotes", o.Policy)
	}
	if o.Policy == "" {
		o.Policy = "default"
	}
	if o.Timeout == 0 {
		o.Timeout = time.Second
	}
	if o.Cost == nil {
		o.Cost = func(*http.Request) int64 { return 1 }
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if o.pass(l, w, r) {
				next.ServeHTTP(w, r)
			}
		})
	}, nil
}

// pass reports whether the request may go on. Otherwise it has answered it.
func (o *Options) pass(l *limit.Limiter, w http.ResponseWriter, r *http.Request) bool {
	ctx, cancel := context.WithTimeout(r.Context(), o.Timeout)
	defer cancel()
	d, err := o.ask(ctx, l, w, r)
	switch {
	case err != nil:
		if o.Report != nil {
			o.Report(r, err)
		}
		if o.OnError == FailOpen {
			return true
		}
		http.Error(w, http.StatusText(http.StatusServiceUnavailable), http.StatusServiceUnavailable)
	case d.Allowed:
		return true
	default:
		if d.RetryAfter != limit.Forever {
			w.Header().Set("Retry-After", seconds(d.RetryAfter))
		}
		http.Error(w, http.StatusText(http.StatusTooManyRequests), http.StatusTooManyRequests)
	}
	return false
}

func (o *Options) ask(
	ctx context.Context, l *limit.Limiter, w http.ResponseWriter, r *http.Request,
) (limit.Decision, error) {
	if o.Leased != nil {
		of := o.Leased(r)
		if of == nil {
			return limit.Decision{Allowed: true}, nil
		}
		ok, err := of.Allow(ctx, o.Cost(r))
		return limit.Decision{Allowed: ok, RetryAfter: time.Second}, err
	}
	limits := o.Limits(r)
	if len(limits) == 0 {
		return limit.Decision{Allowed: true}, nil
	}
	d, err := l.Allow(ctx, o.Cost(r), limits...)
	if err == nil {
		o.fields(w, limits, d)
	}
	return d, err
}

// fields sets the RateLimit fields for the limit that binds.
func (o *Options) fields(w http.ResponseWriter, limits []*limit.Limit, d limit.Decision) {
	for _, of := range limits {
		burst, window := of.Rate().Quota()
		if of.Name() != d.By || burst == 0 {
			continue
		}
		after := d.ResetAfter
		if !d.Allowed {
			after = d.RetryAfter
		}
		w.Header().Set("RateLimit-Policy", fmt.Sprintf("%q;q=%d;w=%s", o.Policy, burst, seconds(window)))
		w.Header().Set("RateLimit", fmt.Sprintf("%q;r=%d;t=%s", o.Policy, d.Remaining, seconds(after)))
		return
	}
}

// seconds rounds up, so that nobody comes back too early.
func seconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}
