package lock_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	lockscript "github.com/luatomic/luatomic/gen/lock"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/internal/testkit/scriptcase"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/luatomictest"
)

// The lock is closed after a lease that ran out, and not after a release.
func TestLockDelayFollowsALossOnly(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	const delay = 400 * time.Millisecond
	l, name, c := lab.NewLocker(t, &lock.Options{TTL: 50 * time.Millisecond, LockDelay: delay,
		Afterlife: 20 * time.Second})
	plain := lab.Locker(t, luatomictest.Client(t), &lock.Options{TTL: time.Minute})
	for _, how := range []string{"try", "queue", "all"} {
		t.Run(how, func(t *testing.T) {
			name := name + how
			if _, err := l.Try(ctx, name); err != nil { // and dies
				require.ErrorIs(t, err, lock.ErrHeld) // before the answer: the lock is closed
			}
			end := lockEnd(t, c, name)
			var fence int64
			switch how {
			case "try":
				luatomictest.Eventually(t, 20*time.Second, "free", func() bool {
					next, err := plain.Try(ctx, name)
					if err == nil {
						fence = next.Fence()
						require.NoError(t, next.Release(ctx))
					}
					return err == nil
				})
			case "queue":
				next := lab.Soon(t, 20*time.Second, "free", lab.AcquireLater(ctx, plain, name))
				require.NoError(t, next.Err)
				fence = next.Lease.Fence()
				require.NoError(t, next.Lease.Release(ctx))
			case "all":
				next, err := plain.AcquireAll(ctx, name, name+"2")
				require.NoError(t, err)
				fence = next[0].Fence()
				require.NoError(t, next.Release(ctx))
			}
			require.GreaterOrEqual(t, fence-end, delay.Microseconds())
		})
	}
	if _, err := l.Try(ctx, name); err != nil {
		require.ErrorIs(t, err, lock.ErrHeld)
	}
	luatomictest.Eventually(t, 20*time.Second, "it rests", func() bool {
		info, err := plain.Info(ctx, name)
		require.NoError(t, err)
		return !info.Held
	})
	long := l.With(lock.Options{TTL: time.Minute, LockDelay: time.Minute})
	lease, err := long.Try(ctx, name+"r")
	require.NoError(t, err)
	require.NoError(t, lease.Release(ctx))
	next, err := plain.Try(ctx, name+"r")
	require.NoError(t, err, "no delay after a release")
	require.NoError(t, next.Release(ctx))
}

// lockKeys are the two keys of a lock whose state a test writes itself: states that the
// root API reaches by an accident of time or by several processes only.
type lockKeys struct {
	t           *testing.T
	c           *redis.Client
	lock, queue string
}

// newLockKeys stores a record whose lease lasts for the time; 0 is a lease that has ended.
func newLockKeys(t *testing.T, record string, lease time.Duration, entries ...string) lockKeys {
	t.Helper()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	require.NoError(t, scriptcase.LockOf(record, lease, entries...)(t.Context(), c, name))
	return lockKeys{t, c, "lock:{" + name + "}", "lockq:{" + name + "}"}
}

func (k lockKeys) text() string { return k.c.Get(k.t.Context(), k.lock).Val() }

func (k lockKeys) acquire(p lockscript.AcquireParams) lockscript.AcquireResult {
	k.t.Helper()
	p.Lock, p.Queue, p.TTL = k.lock, k.queue, time.Minute
	r, err := lockscript.Acquire(k.t.Context(), k.c, p)
	require.NoError(k.t, err)
	return r
}

func (k lockKeys) force(p lockscript.ForceParams) lockscript.ForceResult {
	k.t.Helper()
	p.Lock, p.Queue, p.Life, p.Own = k.lock, k.queue, time.Minute, scriptcase.Own(p.Owner)
	r, err := lockscript.Force(k.t.Context(), k.c, p)
	require.NoError(k.t, err)
	return r
}

// aheadOfTheClock is in the year 2096.
const aheadOfTheClock int64 = 4_000_000_000_000_000

