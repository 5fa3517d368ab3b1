package lock_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	lockscript "github.com/luatomic/luatomic/gen/lock"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/internal/testkit/scriptcase"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/luatomictest"
)

// The known failures of lock libraries, and the test that each has here:
//
//	 1 old owner deletes the successor's lock    TestOldOwnerCannotTouchTheSuccessorsLock
//	 2 a lock without an expiry                  TestNoKeyOfALockIsWithoutAnExpiry
//	 3 a pause longer than the lease             TestPausedHolderSeesTheLossFirst
//	 4 extend after the end                      TestExtendNeverBringsALeaseBack
//	 5 reply of an acquire lost                  TestAcquireWhoseReplyIsLostIsOurs
//	 6 reply of a release lost                   TestReleaseWhoseReplyIsLostIsOurs
//	 7 cancelled between request and reply       TestCancelInFlightLeavesNothing
//	 8 release on a cancelled context            TestReleaseWorksAfterTheContextIsCancelled
//	 9 failover                                  TestLockThatIsNotReplicatedIsGivenBack, TestFenceGrowsOverAFailover
//	10 fence from a counter that is lost         TestFenceGrowsAcrossClockStepsAndLostKeys
//	11 the client's clock                        TestNoTimeOfTheClientIsSent
//	12 a step of the server's clock              TestFenceGrowsOverStepsOfTheServersClock
//	13 script cache flushed                      TestLocksSurviveScriptFlush
//	14 missed wake-up                            TestNoWakeUpIsMissed...
//	15 wake-up by expiry events                  TestHandOverAfterAKillIsNotLate
//	16 semaphore by majority                     not offered
//	17 a dead reader pinned by live ones         rwlock_test.go
//	18 a fair queue that is not                  TestLockOrderOfGrantsIsOrderOfTickets
//	19 dead waiters block the queue              TestDeadWaitersAreSkipped, TestPausedWaiterCostsOneClaim
//	20 a lease under 1 ms                        TestBadTTL
//	21 options with a state                      TestLockerOptionsAreReused
//	22 a slow first attempt                      TestPausedServerIsWaitedFor
//	23 thundering herd                           TestHandOverCosts, TestIdleWaitersSendNothing
//	24 memory limit and eviction                 TestLockOnAFullServer
//	25 an argument that is ignored               TestEveryWayToALockHeedsItsOptions; check K005 of luagen
//	26 some of several locks                     TestAcquireAllLeavesNothingHalfHeld

// proxied returns a client that goes through a proxy of its own.
func proxied(t testing.TB, url string) (*redis.Client, *luatomictest.LossyProxy) {
	t.Helper()
	proxy := luatomictest.NewLossyProxy(t, url)
	opts, err := redis.ParseURL(proxy.URL())
	require.NoError(t, err)
	c := redis.NewClient(opts)
	t.Cleanup(func() { _ = c.Close() })
	return c, proxy
}

// lockEnd is when the lease ends by the server's clock, in µs.
func lockEnd(t testing.TB, c redis.Cmdable, name string) int64 {
	t.Helper()
	end, _ := lockEndOf(t, c, name)
	return end
}

// lockEndOf also returns the fence of the lease that ends then. The key lives for the lease, its afterlife and one ms
// more, because the server counts whole ones. Redis 7.0 reads its clock for the fence, and once more for the time that
// is left.
func lockEndOf(t testing.TB, c redis.Cmdable, name string) (end, fence int64) {
	t.Helper()
	both := c.TxPipeline()
	text, expires := both.Get(t.Context(), "lock:{"+name+"}"), both.PExpireTime(t.Context(), "lock:{"+name+"}")
	_, err := both.Exec(t.Context())
	require.NoError(t, err)
	record := scriptcase.LockFields(text.Val())
	after := lab.Must(strconv.ParseInt(record[scriptcase.RecordAfter], 10, 64))
	return expires.Val().Microseconds() - (after+1)*1000,
		lab.Must(strconv.ParseInt(record[scriptcase.RecordFence], 10, 64))
}

// Row 2. Every key that any step leaves has a time to live.
func TestNoKeyOfALockIsWithoutAnExpiry(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	l, name, c := lab.NewLocker(t, &lock.Options{TTL: time.Minute, LockDelay: time.Second})
	check := func(what string) {
		keys, err := c.Keys(ctx, "*"+name+"*").Result()
		require.NoError(t, err)
		require.NotEmpty(t, keys, what)
		for _, k := range keys {
			require.Positive(t, c.PTTL(ctx, k).Val(), "%s after %s", k, what)
		}
	}
	first, err := l.Try(ctx, name)
	require.NoError(t, err)
	check("acquire")
	require.NoError(t, first.Extend(ctx))
	check("extend")
	got := lab.AcquireLater(ctx, l, name)
	lab.WaitFor(t, l, name, 1)
	check("waiting")
	require.NoError(t, first.Release(ctx))
	second := lab.Soon(t, 20*time.Second, "handed over", got)
	require.NoError(t, second.Err)
	check("hand-over")
	stolen, err := l.Steal(ctx, name)
	require.NoError(t, err)
	check("steal")
	_, err = l.ForceRelease(ctx, name, 0)
	require.NoError(t, err)
	check("force")
	require.ErrorIs(t, stolen.Release(ctx), lock.ErrLost)
	check("late release")
	all, err := l.With(lock.Options{Tag: name}).AcquireAll(ctx, "a", "b")
	require.NoError(t, err)
	check("acquire all")
	require.NoError(t, all.Release(ctx))
	check("released")
}

