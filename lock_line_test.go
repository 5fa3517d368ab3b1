package luatomic_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic"
	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/luatomictest"
)

// dead are n entries of the queue whose process is gone.
func dead(t testing.TB, c *redis.Client, name string, n int) {
	t.Helper()
	entries := make([]redis.Z, n)
	for i := range entries {
		entries[i] = redis.Z{Score: float64(i + 1), Member: fmt.Sprintf("gone.%d 60000 0 lock:c:gone-%s\n", i, name)}
	}
	require.NoError(t, c.ZAdd(t.Context(), "lockq:{"+name+"}", entries...).Err())
	require.NoError(t, c.Expire(t.Context(), "lockq:{"+name+"}", time.Minute).Err())
}

// However many died in the queue, the release reaches the first that lives.
func TestManyDeadWaitersAreSkipped(t *testing.T) {
	t.Parallel()
	l, name, c := newLocker(t, &luatomic.LockerOptions{TTL: time.Minute})
	holder, err := l.Try(t.Context(), name)
	require.NoError(t, err)
	got := acquireLater(t.Context(), l, name)
	waitFor(t, l, name, 1)
	// Before the one that lives: its score is 1.
	require.NoError(t, c.ZIncrBy(t.Context(), "lockq:{"+name+"}", 5000, c.ZRange(t.Context(), "lockq:{"+name+"}", 0, 0).Val()[0]).Err())
	dead(t, c, name, 1000)
	require.NoError(t, holder.Release(t.Context()))
	next := soon(t, 20*time.Second, "the lock", got)
	require.NoError(t, next.err)
	require.NoError(t, next.lease.Release(t.Context()))
}

// More dead than one call passes over: whoever looks goes on, and does not wait for
// a lease of one of them.
func TestEndlessDeadWaitersAreSkippedBitByBit(t *testing.T) {
	t.Parallel()
	l, name, c := newLocker(t, &luatomic.LockerOptions{TTL: time.Minute})
	// So that it goes to the queue at once.
	busy, err := l.Try(t.Context(), name+"w")
	require.NoError(t, err)
	warm := acquireLater(t.Context(), l, name+"w")
	waitFor(t, l, name+"w", 1)
	require.NoError(t, busy.Release(t.Context()))
	require.NoError(t, soon(t, 20*time.Second, "warm", warm).err)
	dead(t, c, name, 25_000)
	require.NoError(t, c.Set(t.Context(), "lock:{"+name+"}", record(1, 1, "gone.0", 1, 1), time.Minute).Err())
	next := soon(t, 20*time.Second, "the lock", acquireLater(t.Context(), l, name))
	require.NoError(t, next.err)
	require.NoError(t, next.lease.Extend(t.Context()))
}

// A queue that was left by its last waiter does not cost those who come later
// anything: the guard is the sign in the string, which is taken back.
func TestLockThatIsNoLongerWaitedForIsCheapAgain(t *testing.T) {
	t.Parallel()
	l, name, c := newLocker(t, &luatomic.LockerOptions{TTL: time.Minute})
	holder, err := l.Try(t.Context(), name)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	got := acquireLater(ctx, l, name)
	waitFor(t, l, name, 1)
	cancel()
	require.ErrorIs(t, soon(t, 20*time.Second, "the end", got).err, context.Canceled)
	require.Equal(t, "1", lockRecord(t, c, name)[1])
	require.NoError(t, holder.Release(t.Context()))
	require.Equal(t, "0", lockRecord(t, c, name)[1], "nobody waits")
}

// The string was deleted, and somebody took the lock and gave it back before a waiter
// looked: the waiters are still served in order, and none is granted it twice.
func TestQueueOutlivesALostString(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	l, name, c := newLocker(t, &luatomic.LockerOptions{TTL: 4 * time.Second}) // both wait before it is over
	other := locker(t, luatomictest.Client(t), nil)
	_, err := l.Try(ctx, name)
	require.NoError(t, err)
	first := acquireLater(ctx, l, name)
	waitFor(t, l, name, 1)
	second := acquireLater(ctx, other, name)
	waitFor(t, l, name, 2)
	require.NoError(t, c.Del(ctx, "lock:{"+name+"}").Err())
	passing, err := locker(t, luatomictest.Client(t), nil).Try(ctx, name)
	require.NoError(t, err)
	require.NoError(t, passing.Release(ctx))
	one := soon(t, 30*time.Second, "the first", first)
	require.NoError(t, one.err)
	require.NoError(t, one.lease.Release(ctx))
	two := soon(t, 30*time.Second, "the second", second)
	require.NoError(t, two.err)
	require.Greater(t, two.lease.Fence(), one.lease.Fence())
	require.NoError(t, two.lease.Release(ctx))
	require.Zero(t, c.Exists(ctx, "lockq:{"+name+"}").Val(), "nobody is left in the queue")
}