func TestReleaseByAnotherLeavesTheLock(t *testing.T) {
	t.Parallel()
	k := newLockKeys(t, scriptcase.HeldByOther, time.Minute)
	before := k.text()
	r, err := lockscript.Release(t.Context(), k.c, lockscript.ReleaseParams{
		Lock: k.lock, Queue: k.queue, Owner: "me", Whole: scriptcase.HeldByMe,
	})
	require.NoError(t, err)
	require.Equal(t, lockscript.ReleaseResultTaken, r)
	require.Equal(t, before, k.text())
}

func TestAcquireAfterOnesOwnLeaseHasEndedIsANewOne(t *testing.T) {
	t.Parallel()
	k := newLockKeys(t, scriptcase.HeldByMe, 0)
	r := k.acquire(lockscript.AcquireParams{Own: scriptcase.Own("me")})
	require.True(t, r.Acquired)
	require.Greater(t, r.Fence, int64(7))
}

// In all scripts that give a fence, one that is ahead of the clock is followed by the
// next number.
func TestFenceAheadOfTheClockIsFollowedByTheNext(t *testing.T) {
	t.Parallel()
	free := fmt.Sprintf("2 %d 0 - - 0 0 ", aheadOfTheClock)
	require.EqualValues(t, aheadOfTheClock+1, newLockKeys(t, free, time.Minute).acquire(lockscript.AcquireParams{
		Own: scriptcase.Own("me"),
	}).Fence)
	k := newLockKeys(t, free, time.Minute)
	tried, err := lockscript.Try(t.Context(), k.c, lockscript.TryParams{
		Lock: k.lock, Own: scriptcase.Own("me"), Life: time.Minute,
	})
	require.NoError(t, err)
	require.EqualValues(t, aheadOfTheClock+1, tried.Fence)
	k = newLockKeys(t, free, time.Minute)
	r, err := lockscript.AcquireAll(t.Context(), k.c, lockscript.AcquireAllParams{
		Locks: []string{k.lock}, Own: scriptcase.Own("me"), Life: time.Minute,
	})
	require.NoError(t, err)
	require.Equal(t, []int64{aheadOfTheClock + 1}, r.Fences)
}

// The string was evicted or deleted, and its queue was not: the waiters go first.
func TestNewcomerToALostStringDoesNotPassTheQueue(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	channel := luatomictest.Namespace(t)
	k := newLockKeys(t, "x", time.Minute, scriptcase.EntryOf("first.1"))
	require.NoError(t, k.c.Del(ctx, k.lock).Err())
	inbox := k.c.Subscribe(ctx, channel+"first")
	defer inbox.Close()
	_, err := inbox.Receive(ctx)
	require.NoError(t, err)
	r := k.acquire(lockscript.AcquireParams{
		Own: scriptcase.Own("second.1"), Entry: scriptcase.EntryOf("second.1"), Channel: channel,
	})
	require.False(t, r.Acquired)
	message, err := inbox.ReceiveMessage(ctx)
	require.NoError(t, err)
	require.Regexp(t, `^g first\.1 `, message.Payload)
}

func TestLeaseThatHasEndedIsNotExtended(t *testing.T) {
	t.Parallel()
	k := newLockKeys(t, scriptcase.HeldByMe, 0)
	before := k.text()
	r, err := lockscript.Extend(t.Context(), k.c, lockscript.ExtendParams{
		Lock: k.lock, Owner: "me", TTL: time.Second,
	})
	require.NoError(t, err)
	require.Equal(t, lockscript.ExtendResultExpired, r)
	require.Equal(t, before, k.text())
}

// A Try acquires a free lock whose waiters are all dead.
func TestTryAcquiresALockThatOnlyTheDeadWaitFor(t *testing.T) {
	t.Parallel()
	k := newLockKeys(t, "2 7 1 - - 0 0 ", time.Minute, scriptcase.EntryOf("dead.1"),
		scriptcase.EntryOf("dead.2"))
	tried, err := lockscript.Try(t.Context(), k.c, lockscript.TryParams{
		Lock: k.lock, Own: scriptcase.Own("me"), Life: time.Minute,
	})
	require.NoError(t, err)
	require.Equal(t, lockscript.TryStateWanted, tried.State, "it does not look into the queue")
	require.True(t, k.acquire(lockscript.AcquireParams{Own: scriptcase.Own("me")}).Acquired)
	require.Contains(t, k.text(), " 0 - me ")
}

