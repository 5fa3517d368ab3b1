//go:build interop

package plainlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/plainlock"
	"github.com/luatomic/luatomic/lock"
)

// The steps of docs/plainlock.md that move a section from another library to Go, in order, each with its way back. At
// each step one side alone is inside.
func TestInteropMovingALockOver(t *testing.T) {
	withEach(t, func(t *testing.T, s scene) {
		ctx, ttl := t.Context(), map[string]any{"ttl": 60_000}
		theirs := func() bool { return ask(t, s.p, "acquire", ttl).OK }
		release := func() { require.True(t, ask(t, s.p, "release", nil).OK) }
		locks := plainlock.New(s.c, &plainlock.Options{Prefix: s.prefix, TTL: time.Minute, Poll: 10 * time.Millisecond})
		t.Cleanup(func() { _ = locks.Close() })

		// 1. Go looks: it sees that their lock is held, and for how long.
		require.True(t, theirs())
		_, err := locks.Try(ctx, "k")
		var held *plainlock.HeldError
		require.ErrorAs(t, err, &held)

		// 2. Go enters the section too, beside the library; back: it does not.
		entered := make(chan error, 1)
		go func() {
			entered <- locks.Do(ctx, "k", func(context.Context) error {
				if theirs() {
					t.Error("two are inside")
				}
				return nil
			})
		}()
		release()
		require.NoError(t, <-entered)
		require.True(t, theirs(), "the way back: Go left nothing")
		release()

		// 3. Go alone enters; the library's program stays able to. Back: it enters.
		require.NoError(t, locks.Do(ctx, "k", func(context.Context) error { return nil }))
		require.True(t, theirs())
		release()

		// 4. Go alone, with locks of its own: both are held while the last process of step 3 may live.
		own := lock.New(s.c, nil)
		t.Cleanup(func() { _ = own.Close() })
		require.NoError(t, own.Do(ctx, "k", func(ctx context.Context, l *lock.Lease) error {
			require.Positive(t, l.Fence())
			return locks.Do(ctx, "k", func(context.Context) error {
				require.False(t, theirs())
				return nil
			})
		}))
		require.True(t, theirs(), "the way back")
		release()
	})
}
