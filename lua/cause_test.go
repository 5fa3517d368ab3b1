package lua_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// A group of calls that ends its context with the error of the first one that fails, as errgroup does, gives the others
// a cause that says what became of that one. It says nothing of theirs.
func TestTheOutcomeOfAnotherCallIsNotThatOfThisOne(t *testing.T) {
	t.Parallel()
	mine := errors.New("the wait is over")
	other := &lua.Error{Script: "other", Outcome: lua.ErrRefused, Err: mine}
	s := coldCount(t, lua.RetryNever)
	shared := func(c lua.Client) lua.Client { return c }
	batch := func(ctx context.Context, client lua.Client, key string) error {
		b := lua.NewBatch(client)
		f := lua.Queue(b, newCall(s, key), decodeInt)
		_ = b.Exec(ctx)
		_, err := f.Get()
		return err
	}
	single := func(ctx context.Context, client lua.Client, key string) error {
		_, err := runInt(ctx, client, s, key)
		return err
	}
	for name, of := range map[string]struct {
		call   func(context.Context, lua.Client, string) error
		by     func(lua.Client) lua.Client
		wait   time.Duration
		become error
	}{
		"over, shared":  {single, shared, 0, lua.ErrNotExecuted},
		"over, alone":   {single, lua.Direct, 0, lua.ErrNotExecuted},
		"over, batch":   {batch, shared, 0, lua.ErrNotExecuted},
		"hangs, shared": {single, shared, 300 * time.Millisecond, lua.ErrOutcomeUnknown},
		"hangs, alone":  {single, lua.Direct, 300 * time.Millisecond, lua.ErrOutcomeUnknown},
		"hangs, batch":  {batch, shared, 300 * time.Millisecond, lua.ErrOutcomeUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key := luatomictest.Namespace(t)
			n := overSingle(t)
			client := of.by(n.client)
			require.NoError(t, of.call(t.Context(), client, key))
			ctx, cancel := context.WithTimeoutCause(t.Context(), of.wait, other)
			defer cancel()
			n.proxies[0].Blackhole(of.wait > 0)
			err := of.call(ctx, client, key)
			e := requireOutcome(t, err, of.become)
			require.NotSame(t, other, e)
			require.ErrorIs(t, err, mine)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorContains(t, err, other.Error())
		})
	}
}
