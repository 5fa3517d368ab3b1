package limithttp_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/limit"
	"github.com/luatomic/luatomic/limit/limithttp"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

func TestMain(m *testing.M) { luatomictest.Main(m) }

// served is the answer to a request of a client.
func served(t *testing.T, l *limit.Limiter, o limithttp.Options, client string) *http.Response {
	t.Helper()
	protect, err := limithttp.New(l, o)
	require.NoError(t, err)
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	r.Header.Set("Client", client)
	protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	})).ServeHTTP(w, r)
	return w.Result()
}

func TestRequestsBeyondALimitAre429(t *testing.T) {
	t.Parallel()
	l := limit.New(luatomictest.Client(t), &limit.Options{Tag: luatomictest.Namespace(t)})
	o := limithttp.Options{OnError: limithttp.FailClosed, Limits: func(r *http.Request) []*limit.Limit {
		switch client := r.Header.Get("Client"); client {
		case "":
			return nil
		case "bad":
			return []*limit.Limit{l.Rate("bad", limit.Blocked())}
		default:
			return []*limit.Limit{
				l.Rate("client:"+client, limit.Per(2, time.Hour)), l.Rate("all", limit.Per(100, time.Hour)),
			}
		}
	}}
	for left := 1; left >= 0; left-- {
		answer := served(t, l, o, "a")
		require.Equal(t, http.StatusNoContent, answer.StatusCode)
		require.Equal(t, `"default";q=2;w=3600`, answer.Header.Get("RateLimit-Policy"))
		require.Regexp(t, `^"default";r=`+strconv.Itoa(left)+`;t=\d+$`, answer.Header.Get("RateLimit"))
	}
	answer := served(t, l, o, "a")
	require.Equal(t, http.StatusTooManyRequests, answer.StatusCode)
	after, err := strconv.Atoi(answer.Header.Get("Retry-After"))
	require.NoError(t, err)
	require.InDelta(t, 1800, after, 60)
	require.Regexp(t, `^"default";r=0;t=1\d\d\d$`, answer.Header.Get("RateLimit"))
	require.Equal(t, http.StatusNoContent, served(t, l, o, "b").StatusCode)
	require.Equal(t, http.StatusNoContent, served(t, l, o, "").StatusCode)
	answer = served(t, l, o, "bad")
	require.Equal(t, http.StatusTooManyRequests, answer.StatusCode)
	require.Empty(t, answer.Header.Get("Retry-After"))
}

func TestWithoutRedisTheUserDecides(t *testing.T) {
	t.Parallel()
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1})
	t.Cleanup(func() { _ = c.Close() })
	l := limit.New(c, nil)
	var reported error
	o := limithttp.Options{
		Timeout: 50 * time.Millisecond, Report: func(_ *http.Request, err error) { reported = err },
		Limits: func(*http.Request) []*limit.Limit { return []*limit.Limit{l.Rate("x", limit.Per(1, time.Hour))} },
	}
	o.OnError = limithttp.FailOpen
	require.Equal(t, http.StatusNoContent, served(t, l, o, "a").StatusCode)
	require.ErrorIs(t, reported, lua.ErrNotExecuted)
	o.OnError = limithttp.FailClosed
	require.Equal(t, http.StatusServiceUnavailable, served(t, l, o, "a").StatusCode)
}

func TestLeasedLimitsOfRequests(t *testing.T) {
	t.Parallel()
	l := limit.New(luatomictest.Client(t), nil)
	of := l.Rate(luatomictest.Namespace(t), limit.Per(36_000, time.Hour).Burst(3))
	fast := l.Leased(of, nil)
	o := limithttp.Options{OnError: limithttp.FailClosed, Leased: func(r *http.Request) *limit.Leased {
		if r.Header.Get("Client") == "" {
			return nil
		}
		return fast
	}, Cost: func(*http.Request) int64 { return 3 }}
	luatomictest.Eventually(t, 20*time.Second, "two of the same moment", func() bool {
		first, second := served(t, l, o, "a"), served(t, l, o, "a")
		return first.StatusCode == http.StatusNoContent && second.StatusCode == http.StatusTooManyRequests &&
			second.Header.Get("Retry-After") == "1"
	})
	require.Equal(t, http.StatusNoContent, served(t, l, o, "").StatusCode)
}

func TestOptionsThatAreMissingAreNamed(t *testing.T) {
	t.Parallel()
	l := limit.New(luatomictest.Client(t), nil)
	limits := func(*http.Request) []*limit.Limit { return nil }
	leased := func(*http.Request) *limit.Leased { return nil }
	for says, o := range map[string]limithttp.Options{
		"set one of Limits and Leased": {OnError: limithttp.FailOpen},
		"set OnError":                  {Limits: limits},
		"Timeout is -1s":               {Limits: limits, OnError: limithttp.FailOpen, Timeout: -time.Second},
		"without quotes":               {Limits: limits, OnError: limithttp.FailOpen, Policy: `a"`},
	} {
		_, err := limithttp.New(l, o)
		require.ErrorContains(t, err, says)
	}
	_, err := limithttp.New(l, limithttp.Options{OnError: limithttp.FailOpen, Limits: limits, Leased: leased})
	require.ErrorContains(t, err, "set one of")
	_, err = limithttp.New(nil, limithttp.Options{OnError: limithttp.FailOpen, Limits: limits})
	require.ErrorContains(t, err, "the Limiter is nil")
}