// Row 4. Once over, a lease stays over: by the script and by the client.
func TestExtendNeverBringsALeaseBack(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	l, name, c := lab.NewLocker(t, &lock.Options{TTL: 20 * time.Millisecond})
	old, err := l.Try(ctx, name)
	require.NoError(t, err)
	next, err := lab.Locker(t, luatomictest.Client(t), nil).Acquire(ctx, name)
	require.NoError(t, err)
	require.NoError(t, next.Release(ctx))
	require.NoError(t, c.Set(ctx, old.Key(), scriptcase.HeldByOther, time.Minute).Err())
	require.ErrorIs(t, old.Extend(ctx), lock.ErrLost)
	state, err := lockscript.Extend(ctx, c, lockscript.ExtendParams{
		Lock: old.Key(), Owner: old.Token(), TTL: time.Second,
	})
	require.NoError(t, err)
	require.Equal(t, lockscript.ExtendResultTaken, state, "also when the client does not know")
	require.NoError(t, c.Del(ctx, old.Key()).Err())
	state, err = lockscript.Extend(ctx, c, lockscript.ExtendParams{
		Lock: old.Key(), Owner: old.Token(), TTL: time.Second,
	})
	require.NoError(t, err)
	require.Equal(t, lockscript.ExtendResultExpired, state)
	require.Zero(t, c.Exists(ctx, old.Key()).Val(), "extend creates nothing")
}

// Row 5. The acquire ran, and its reply never came: the repeat finds the lock its
// own, with the fence that the first had.
func TestAcquireWhoseReplyIsLostIsOurs(t *testing.T) {
	t.Parallel()
	url := luatomictest.URL(t)
	for lost := range 5 {
		for _, how := range []string{"try", "wait", "all", "steal"} {
			t.Run(fmt.Sprint(how, " ", lost), func(t *testing.T) {
				t.Parallel()
				ctx := t.Context()
				c, proxy := proxied(t, url)
				opts := lock.Options{TTL: time.Minute, Tag: luatomictest.Namespace(t)}
				l := lab.Locker(t, c, &opts)
				direct := lab.Locker(t, luatomictest.Client(t), &lock.Options{TTL: time.Minute, Tag: opts.Tag})
				if how == "wait" {
					other, err := direct.Try(ctx, "x")
					require.NoError(t, err)
					warm := lab.AcquireLater(ctx, l, "x") // subscribes and loads the scripts
					lab.WaitFor(t, direct, "x", 1)
					require.NoError(t, other.Release(ctx))
					require.NoError(t, lab.Soon(t, 20*time.Second, "warm", warm).Lease.Release(ctx))
				}
				proxy.Drop(lost, luatomictest.Command("EVALSHA"))
				var lease *lock.Lease
				var err error
				switch how {
				case "all":
					var all lock.Leases
					all, err = l.AcquireAll(ctx, "x", "y")
					require.NoError(t, err)
					lease = all[0]
				case "wait":
					lease, err = l.Acquire(ctx, "x")
				case "steal":
					lease, err = l.Steal(ctx, "x")
				default:
					lease, err = l.Try(ctx, "x")
				}
				require.NoError(t, err)
				info, err := direct.Info(ctx, "x")
				require.NoError(t, err)
				require.True(t, info.Held)
				require.Equal(t, lease.Token(), info.Owner)
				require.Equal(t, info.Fence, lease.Fence())
				require.Zero(t, info.Waiting, "no entry is left in the queue")
				require.NoError(t, lease.Extend(ctx))
				require.NoError(t, lease.Release(ctx))
			})
		}
	}
}

// Row 5. Joining the queue is repeated without a second place in it.
func TestWaiterWhoseReplyIsLostQueuesOnce(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c, proxy := proxied(t, luatomictest.URL(t))
	l, name := lab.Locker(t, c, nil), luatomictest.Namespace(t)
	direct := lab.Locker(t, luatomictest.Client(t), &lock.Options{TTL: time.Minute})
	holder, err := direct.Try(ctx, name)
	require.NoError(t, err)
	proxy.Drop(4, luatomictest.Command("EVALSHA"))
	got := lab.AcquireLater(ctx, l, name)
	luatomictest.Eventually(t, 20*time.Second, "four replies are lost", func() bool {
		return proxy.Stats().Lost == 4
	})
	lab.WaitFor(t, direct, name, 1)
	require.NoError(t, holder.Release(ctx))
	next := lab.Soon(t, 20*time.Second, "handed over", got)
	require.NoError(t, next.Err)
	require.NoError(t, next.Lease.Release(ctx))
}

