package lua_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// checked is a script that reads one key before it writes another.
func checked(t testing.TB, retry lua.Retry) *lua.Script {
	s := newScript("checked", "-- "+luatomictest.Namespace(t)+`
redis.call('LLEN', KEYS[1])
local n = redis.call('INCR', KEYS[2])
return n + redis.call('LLEN', KEYS[1])`, retry)
	s.WritesAfter = 3 // INCR changes nothing where it fails
	return s
}

// A script that stops before its first write, or at it, has changed nothing. Behind it the error is one half-way.
func TestAnErrorBeforeTheFirstWriteIsNotExecuted(t *testing.T) {
	t.Parallel()
	client, ctx := luatomictest.Client(t), within(t, 10*time.Second)
	tag := "{" + luatomictest.Namespace(t) + "}"
	require.NoError(t, client.Set(ctx, tag+"text", "x", 0).Err())
	for name, row := range map[string]struct {
		list, count string
		line        int
		outcome     error
	}{
		"at a line before it": {tag + "text", tag + "count", 2, lua.ErrNotExecuted},
		"at the first write":  {tag + "list", tag + "text", 3, lua.ErrNotExecuted},
		"after it":            {tag + "late", tag + "late", 4, lua.ErrExecutedInPart},
	} {
		t.Run(name, func(t *testing.T) {
			s := checked(t, lua.RetrySafe)
			preload(t, client, s)
			_, err := runInt(ctx, client, s, row.list, row.count)
			e := requireOutcome(t, err, row.outcome)
			require.Equal(t, row.line, e.Line)
			require.Equal(t, 1, e.Tries, "it would fail again")
			require.NotEmpty(t, e.Code)

			require.NoError(t, client.Del(ctx, tag+"late").Err())
			s = withGuard(s)
			_, err = runInt(ctx, lua.Guard(client, takeLock(t, client, tag+"lease")), s, row.list, row.count)
			require.ErrorIs(t, err, row.outcome)
			require.ErrorContains(t, err, fmt.Sprintf("(guarded checked:%d)", row.line))
		})
	}
}

// An error of the guard is none of the script, whose lines say nothing about it.
func TestAnErrorOfAGuardIsNotBeforeTheFirstWrite(t *testing.T) {
	t.Parallel()
	client, ctx := luatomictest.Client(t), within(t, 10*time.Second)
	tag := "{" + luatomictest.Namespace(t) + "}"
	s := withGuard(checked(t, lua.RetrySafe))
	broken := "local lease, token = table.remove(KEYS), table.remove(ARGV)\nlocal x = nil + 1\n"
	s.Guarded = lua.Text{SHA: sha(broken + *s.Source), Guard: &broken, Source: s.Source}
	_, err := runInt(ctx, lua.Guard(client, takeLock(t, client, tag+"lease")), s, tag+"list", tag+"count")
	require.ErrorIs(t, err, lua.ErrExecutedInPart)
}

// The first attempt may have written before a later one stops.
func TestAnErrorBeforeTheFirstWriteAfterALostReplyIsUnknown(t *testing.T) {
	t.Parallel()
	n, s := overSingle(t), checked(t, lua.RetrySafe)
	tag, ctx := "{"+luatomictest.Namespace(t)+"}", within(t, 10*time.Second)
	preload(t, n.direct, s)
	require.NoError(t, n.direct.Set(ctx, tag+"text", "x", 0).Err())
	n.drop(1, evalsha(s))
	_, err := runInt(ctx, n.client, s, tag+"text", tag+"count")
	requireOutcome(t, err, lua.ErrOutcomeUnknown)
}

// A row whose key has another type stops the command of all rows. They are sent again, one by one.
func TestARowThatStopsBeforeTheFirstWriteHarmsNoOther(t *testing.T) {
	t.Parallel()
	client, ns := luatomictest.Client(t), luatomictest.Namespace(t)
	s := newScript("checked", `
local found = {}
for i, key in ipairs(KEYS) do
  found[i] = redis.call('GET', key) or ''
end
for i, key in ipairs(KEYS) do
  redis.call('SET', key, ARGV[i])
end
return found`, lua.RetrySafe)
	s.WritesAfter, s.Merge = 6, &lua.Merge{Max: 64, Width: 1}
	preload(t, client, s)
	require.NoError(t, client.RPush(t.Context(), fmt.Sprint(ns, 3), "a list").Err())
	b := lua.NewBatch(client)
	futures := make([]*lua.Future[string], 8)
	for i := range futures {
		futures[i] = lua.Queue(b, claim(s, fmt.Sprint(ns, i), fmt.Sprint(i)), decodeText)
	}
	require.ErrorContains(t, b.Exec(within(t, 10*time.Second)), "1 of 8 calls failed")
	for i, f := range futures {
		_, err := f.Get()
		if i == 3 {
			require.ErrorIs(t, err, lua.ErrWrongType)
			require.Equal(t, 4, requireOutcome(t, err, lua.ErrNotExecuted).Line)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint(i), client.Get(t.Context(), fmt.Sprint(ns, i)).Val())
	}
}
