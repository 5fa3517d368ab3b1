package lock_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// An error says its reason once.
func TestErrorsSayTheirReasonOnce(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	l, name, c := lab.NewLocker(t, &lock.Options{TTL: time.Minute})
	lease, err := l.Try(ctx, name)
	require.NoError(t, err)
	kept := lease.Keep(ctx)
	_, err = l.ForceRelease(ctx, name, 0)
	require.NoError(t, err)
	<-kept.Done()
	require.EqualError(t, lease.Release(ctx),
		fmt.Sprintf(`luatomic: release %q: luatomic: lock lost: it was taken away: %[1]q`, name))

	all := func(l *lock.Locker) func(context.Context, string) (*lock.Lease, error) {
		return func(ctx context.Context, name string) (*lock.Lease, error) {
			_, err := l.AcquireAll(ctx, name)
			return nil, err
		}
	}
	tagged := l.With(lock.Options{Tag: name})
	ways := map[string]func(context.Context, string) (*lock.Lease, error){
		"Try": l.Try, "Acquire": l.Acquire, "Steal": l.Steal, "AcquireAll": all(l), "AcquireAll, tag": all(tagged),
	}
	own := errors.New("the caller's own")
	ended, cancel := context.WithCancelCause(ctx)
	cancel(own)
	for how, acquire := range ways {
		_, err = acquire(ended, name)
		require.ErrorIs(t, err, own, how)
	}
	keys := []string{lease.Key(), lab.Must(tagged.Info(ctx, name)).Key}
	for foreign, want := range map[string]error{"string": lock.ErrNotALock, "hash": lua.ErrWrongType} {
		for _, key := range keys {
			require.NoError(t, c.Del(ctx, key).Err())
			if foreign == "hash" {
				require.NoError(t, c.HSet(ctx, key, "a", "b").Err())
			} else {
				require.NoError(t, c.Set(ctx, key, "foreign", 0).Err())
			}
		}
		for how, acquire := range ways {
			_, err = acquire(ctx, name)
			require.ErrorIs(t, err, want, how)
			require.NotContains(t, err.Error(), "\n", how)
			require.LessOrEqual(t, strings.Count(err.Error(), strconv.Quote(name)), 1, err)
		}
	}
}

// An AcquireAll that has acquired other locks names the lock that it could not acquire, and its key.
func TestAcquireAllNamesTheLockThatFailed(t *testing.T) {
	t.Parallel()
	l, name, c := lab.NewLocker(t, &lock.Options{TTL: time.Minute})
	require.NoError(t, c.SAdd(t.Context(), "lock:{"+name+"}", "foreign").Err())
	luatomictest.Eventually(t, 20*time.Second, "the key is named", func() bool { // asking for its type has a second
		_, err := l.AcquireAll(t.Context(), name, name+"2")
		require.ErrorIs(t, err, lua.ErrWrongType)
		require.ErrorIs(t, err, lua.ErrOutcomeUnknown, "the other lock was held for a moment")
		require.ErrorContains(t, err, fmt.Sprintf("luatomic: acquire all: %q: outcome unknown", name))
		return strings.Contains(err.Error(), fmt.Sprintf("key %q (lock) holds a set, not a string", "lock:{"+name+"}"))
	})
	require.Zero(t, c.Exists(t.Context(), "lock:{"+name+"2}").Val(), "it was released")
}
