package lock

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	lockscript "github.com/luatomic/luatomic/gen/lock"
	"github.com/luatomic/luatomic/internal/keeper"
	"github.com/luatomic/luatomic/internal/keys"
)

// The server counts whole milliseconds, and a repeat in the last one of a lease has none left. That is not the whole
// TTL.
func TestARepeatInTheLastMillisecondHasNoLeaseLeft(t *testing.T) {
	t.Parallel()
	const ttl = time.Minute
	server, now := miniredis.RunT(t), time.Now().Truncate(time.Millisecond)
	server.SetTime(now)
	c := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = c.Close() })
	k, err := keys.NewSemaphore("", "", "x")
	require.NoError(t, err)
	h := newHub(c, "")
	t.Cleanup(h.end)
	r := h.request("x", k, "process.1:1", &Options{TTL: ttl}, &h.permits)
	r.limit = 1
	left := func() time.Duration {
		sent := time.Now()
		result, err := h.permits.acquire(t.Context(), &r, attempt{})
		require.NoError(t, err)
		require.True(t, result.Acquired)
		return keeper.Left(r.granted(sent, result).deadline)
	}
	require.Greater(t, left(), ttl/2)
	server.SetTime(now.Add(ttl))
	require.LessOrEqual(t, left(), time.Duration(0))
}

// A repeat finds no more than the lease: the key of a lock lives a millisecond longer, since the server rounds.
func TestARepeatFindsNoMoreThanTheLease(t *testing.T) {
	t.Parallel()
	const ttl = 5 * time.Millisecond
	server := miniredis.RunT(t) // its clock for keys stands still
	c := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = c.Close() })
	k, err := keys.NewLock("", "", "x")
	require.NoError(t, err)
	h := newHub(c, "")
	t.Cleanup(h.end)
	l := &Options{TTL: ttl}
	r := h.request("x", k, "process.1", l, &h.plain)
	r.own = " " + r.token + l.tail()
	for how, a := range map[string]attempt{"try": {},
		"wait": {entry: h.plain.entry(&r, ttl), fresh: lockscript.AcquireFreshAsks}} {
		for repeat := range 2 {
			result, err := h.plain.acquire(t.Context(), &r, a)
			require.NoError(t, err)
			require.True(t, result.Acquired)
			require.LessOrEqual(t, result.Remaining, ttl, "%s %d", how, repeat)
		}
	}
	results, errs := h.plain.tryAll(t.Context(), []*request{&r})
	require.NoError(t, errs[0])
	require.LessOrEqual(t, results[0].Remaining, ttl)
	require.Positive(t, results[0].Remaining)
}
