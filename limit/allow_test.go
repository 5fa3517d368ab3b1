package limit_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	limitscript "github.com/luatomic/luatomic/gen/limit"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/limit"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

func TestAllowSaysWhatIsLeftAndWhenToComeBack(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), luatomictest.Client(t)
	l := limit.New(c, nil)
	of := l.Rate(luatomictest.Namespace(t), limit.Per(10, time.Hour).Burst(20))
	d, err := l.Allow(ctx, 5, of)
	require.NoError(t, err)
	require.True(t, d.Allowed)
	require.EqualValues(t, 15, d.Remaining)
	require.Zero(t, d.RetryAfter)
	require.InDelta(t, 30*time.Minute, d.ResetAfter, float64(time.Minute))
	require.Equal(t, of.Name(), d.By)
	d, err = l.Allow(ctx, 16, of)
	require.NoError(t, err)
	require.False(t, d.Allowed)
	require.EqualValues(t, 15, d.Remaining)
	require.InDelta(t, 6*time.Minute, d.RetryAfter, float64(time.Minute))
	d, err = l.Peek(ctx, of)
	require.NoError(t, err)
	require.EqualValues(t, 15, d.Remaining)
	require.True(t, d.Allowed)
	require.NoError(t, l.SetLevel(ctx, of, 3))
	d, err = l.Peek(ctx, of)
	require.NoError(t, err)
	require.EqualValues(t, 3, d.Remaining)
	require.NoError(t, l.Reset(ctx, of))
	d, err = l.Allow(ctx, 20, of)
	require.NoError(t, err)
	require.True(t, d.Allowed)
	require.Zero(t, d.Remaining)
}

// Several limits pass all or none, and the answer names the one that binds.
func TestSeveralLimitsPassAllOrNone(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), luatomictest.Client(t)
	l := limit.New(c, &limit.Options{Tag: luatomictest.Namespace(t)})
	user := l.Rate("user", limit.Per(2, time.Hour).Burst(10))
	org := l.Rate("org", limit.Per(10, time.Hour).Burst(3))
	free := l.Rate("free", limit.Unlimited())
	d, err := l.Allow(ctx, 2, user, free, org)
	require.NoError(t, err)
	require.True(t, d.Allowed)
	require.Equal(t, "org", d.By)
	require.EqualValues(t, 1, d.Remaining)
	d, err = l.Allow(ctx, 2, user, org)
	require.NoError(t, err)
	require.False(t, d.Allowed)
	require.Equal(t, "org", d.By)
	d, err = l.Peek(ctx, user)
	require.NoError(t, err)
	require.EqualValues(t, 8, d.Remaining, "nothing was spent of the other one")
	_, err = l.Allow(ctx, 8, user)
	require.NoError(t, err)
	d, err = l.Allow(ctx, 2, user, org)
	require.NoError(t, err)
	require.Equal(t, "user", d.By, "both are short, and this one for longer")
	require.InDelta(t, time.Hour, d.RetryAfter, float64(time.Minute))
	d, err = l.Allow(ctx, 1, org)
	require.NoError(t, err)
	require.True(t, d.Allowed)
}

// Calls of the same moment are rows of one command. None is passed beyond the burst, whatever the company.
func TestManyCallersPassTheBurstAndNoMore(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), luatomictest.StartServer(t).Client()
	l := limit.New(c, nil)
	of := []*limit.Limit{l.Rate("a", limit.Per(100, 100*time.Hour)), l.Rate("b", limit.Per(300, 300*time.Hour))}
	var passed [2]atomic.Int64
	var callers sync.WaitGroup
	for i := range 64 {
		callers.Go(func() {
			for j := range 20 {
				d, err := l.Allow(ctx, 1, of[(i+j)%2])
				require.NoError(t, err)
				if d.Allowed {
					passed[(i+j)%2].Add(1)
				}
			}
		})
	}
	callers.Wait()
	require.EqualValues(t, 100, passed[0].Load())
	require.EqualValues(t, 300, passed[1].Load())
	require.Less(t, lab.Calls(t, c)["evalsha"], 1280, "calls share commands")
}