// A steal whose reply was lost is repeated, and is the same one: its lease goes on. One whose lease is over is a new
// one.
func TestRepeatedStealKeepsItsFence(t *testing.T) {
	t.Parallel()
	k := newLockKeys(t, scriptcase.Record(7, 0, "thief"), time.Minute/2)
	before := k.text()
	again := k.force(lockscript.ForceParams{Owner: "thief"})
	require.EqualValues(t, 7, again.Fence)
	require.Equal(t, before, k.text())
	require.Greater(t, again.Remaining, time.Minute/4)
	require.LessOrEqual(t, again.Remaining, time.Minute/2, "the afterlife is none of the lease")

	over := newLockKeys(t, scriptcase.Record(7, 0, "thief"), 0)
	anew := over.force(lockscript.ForceParams{Owner: "thief"})
	require.Greater(t, anew.Fence, int64(7))
	require.Zero(t, anew.Remaining, "the whole")
}

// The holder of a lease that has ended lost it before the steal, and is not notified that it
// was taken away.
func TestStealAfterTheLeaseNotifiesNobody(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	k := newLockKeys(t, scriptcase.Record(7, 0, "late.1"), 0)
	channel := k.lock + ":inbox:late"
	inbox := k.c.Subscribe(ctx, channel)
	defer inbox.Close()
	_, err := inbox.Receive(ctx)
	require.NoError(t, err)
	require.False(t, k.force(lockscript.ForceParams{Owner: "thief", Channel: k.lock + ":inbox:"}).Done)
	require.NoError(t, k.c.Publish(ctx, channel, "the end").Err())
	message, err := inbox.ReceiveMessage(ctx)
	require.NoError(t, err)
	require.Equal(t, "the end", message.Payload)
}

// During its lock delay a lock has no owner: there is nothing to release, and the
// waiters go on waiting.
func TestForceReleaseLeavesTheLockDelay(t *testing.T) {
	t.Parallel()
	k := newLockKeys(t, "2 7 1 - gone 60000 61000 ", 59*time.Second, scriptcase.EntryOf("waiter.1"))
	before := k.text()
	require.False(t, k.force(lockscript.ForceParams{Owner: "-"}).Done)
	require.Equal(t, before, k.text())
	require.EqualValues(t, 1, k.c.LLen(t.Context(), k.queue).Val())
}

// A forced end leaves a mark: the old holder learns that the lock was taken away, by its next extend and its release,
// also after another owner has come and gone.
func TestForcedEndIsReportedToTheOldHolder(t *testing.T) {
	t.Parallel()
	k := newLockKeys(t, scriptcase.Record(7, 0, "holder.1"), time.Minute)
	require.True(t, k.force(lockscript.ForceParams{Owner: "-"}).Done)
	for _, state := range []string{"free", "another holds it", "free again"} {
		r, err := lockscript.Release(t.Context(), k.c,
			lockscript.ReleaseParams{Lock: k.lock, Queue: k.queue, Owner: "holder.1"})
		require.NoError(t, err)
		require.Equal(t, lockscript.ReleaseResultRevoked, r, state)
		e, err := lockscript.Extend(t.Context(), k.c, lockscript.ExtendParams{
			Lock: k.lock, Owner: "holder.1", TTL: time.Second,
		})
		require.NoError(t, err)
		require.Equal(t, lockscript.ExtendResultRevoked, e, state)
		switch state {
		case "free":
			require.True(t, k.acquire(lockscript.AcquireParams{Own: scriptcase.Own("other.1")}).Acquired)
		case "another holds it":
			r, err := lockscript.Release(t.Context(), k.c,
				lockscript.ReleaseParams{Lock: k.lock, Queue: k.queue, Owner: "other.1"})
			require.NoError(t, err)
			require.Equal(t, lockscript.ReleaseResultReleased, r)
		}
	}
}

func TestInfoShowsALockWhoseLeaseHasEndedAsFree(t *testing.T) {
	t.Parallel()
	k := newLockKeys(t, scriptcase.Record(7, 0, "gone"), 0)
	r, err := lockscript.Info(t.Context(), k.c, lockscript.InfoParams{Lock: k.lock, Queue: k.queue})
	require.NoError(t, err)
	require.False(t, r.Held)
	require.Empty(t, r.Owner)
	require.EqualValues(t, 7, r.Fence)
}