// Row 6. "Released by you" is an answer, also when the lock was handed on meanwhile,
// and a repeat does not touch the present holder.
func TestReleaseWhoseReplyIsLostIsOurs(t *testing.T) {
	t.Parallel()
	url := luatomictest.URL(t)
	for lost := range 5 {
		for _, waiters := range []int{0, 1, 3} {
			t.Run(fmt.Sprintf("%d lost, %d wait", lost, waiters), func(t *testing.T) {
				t.Parallel()
				ctx := t.Context()
				c, proxy := proxied(t, url)
				opts := &lock.Options{TTL: time.Minute}
				l, name := lab.Locker(t, c, opts), luatomictest.Namespace(t)
				direct := lab.Locker(t, luatomictest.Client(t), opts)
				lease, err := l.Try(ctx, name)
				require.NoError(t, err)
				proxy.Drop(lost, luatomictest.Command("EVALSHA"))
				require.NoError(t, lease.Extend(ctx), "extend")
				var got []<-chan lab.Acquired
				for i := range waiters {
					got = append(got, lab.AcquireLater(ctx, direct, name))
					lab.WaitFor(t, direct, name, i+1)
				}
				proxy.Drop(lost, luatomictest.Command("EVALSHA"))
				require.NoError(t, lease.Release(ctx))
				for i, g := range got {
					next := lab.Soon(t, 20*time.Second, "handed over", g)
					require.NoError(t, next.Err)
					lab.WaitFor(t, direct, name, waiters-i-1)
					require.NoError(t, next.Lease.Extend(ctx), "the repeat left it alone")
					require.NoError(t, next.Lease.Release(ctx))
				}
			})
		}
	}
}

// A lock that was taken away is not released by a call whose reply was lost: the record says so to each attempt.
func TestReleaseOfARevokedLeaseWhoseReplyIsLostSaysSo(t *testing.T) {
	t.Parallel()
	ctx, url := t.Context(), luatomictest.URL(t)
	for lost := range 3 {
		c, proxy := proxied(t, url)
		opts := &lock.Options{TTL: time.Minute}
		l, name := lab.Locker(t, c, opts), luatomictest.Namespace(t)
		lease, err := l.Try(ctx, name)
		require.NoError(t, err)
		_, err = lab.Locker(t, luatomictest.Client(t), opts).ForceRelease(ctx, name, lease.Fence())
		require.NoError(t, err)
		proxy.Drop(lost, luatomictest.Command("EVALSHA"))
		require.ErrorIs(t, lease.Release(ctx), lock.ErrRevoked, "%d lost", lost)
	}
}

// The context ends during the first attempt: the error says what an attempt
// before it found.
func TestEndDuringTheFirstAttemptNamesTheHolder(t *testing.T) {
	t.Parallel()
	c, proxy := proxied(t, luatomictest.URL(t))
	l, name := lab.Locker(t, c, nil), luatomictest.Namespace(t)
	direct := lab.Locker(t, luatomictest.Client(t), &lock.Options{TTL: time.Minute})
	holder, err := direct.Try(t.Context(), name)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	look := lab.Sent(&lockscript.AcquireScript)
	proxy.DropRequest(1, func(args []string) bool { return look(args) && cancelled(cancel) })
	_, err = l.Acquire(ctx, name)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, lock.ErrHeld)
	require.NoError(t, holder.Release(t.Context()))
}

// Row 11. No argument of any call is a time of the client's clock.
func TestNoTimeOfTheClientIsSent(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server := miniredis.RunT(t)
	server.SetTime(time.Now().AddDate(-1, 0, 0)) // a fence is a time of the server
	c, proxy := proxied(t, "redis://"+server.Addr())
	name := luatomictest.Namespace(t)
	l := lab.Locker(t, c, &lock.Options{TTL: time.Minute, LockDelay: time.Second})
	first, err := l.Try(ctx, name)
	require.NoError(t, err)
	got := lab.AcquireLater(ctx, l, name)
	lab.WaitFor(t, l, name, 1)
	require.NoError(t, first.Extend(ctx))
	require.NoError(t, first.Release(ctx))
	require.NoError(t, lab.Soon(t, 20*time.Second, "handed over", got).Lease.Release(ctx))
	_, err = l.Steal(ctx, name)
	require.NoError(t, err)
	_, err = l.ForceRelease(ctx, name, 0)
	require.NoError(t, err)
	all, err := l.With(lock.Options{Tag: name}).AcquireAll(ctx, "a", "b")
	require.NoError(t, err)
	require.NoError(t, all.Release(ctx))

	now := time.Now()
	var times []string
	calls := proxy.Executed(func(args []string) bool {
		if !strings.EqualFold(args[0], "EVALSHA") {
			return false
		}
		for _, word := range strings.Fields(strings.Join(args[2:], " ")) {
			n, err := strconv.ParseFloat(word, 64)
			if err != nil {
				continue
			}
			for _, unit := range []float64{1, 1e3, 1e6, 1e9} {
				if at := n / unit; at > float64(now.Add(-48*time.Hour).Unix()) &&
					at < float64(now.Add(48*time.Hour).Unix()) {
					times = append(times, word)
				}
			}
		}
		return true
	})
	require.GreaterOrEqual(t, calls, 9)
	require.Empty(t, times)
}
