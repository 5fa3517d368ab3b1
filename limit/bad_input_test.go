package limit_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/limit"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// Bad input is an error with its cure, of each call, before anything is sent.
func TestBadInputIsRefusedBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), luatomictest.Client(t)
	require.NoError(t, c.Close()) // what is sent fails with another error
	l := limit.New(c, &limit.Options{Tag: "t"})
	loose := limit.New(c, nil)
	const day = 24 * time.Hour
	good := l.Rate("good", limit.Per(5, time.Second))
	other := loose.Rate("x", limit.Per(1, time.Second))
	rated := func(r limit.Rate) []*limit.Limit { return []*limit.Limit{l.Rate("bad", r)} }
	of := func(o limit.Options) []*limit.Limit {
		return []*limit.Limit{limit.New(c, &o).Rate("x", limit.Per(1, time.Second))}
	}
	many := make([]*limit.Limit, 65)
	for i := range many {
		many[i] = l.Rate(fmt.Sprint(i), limit.Per(1, time.Second))
	}
	for name, bad := range map[string]struct {
		n      int64
		limits []*limit.Limit
		is     error
		says   string
	}{
		"no rate":              {1, rated(limit.Rate{}), lua.ErrOutOfRange, "make it with limit.Per"},
		"rate 0":               {1, rated(limit.Per(0, time.Second)), lua.ErrOutOfRange, "limit.Blocked passes"},
		"a negative rate":      {1, rated(limit.Per(-1, time.Second)), lua.ErrOutOfRange, "at least 1"},
		"no period":            {1, rated(limit.Per(1, 0)), lua.ErrOutOfRange, "period of Per: 0s"},
		"a negative period":    {1, rated(limit.Per(1, -time.Second)), lua.ErrOutOfRange, "at least 1µs"},
		"a period of years":    {1, rated(limit.Per(1, 367*day)), lua.ErrOutOfRange, "at most 8784h"},
		"burst 0":              {1, rated(limit.Per(1, day).Burst(0)), lua.ErrOutOfRange, "Burst: 0"},
		"a negative burst":     {1, rated(limit.Per(1, day).Burst(-3)), lua.ErrOutOfRange, "at least 1"},
		"above 10^6 a second":  {1, rated(limit.Per(1_000_001, time.Second)), lua.ErrOutOfRange, "limit.Unlimited"},
		"the greatest rate":    {1, rated(limit.Per(math.MaxInt64, time.Hour)), lua.ErrOutOfRange, "at most 1000000"},
		"the greatest burst":   {1, rated(limit.Per(7, day).Burst(math.MaxInt64)), lua.ErrOutOfRange, "rounder"},
		"too fine for its day": {1, rated(limit.Per(999_983, day)), lua.ErrOutOfRange, "with these numbers"},
		"a negative n":         {-1, []*limit.Limit{good}, lua.ErrOutOfRange, "n: -1"},
		"n above the burst":    {6, []*limit.Limit{good}, lua.ErrOutOfRange, `the burst of "good"`},
		"no limit":             {1, nil, lua.ErrOutOfRange, "number of limits: 0"},
		"a nil limit":          {1, []*limit.Limit{nil}, lua.ErrOutOfRange, "limit 0 of the call is nil"},
		"a zero limit":         {1, []*limit.Limit{{}}, lua.ErrOutOfRange, "make it with Limiter.Rate"},
		"65 limits":            {1, many, lua.ErrOutOfRange, "at most 64"},
		"one limit twice":      {1, []*limit.Limit{good, good}, lua.ErrOutOfRange, "there twice"},
		"another Limiter's":    {1, []*limit.Limit{other}, lua.ErrOutOfRange, "one"},
		"no name":              {1, []*limit.Limit{l.Rate("", limit.Per(1, day))}, lua.ErrBadName, "name is empty"},
		"a bad tag":            {1, of(limit.Options{Tag: "{"}), lua.ErrBadName, "a brace"},
		"a bad prefix":         {1, of(limit.Options{Prefix: "\n"}), lua.ErrBadName, "control"},
		"a negative MaxDebt":   {1, of(limit.Options{MaxDebt: -1}), lua.ErrOutOfRange, "MaxDebt"},
		"a negative MaxWait":   {1, of(limit.Options{MaxWait: -1}), lua.ErrOutOfRange, "MaxWait"},
		"MaxWait above it":     {1, of(limit.Options{MaxWait: time.Hour}), lua.ErrOutOfRange, "which is MaxDebt"},
		"Keep below a second":  {1, of(limit.Options{Keep: 1}), lua.ErrOutOfRange, "Keep"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := l
			if len(bad.limits) == 1 && bad.limits[0] != nil && bad.limits[0] != other && bad.limits[0].Name() == "x" {
				at = loose // its own error comes first
			}
			refused := func(err error) {
				t.Helper()
				require.ErrorIs(t, err, bad.is)
				require.ErrorContains(t, err, bad.says)
				require.ErrorContains(t, err, "luatomic: ")
			}
			_, err := at.Allow(ctx, bad.n, bad.limits...)
			refused(err)
			refused(at.Wait(ctx, bad.n, bad.limits...))
			_, err = at.Reserve(ctx, bad.n, bad.limits...)
			refused(err)
			if bad.n == 1 {
				_, err = at.Peek(ctx, bad.limits...)
				refused(err)
			}
			if bad.n == 1 && len(bad.limits) == 1 {
				refused(at.Reset(ctx, bad.limits[0]))
				refused(at.SetLevel(ctx, bad.limits[0], 1))
			}
		})
	}
	_, err := loose.Allow(ctx, 1, other, loose.Rate("b", limit.Per(1, time.Second)))
	require.ErrorIs(t, err, lua.ErrCrossSlot)
	require.ErrorContains(t, err, "set Options.Tag")
	require.ErrorIs(t, l.SetLevel(ctx, good, 6), lua.ErrOutOfRange)
	require.ErrorIs(t, l.SetLevel(ctx, good, -1), lua.ErrOutOfRange)
}

func TestANilClientIsAnErrorOfEachCall(t *testing.T) {
	t.Parallel()
	l := limit.New(nil, nil)
	of := l.Rate("x", limit.Per(1, time.Second))
	_, err := l.Allow(t.Context(), 1, of)
	require.ErrorContains(t, err, "the client is nil")
	require.ErrorContains(t, l.Wait(t.Context(), 1, of), "the client is nil")
	require.ErrorContains(t, l.Reset(t.Context(), of), "the client is nil")
}