// The queue itself was lost: the first that looks wakes the others of its process.
func TestWaitersComeBackToALostQueue(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	l, name, c := newLocker(t, nil)
	short := locker(t, luatomictest.Client(t), &luatomic.LockerOptions{TTL: 4 * time.Second})
	_, err := short.Try(ctx, name)
	require.NoError(t, err)
	var got []<-chan acquired
	for i := range 3 {
		got = append(got, acquireLater(ctx, l, name))
		waitFor(t, l, name, i+1)
	}
	require.NoError(t, c.Del(ctx, "lockq:{"+name+"}").Err())
	// Their order is lost. Whoever has it first gives it to all the others.
	all := make(chan acquired, len(got))
	for _, g := range got {
		go func() { all <- <-g }()
	}
	for range got {
		next := soon(t, 15*time.Second, "the lock", all) // half of the time between two looks
		require.NoError(t, next.err)
		require.NoError(t, next.lease.Release(ctx))
	}
}

// Of several that wait in one process, one looks when the lease of a dead holder is
// over. If that one leaves just then, another does.
func TestLookIsHandedOnWhenItsWaiterLeaves(t *testing.T) {
	t.Parallel()
	c, proxy := proxied(t, luatomictest.URL(t))
	l, name := locker(t, c, nil), luatomictest.Namespace(t)
	direct := locker(t, luatomictest.Client(t), &luatomic.LockerOptions{TTL: 4 * time.Second})
	_, err := direct.Try(t.Context(), name) // and dies
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first := acquireLater(ctx, l, name)
	waitFor(t, direct, name, 1)
	second := acquireLater(t.Context(), l, name)
	waitFor(t, direct, name, 2)
	look := luatomictest.Command("EVALSHA", gen.LockAcquireScript.SHA)
	proxy.DropRequest(1, func(args []string) bool { return look(args) && cancelled(cancel) })
	require.ErrorIs(t, soon(t, 20*time.Second, "the end", first).err, context.Canceled)
	next := soon(t, 15*time.Second, "the lock", second)
	require.NoError(t, next.err)
	require.NoError(t, next.lease.Release(t.Context()))
}

// A waiter that has the lock by a look of its own, and lets the lease run out: the
// others of its process do not wait for ever.
func TestLineLooksAfterItsOwnHolder(t *testing.T) {
	t.Parallel()
	l, name, _ := newLocker(t, &luatomic.LockerOptions{TTL: 200 * time.Millisecond})
	_, err := l.Try(t.Context(), name)
	require.NoError(t, err)
	const waiters = 4
	got := make(chan acquired, waiters)
	for i := range waiters {
		go func() {
			lease, err := l.Acquire(t.Context(), name) // and never gives it back
			got <- acquired{lease, err, i}
		}()
	}
	fences := make(map[int64]bool)
	for range waiters {
		next := soon(t, 30*time.Second, "the lock", got)
		require.NoError(t, next.err)
		fences[next.lease.Fence()] = true
	}
	require.Len(t, fences, waiters, "one after the other")
}

// A message that comes after a newer answer of the server does not count.
func TestLateGrantIsNotBelieved(t *testing.T) {
	t.Parallel()
	l, name, c := newLocker(t, &luatomic.LockerOptions{TTL: time.Minute})
	holder, err := l.Try(t.Context(), name)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	got := acquireLater(ctx, l, name)
	waitFor(t, l, name, 1)
	head := strings.Fields(c.ZRange(ctx, "lockq:{"+name+"}", 0, 0).Val()[0])
	owner, channel := head[0], head[3]
	now := c.Time(ctx).Val().UnixMicro()
	heard, err := c.Publish(ctx, channel, fmt.Sprintf("g %s %d %d 60000", owner, holder.Fence(), now)).Result()
	require.NoError(t, err)
	require.EqualValues(t, 1, heard)
	for _, nonsense := range []string{"", "g", "g " + owner, "g " + owner + " 1 x 1", "n " + owner + " x", "z " + owner, "n nobody 1", "r nobody key"} {
		require.NoError(t, c.Publish(ctx, channel, nonsense).Err())
	}
	select {
	case next := <-got:
		require.Fail(t, "it believes a late message", "%+v", next)
	case <-time.After(300 * time.Millisecond):
	}
	cancel()
	require.ErrorIs(t, soon(t, 20*time.Second, "the end", got).err, context.Canceled)
	require.NoError(t, holder.Release(t.Context()))
}

// A waiter leaves while the string is gone: its entry goes all the same.
func TestLeavingALostLockLeavesItsQueue(t *testing.T) {
	t.Parallel()
	l, name, c := newLocker(t, nil)
	_, err := l.Try(t.Context(), name)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	got := acquireLater(ctx, l, name)
	waitFor(t, l, name, 1)
	require.NoError(t, c.Del(t.Context(), "lock:{"+name+"}").Err())
	cancel()
	require.ErrorIs(t, soon(t, 20*time.Second, "the end", got).err, context.Canceled)
	require.Zero(t, c.Exists(t.Context(), "lockq:{"+name+"}").Val())
}
