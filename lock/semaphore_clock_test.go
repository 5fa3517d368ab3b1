package lock_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	lockscript "github.com/luatomic/luatomic/gen/lock"
	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// A permit lasts through the millisecond of its score: every script says so, at a clock that stands still in it.
func TestAPermitLastsThroughItsLastMillisecond(t *testing.T) {
	t.Parallel()
	const now, owner = int64(1_732_280_000_000), "P.1:1"
	c := luatomictest.Client(t)
	key := "sem:{" + luatomictest.Namespace(t) + "}"
	run := func(s *lua.Script, ends int64, args ...any) []any {
		t.Helper()
		ctx := t.Context()
		require.NoError(t, c.Del(ctx, key, key+":q").Err())
		require.NoError(t, c.ZAdd(ctx, key, redis.Z{Score: float64(ends), Member: owner},
			redis.Z{Score: float64(ends), Member: owner + "\nbackup"}, redis.Z{Score: 1e15 + 1, Member: "limit"},
			redis.Z{Score: 1e15 + 1, Member: "used"}, redis.Z{Score: 7, Member: "fence"}).Err())
		text := lab.Text(c, s)
		fixed := strings.Replace(text, "redis.call('TIME')", fmt.Sprintf("{'%d', '999'}", now/1000), 1)
		require.NotEqual(t, text, fixed)
		reply, err := c.Eval(ctx, fixed, []string{key, key + ":q"}[:len(s.Keys)], args...).Result()
		require.NoError(t, err)
		if list, ok := reply.([]any); ok {
			return list
		}
		return []any{reply}
	}
	acquired, remaining, holder := 0, 3, 5 // places in the reply of lock_sem_acquire
	acquire := func(as string, ends int64) []any {
		t.Helper()
		return run(&lockscript.SemAcquireScript, ends, as, 1, 60_000, "", "note", "c", 0)
	}

	require.EqualValues(t, 1, run(&lockscript.SemExtendScript, now, owner, 60_000, "")[0], "extended")
	require.EqualValues(t, 0, run(&lockscript.SemExtendScript, now-1, owner, 60_000, "")[0], "expired")

	require.EqualValues(t, 1, acquire(owner, now)[acquired], "a repeat of the owner gets its permit")
	other := acquire("Q.1:1", now)
	require.EqualValues(t, 0, other[acquired])
	require.Equal(t, "backup", other[holder])
	require.EqualValues(t, 6, acquire("Q.1:1", now+5)[remaining], "the millisecond of its end counts")
	require.EqualValues(t, 1, acquire("Q.1:1", now-1)[acquired])

	info := run(&lockscript.SemInfoScript, now, 10, 0)
	require.EqualValues(t, 1, info[1], "used")
	require.Equal(t, []any{owner, owner + "\nbackup"}, info[4])
	info = run(&lockscript.SemInfoScript, now-1, 10, 0)
	require.EqualValues(t, 0, info[1])
	require.Empty(t, info[4])

	guard := func(ends float64) error {
		fixed := strings.Replace(*queuescript.AckScript.Guarded.Guard, "redis.call('TIME')",
			fmt.Sprintf("{'%d', '999'}", now/1000), 1)
		require.NotEqual(t, *queuescript.AckScript.Guarded.Guard, fixed)
		require.NoError(t, c.ZAdd(t.Context(), key, redis.Z{Score: ends, Member: owner}).Err())
		return c.Eval(t.Context(), fixed+"return 1", []string{key}, owner).Err()
	}
	for _, half := range []float64{0, 0.5} { // not confirmed
		require.NoError(t, guard(float64(now)+half))
		require.ErrorContains(t, guard(float64(now-1)+half), "FENCED the lease is over")
	}
}