// Nothing of a limit is left when it is whole, and no call that spends nothing makes a key.
func TestALimitExpiresByItself(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), luatomictest.Client(t)
	name := luatomictest.Namespace(t)
	l := limit.New(c, &limit.Options{Tag: name})
	of, slow := l.Rate("fast", limit.Per(10, time.Second)), l.Rate("slow", limit.Per(10, 10*time.Hour))
	key, slowKey := "limit:{"+name+"}:fast", "limit:{"+name+"}:slow"
	_, err := l.Allow(ctx, 0, of)
	require.NoError(t, err)
	_, err = l.Allow(ctx, 0, of, slow)
	require.NoError(t, err)
	_, err = l.Peek(ctx, of, slow)
	require.NoError(t, err)
	require.Zero(t, c.Exists(ctx, key, slowKey).Val())
	_, err = l.Allow(ctx, 3, of, slow)
	require.NoError(t, err)
	require.InDelta(t, 300*time.Millisecond, c.PTTL(ctx, key).Val(), float64(290*time.Millisecond))
	require.InDelta(t, 3*time.Hour, c.PTTL(ctx, slowKey).Val(), float64(time.Minute))
	luatomictest.Eventually(t, 20*time.Second, "it expires", func() bool { return c.Exists(ctx, key).Val() == 0 })
	r, err := l.Reserve(ctx, 5, of)
	require.NoError(t, err)
	require.NoError(t, r.Cancel(ctx))
	for _, k := range c.Keys(ctx, "limit*{"+name+"}*").Val() {
		require.Positive(t, c.PTTL(ctx, k).Val(), k)
	}
}

// A call of one limit is three commands on the server, and each further limit one more.
func TestAllowIsFewCommands(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), luatomictest.StartServer(t).Client()
	l := limit.New(c, &limit.Options{Tag: "t"})
	of := make([]*limit.Limit, 5)
	for i := range of {
		of[i] = l.Rate(fmt.Sprint(i), limit.Per(100, time.Hour))
	}
	_, err := l.Allow(ctx, 1, of[0])
	require.NoError(t, err)
	_, err = l.Allow(ctx, 1, of...)
	require.NoError(t, err)
	count := func(f func()) (n int) {
		before := lab.Calls(t, c)
		f()
		for name, calls := range lab.Calls(t, c) {
			if name != "info" && name != "evalsha" {
				n += calls - before[name]
			}
		}
		return n
	}
	require.Equal(t, 3, count(func() { _, _ = l.Allow(ctx, 1, of[0]) }))
	require.Equal(t, 7, count(func() { _, _ = l.Allow(ctx, 1, of...) }))
}

// A key with something else in it is left as it is, and the error names it.
func TestAForeignKeyIsLeftAlone(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), luatomictest.Client(t)
	name := luatomictest.Namespace(t)
	l := limit.New(c, &limit.Options{Tag: name})
	one, two := l.Rate("one", limit.Per(10, time.Hour)), l.Rate("two", limit.Per(10, time.Hour))
	key := "limit:{" + name + "}:two"
	calls := func(want error) {
		t.Helper()
		_, err := l.Allow(ctx, 1, two)
		require.ErrorIs(t, err, want)
		require.NotErrorIs(t, err, lua.ErrOutcomeUnknown)
		_, err = l.Allow(ctx, 1, one, two)
		require.ErrorIs(t, err, want)
		_, err = l.Peek(ctx, one, two)
		require.ErrorIs(t, err, want)
		_, err = l.Reserve(ctx, 1, one, two)
		require.ErrorIs(t, err, want)
		require.ErrorIs(t, l.Wait(ctx, 1, two), want)
		require.EqualValues(t, 1, c.Exists(ctx, key).Val())
		require.Zero(t, c.Exists(ctx, "limit:{"+name+"}:one").Val(), "nothing was spent")
	}
	require.NoError(t, c.RPush(ctx, key, "a list").Err())
	calls(lua.ErrWrongType)
	require.ErrorIs(t, l.Reset(ctx, two), lua.ErrWrongType)
	require.NoError(t, c.Del(ctx, key).Err())
	require.NoError(t, c.Set(ctx, key, "some text", time.Hour).Err())
	calls(limit.ErrNotALimit)
	require.NoError(t, l.Reset(ctx, two))
	require.Zero(t, c.Exists(ctx, key).Val())
}

// A foreign key fails the call of that key, and no call that shares its command.
func TestAForeignKeyFailsNoNeighbour(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	require.NoError(t, lua.Preload(ctx, c, &limitscript.AllowScript))
	require.NoError(t, c.RPush(ctx, "limit:{"+name+"}40", "a list").Err())
	require.NoError(t, c.Set(ctx, "limit:{"+name+"}41", "some text", time.Hour).Err())
	b := lua.NewBatch(c)
	var futures []*lua.Future[int64]
	for i := range 64 {
		futures = append(futures, limitscript.AllowIn(b, limitscript.AllowParams{
			Limit: fmt.Sprint("limit:{", name, "}", i), Rate: 1, Cost: 1000, Room: 1000, Most: 1000,
		}))
	}
	require.ErrorContains(t, b.Exec(ctx), "2 of 64 calls failed")
	for i, f := range futures {
		debt, err := f.Get()
		switch i {
		case 40:
			require.ErrorIs(t, err, lua.ErrWrongType)
			require.ErrorIs(t, err, lua.ErrNotExecuted)
		case 41:
			require.ErrorIs(t, err, limitscript.ErrAllowLayout)
		default:
			require.NoError(t, err)
			require.EqualValues(t, 1000, debt, i)
		}
	}
}