// Row 25. Lease, lock delay and note reach the record by whichever way the lock came.
func TestEveryWayToALockHeedsItsOptions(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	l, name, c := lab.NewLocker(t, &lock.Options{
		TTL: 12_345 * time.Millisecond, LockDelay: 678 * time.Millisecond, Note: "who and why",
	})
	check := func(how, name string, lease *lock.Lease) {
		t.Helper()
		luatomictest.Eventually(t, 10*time.Second, how+": the record lives as long as lease and afterlife",
			func() bool {
				left := c.PTTL(ctx, "lock:{"+name+"}").Val() // one that is handed over is extended behind its caller
				return left > 7*time.Second && left <= (12_345+1678+1)*time.Millisecond
			})
		r := scriptcase.LockRecord(t, c, name)
		require.Equal(t, []string{"678", "1678"}, r[5:7], how)
		require.Equal(t, "who and why", r[7], how)
		require.NoError(t, lease.Release(ctx), how)
	}
	lease, err := l.Try(ctx, name)
	require.NoError(t, err)
	require.NoError(t, lease.Extend(ctx))
	check("try, extend", name, lease)

	held, err := l.Try(ctx, name)
	require.NoError(t, err)
	got := lab.AcquireLater(ctx, l, name)
	lab.WaitFor(t, l, name, 1)
	require.NoError(t, held.Release(ctx))
	check("handed over", name, lab.Soon(t, 20*time.Second, "handed over", got).Lease)

	require.NoError(t, c.Del(ctx, "lock:{"+name+"}").Err())
	lease, err = l.Acquire(ctx, name)
	require.NoError(t, err)
	check("acquire", name, lease)

	lease, err = l.Steal(ctx, name)
	require.NoError(t, err)
	check("steal", name, lease)

	tagged := l.With(lock.Options{
		TTL: 12_345 * time.Millisecond, LockDelay: 678 * time.Millisecond, Note: "who and why", Tag: name,
	})
	all, err := tagged.AcquireAll(ctx, "a", "b")
	require.NoError(t, err)
	for _, lease := range all {
		r := strings.SplitN(c.Get(ctx, lease.Key()).Val(), " ", 8)
		require.Equal(t, []string{"678", "1678", "who and why"}, r[5:])
	}
	require.NoError(t, all.Release(ctx))
}

// Both change the string of the present holder, and of no other.
func TestLockNoteAndFenceOnlyForTheHolder(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c, k := luatomictest.Client(t), luatomictest.Namespace(t)
	own := "lock:{" + k + "}"
	for _, tc := range []struct {
		text  string
		life  time.Duration
		noted bool
	}{
		{scriptcase.HeldByMe, time.Hour, true},
		{scriptcase.HeldByOther, time.Hour, false},
		{strings.Replace(scriptcase.HeldByMe, " 1000 ", " 7200000 ", 1), time.Hour, false}, // the lease has ended
		{"2 7 0 - - 0 0 ", time.Hour, false},
		{"", 0, false},
	} {
		set := func() {
			require.NoError(t, c.Del(ctx, own).Err())
			if tc.text != "" {
				require.NoError(t, c.Set(ctx, own, tc.text, tc.life).Err())
			}
		}
		set()
		held, err := lockscript.Note(ctx, c, lockscript.NoteParams{Lock: own, Owner: "me", Text: "new"})
		require.NoError(t, err)
		require.Equal(t, tc.noted, held, tc)
		want := tc.text
		if tc.noted {
			want = strings.TrimSuffix(want, "note") + "new"
		}
		require.Equal(t, want, c.Get(ctx, own).Val())
		set()
		held, err = lockscript.Fence(ctx, c, lockscript.FenceParams{Lock: own, Owner: "me", Least: 9})
		require.NoError(t, err)
		require.Equal(t, tc.noted, held, tc)
		want = tc.text
		if tc.noted {
			want = "2 9" + want[3:]
			again, err := lockscript.Fence(ctx, c, lockscript.FenceParams{Lock: own, Owner: "me", Least: 8})
			require.NoError(t, err)
			require.True(t, again)
		}
		require.Equal(t, want, c.Get(ctx, own).Val(), "never lowered, and nobody else's")
	}
}
