package lock_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	lockscript "github.com/luatomic/luatomic/gen/lock"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/internal/testkit/scriptcase"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// Two that steal from each other: the old holder's context ends immediately, and the
// waiters are served after.
func TestStealNotifiesTheHolder(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	l, name, _ := lab.NewLocker(t, &lock.Options{TTL: time.Minute, Note: "old"})
	thief := lab.Locker(t, luatomictest.Client(t), &lock.Options{TTL: time.Minute})
	lease, err := l.Try(ctx, name)
	require.NoError(t, err)
	kept := lease.Keep(ctx)
	listening(t, name)
	got := lab.AcquireLater(ctx, l, name)
	lab.WaitFor(t, l, name, 1)
	start := time.Now()
	stolen, err := thief.Steal(ctx, name)
	require.NoError(t, err)
	<-kept.Done()
	t.Logf("notified after %v", time.Since(start))
	require.ErrorIs(t, context.Cause(kept), lock.ErrRevoked)
	require.ErrorIs(t, lease.Err(), lock.ErrLost)
	require.ErrorIs(t, lease.Extend(ctx), lock.ErrRevoked)
	require.ErrorIs(t, lease.Release(ctx), lock.ErrRevoked)
	require.Greater(t, stolen.Fence(), lease.Fence())
	require.NoError(t, stolen.Extend(ctx), "the old one's release did not touch it")
	require.NoError(t, stolen.Release(ctx))
	next := lab.Soon(t, 15*time.Second, "who waits is served after", got)
	require.NoError(t, next.Err)

	done, err := thief.ForceRelease(ctx, name, next.Lease.Fence()-1)
	require.NoError(t, err)
	require.False(t, done, "another holder was meant")
	require.NoError(t, next.Lease.Extend(ctx))
	last := lab.AcquireLater(ctx, l, name)
	lab.WaitFor(t, l, name, 1)
	done, err = thief.ForceRelease(ctx, name, next.Lease.Fence())
	require.NoError(t, err)
	require.True(t, done)
	after := lab.Soon(t, 15*time.Second, "handed on by force", last)
	require.NoError(t, after.Err)
	require.Greater(t, after.Lease.Fence(), next.Lease.Fence())
	require.ErrorIs(t, next.Lease.Extend(ctx), lock.ErrLost)
	require.NoError(t, after.Lease.Release(ctx))
	done, err = thief.ForceRelease(ctx, name, 0)
	require.NoError(t, err)
	require.False(t, done, "nobody held it")
}

// listening returns when a process that keeps a lease of the lock is subscribed.
func listening(t testing.TB, name string) {
	t.Helper()
	c := luatomictest.Client(t)
	luatomictest.Eventually(t, 20*time.Second, "the holder listens", func() bool {
		owner := scriptcase.LockRecord(t, c, name)[scriptcase.RecordOwner]
		process, _, _ := strings.Cut(owner, ".")
		return c.PubSubNumSub(t.Context(), "lock:c:"+process).Val()["lock:c:"+process] > 0
	})
}

// A repeat of ForceRelease that does not find the holder it names cannot tell whether the first request released it.
func TestForceReleaseWhoseReplyIsLost(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	proxy := luatomictest.NewLossyProxy(t, server.URL())
	opts, err := redis.ParseURL(proxy.URL())
	require.NoError(t, err)
	c := redis.NewClient(opts)
	t.Cleanup(func() { _ = c.Close() })
	operator := lab.Locker(t, c, nil)
	holder, err := lab.Locker(t, server.Client(), &lock.Options{TTL: time.Minute}).Try(t.Context(), "x")
	require.NoError(t, err)
	done, err := operator.ForceRelease(t.Context(), "other", 1) // the script is loaded
	require.NoError(t, err)
	require.False(t, done)
	proxy.Drop(1, lab.Sent(&lockscript.ForceScript))
	done, err = operator.ForceRelease(t.Context(), "x", holder.Fence())
	require.False(t, done)
	require.ErrorIs(t, err, lua.ErrOutcomeUnknown)
	require.ErrorIs(t, holder.Extend(t.Context()), lock.ErrRevoked)
	done, err = operator.ForceRelease(t.Context(), "x", holder.Fence())
	require.NoError(t, err, "nobody holds it, and no reply was lost")
	require.False(t, done)
}

// A look changes nothing, so one whose reply is lost is taken again.
func TestALookIsTakenAgainAfterALostReply(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c, proxy := proxied(t, luatomictest.URL(t))
	locks, name := lab.Locker(t, c, nil), luatomictest.Namespace(t)
	_, err := locks.Try(ctx, name)
	require.NoError(t, err)
	_, err = locks.Semaphore(name, 2).Try(ctx, 1)
	require.NoError(t, err)
	for script, look := range map[*lua.Script]func() (held bool, err error){
		&lockscript.InfoScript: func() (bool, error) {
			info, err := locks.Info(ctx, name)
			return info.Held, err
		},
		&lockscript.SemInfoScript: func() (bool, error) {
			info, err := locks.Semaphore(name, 2).Info(ctx)
			return info.Used == 1, err
		},
	} {
		for lost := range 2 { // the first look loads the script
			proxy.Drop(lost, lab.Sent(script))
			held, err := look()
			require.NoError(t, err)
			require.True(t, held)
		}
	}
	require.Equal(t, 2, proxy.Stats().Lost)
}
