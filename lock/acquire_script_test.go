package lock_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	lockscript "github.com/luatomic/luatomic/gen/lock"
	"github.com/luatomic/luatomic/internal/testkit/scriptcase"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// These are the branches of lock/acquire.lua that the package reaches by an accident of time only.

// sign is that of the record, its third field.
func (k lockKeys) sign() string { return strings.Fields(k.text())[2] }

func (k lockKeys) entries() []string { return k.c.LRange(k.t.Context(), k.queue, 0, -1).Val() }

// inbox subscribes as the process of that name.
func (k lockKeys) inbox(channel, process string) *redis.PubSub {
	k.t.Helper()
	inbox := k.c.Subscribe(k.t.Context(), channel+process)
	k.t.Cleanup(func() { _ = inbox.Close() })
	_, err := inbox.Receive(k.t.Context())
	require.NoError(k.t, err)
	return inbox
}

// A waiter that knows the lock to be held joins the queue in one command. Where the queue is gone, so is what it knew.
func TestAWaiterThatKnowsJoinsTheQueueThatIsThere(t *testing.T) {
	t.Parallel()
	ask := lockscript.AcquireParams{Own: scriptcase.Own("b.1"), Entry: scriptcase.EntryOf("b.1"),
		Fresh: lockscript.AcquireFreshKnows}
	k := newLockKeys(t, scriptcase.WantedOther, time.Minute, scriptcase.EntryOf("a.1"))
	require.Equal(t, lockscript.AcquireResult{Place: lockscript.AcquirePlaceJoined, Waiting: 2}, k.acquire(ask))
	require.Equal(t, []string{scriptcase.EntryOf("a.1"), scriptcase.EntryOf("b.1")}, k.entries())

	k = newLockKeys(t, scriptcase.HeldByOther, time.Minute)
	r := k.acquire(ask)
	require.Equal(t, lockscript.AcquirePlaceJoined, r.Place)
	require.Equal(t, []string{scriptcase.EntryOf("b.1")}, k.entries(), "it is queued all the same")
	require.Equal(t, "1", k.sign(), "and the holder's release sees that")

	k = newLockKeys(t, scriptcase.HeldByOther, 0)
	require.True(t, k.acquire(ask).Acquired, "the lock is free")
}

// A holder that was handed the lock confirms it when it first asks, with a whole lease. Later it learns what is left.
func TestAHolderConfirmsOnce(t *testing.T) {
	t.Parallel()
	k := newLockKeys(t, scriptcase.GrantedMe, 20*time.Second)
	r := k.acquire(lockscript.AcquireParams{Own: scriptcase.Own("me")})
	require.True(t, r.Acquired)
	require.Zero(t, r.Remaining, "the whole lease")
	require.Equal(t, "1", k.sign())
	require.Greater(t, k.c.PTTL(t.Context(), k.lock).Val(), 30*time.Second)

	k = newLockKeys(t, scriptcase.WantedMe, 20*time.Second)
	before := k.text()
	r = k.acquire(lockscript.AcquireParams{Own: scriptcase.Own("me")})
	require.True(t, r.Acquired)
	require.Positive(t, r.Remaining)
	require.LessOrEqual(t, r.Remaining, 20*time.Second)
	require.Equal(t, before, k.text())
	require.Less(t, k.c.PTTL(t.Context(), k.lock).Val(), 30*time.Second)
}

// A waiter signs the record of a holder that nobody waited for. An unconfirmed grant stays one: only its holder
// confirms.
func TestAWaiterLeavesAnUnconfirmedGrantAsItIs(t *testing.T) {
	t.Parallel()
	for record, sign := range map[string]string{
		scriptcase.HeldByOther: "1", scriptcase.WantedOther: "1", scriptcase.Record(7, 2, "other"): "2",
	} {
		k := newLockKeys(t, record, time.Minute)
		r := k.acquire(lockscript.AcquireParams{Own: scriptcase.Own("b.1"), Entry: scriptcase.EntryOf("b.1"),
			Fresh: lockscript.AcquireFreshAsks})
		require.Equal(t, lockscript.AcquirePlaceJoined, r.Place)
		require.Equal(t, sign, k.sign(), record)
	}
}

// A first waiter that asks for the free lock itself has it with the sign of those behind it.
func TestAFirstWaiterKeepsTheSignOfTheOthers(t *testing.T) {
	t.Parallel()
	k := newLockKeys(t, scriptcase.WantedOther, 0, scriptcase.EntryOf("b.1"), scriptcase.EntryOf("c.1"))
	r := k.acquire(lockscript.AcquireParams{Own: scriptcase.Own("b.1"), Entry: scriptcase.EntryOf("b.1")})
	require.True(t, r.Acquired)
	require.Equal(t, "1", k.sign())
	require.Equal(t, []string{scriptcase.EntryOf("c.1")}, k.entries())
}

// A process that did not confirm a grant is taken for dead, with all it waits for, unless the one that asks is of it.
func TestAProcessThatAsksIsNotDead(t *testing.T) {
	t.Parallel()
	for asks, holder := range map[string]string{"a.3": "a.2", "b.1": "b.1"} {
		k := newLockKeys(t, scriptcase.Record(7, 2, "a.1"), 0, scriptcase.EntryOf("a.2"), scriptcase.EntryOf("b.1"))
		channel := luatomictest.Namespace(t) + asks
		k.inbox(channel, "a")
		k.inbox(channel, "b")
		k.acquire(lockscript.AcquireParams{Own: scriptcase.Own(asks), Entry: scriptcase.EntryOf(asks),
			Channel: channel})
		require.Equal(t, holder, strings.Fields(k.text())[4], "%s asks", asks)
	}
}

// What hand_over grants, it says to the first waiter of another process, which looks when that lease is over.
func TestAGrantIsKnownToAnotherProcess(t *testing.T) {
	t.Parallel()
	k := newLockKeys(t, scriptcase.WantedOther, 0, scriptcase.EntryOf("a.1"), scriptcase.EntryOf("a.2"),
		scriptcase.EntryOf("b.1"))
	channel := luatomictest.Namespace(t)
	a, b := k.inbox(channel, "a"), k.inbox(channel, "b")
	r := k.acquire(lockscript.AcquireParams{Own: scriptcase.Own("c.1"), Channel: channel})
	require.False(t, r.Acquired)
	granted, err := a.ReceiveMessage(t.Context())
	require.NoError(t, err)
	require.Regexp(t, `^g a\.1 `, granted.Payload)
	notice, err := b.ReceiveMessage(t.Context())
	require.NoError(t, err)
	require.Equal(t, "n b.1 5000", notice.Payload)
}

// Only a holder that loses the lock to a force is notified. One whose lease was over has lost nothing.
func TestAForceNotifiesTheHolderThatLoses(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for lease, first := range map[time.Duration]string{0: "end", time.Minute: "r a.1 "} {
		k := newLockKeys(t, scriptcase.Record(7, 0, "a.1"), lease)
		channel := luatomictest.Namespace(t) + lease.String()
		inbox := k.inbox(channel, "a")
		r := k.force(lockscript.ForceParams{Owner: "b.1", Channel: channel})
		require.Equal(t, lease > 0, r.Done)
		require.NoError(t, k.c.Publish(ctx, channel+"a", "end").Err())
		message, err := inbox.ReceiveMessage(ctx)
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(message.Payload, first), message.Payload)
	}
}

// An extend confirms a lock that was handed over, and leaves the record as it is otherwise.
func TestAnExtendConfirmsOnce(t *testing.T) {
	t.Parallel()
	for record, after := range map[string]string{
		scriptcase.GrantedMe: scriptcase.WantedMe, scriptcase.WantedMe: scriptcase.WantedMe,
		scriptcase.HeldByMe: scriptcase.HeldByMe,
	} {
		k := newLockKeys(t, record, 20*time.Second)
		r, err := lockscript.Extend(t.Context(), k.c, lockscript.ExtendParams{Lock: k.lock, Owner: "me",
			TTL: time.Minute})
		require.NoError(t, err)
		require.Equal(t, lockscript.ExtendResultExtended, r)
		require.Equal(t, after, k.text())
		require.Greater(t, k.c.PTTL(t.Context(), k.lock).Val(), 30*time.Second)
	}
}

// A string that is no lock of this version is refused by each script that takes one, and stays as it is.
func TestALockOfAnotherVersionIsRefused(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	own := scriptcase.Own("me")
	for _, record := range []string{"3 7 0 - me 0 0 ", "token", scriptcase.Record(1<<53, 0, "me"),
		"2 7 0 - me 0 " + strings.Repeat("9", 26) + " "} {
		k := newLockKeys(t, record, time.Minute)
		for name, call := range map[string]func() (any, error){
			"acquire": func() (any, error) {
				return lockscript.Acquire(ctx, k.c, lockscript.AcquireParams{Lock: k.lock, Queue: k.queue,
					TTL: time.Minute, Own: own})
			},
			"acquire_all": func() (any, error) {
				return lockscript.AcquireAll(ctx, k.c,
					lockscript.AcquireAllParams{Locks: []string{k.lock}, Life: time.Minute, Own: own})
			},
			"extend": func() (any, error) {
				return lockscript.Extend(ctx, k.c, lockscript.ExtendParams{Lock: k.lock, Owner: "me", TTL: time.Minute})
			},
			"fence": func() (any, error) {
				return lockscript.Fence(ctx, k.c, lockscript.FenceParams{Lock: k.lock, Owner: "me", Least: 8})
			},
			"force": func() (any, error) {
				return lockscript.Force(ctx, k.c, lockscript.ForceParams{Lock: k.lock, Queue: k.queue, Owner: "me",
					Own:  own,
					Life: time.Minute})
			},
			"info": func() (any, error) {
				return lockscript.Info(ctx, k.c, lockscript.InfoParams{Lock: k.lock, Queue: k.queue, Max: 10})
			},
			"leave": func() (any, error) {
				return lockscript.Leave(ctx, k.c, lockscript.LeaveParams{Lock: k.lock, Queue: k.queue, Owner: "me"})
			},
			"note": func() (any, error) {
				return lockscript.Note(ctx, k.c, lockscript.NoteParams{Lock: k.lock, Owner: "me", Text: "x"})
			},
			"release": func() (any, error) {
				return lockscript.Release(ctx, k.c, lockscript.ReleaseParams{Lock: k.lock, Queue: k.queue, Owner: "me",
					Whole: scriptcase.HeldByMe})
			},
			"try": func() (any, error) {
				return lockscript.Try(ctx, k.c, lockscript.TryParams{Lock: k.lock, Own: own, Life: time.Minute})
			},
		} {
			_, err := call()
			var e *lua.Error
			require.ErrorAs(t, err, &e, "%s of %q", name, record)
			require.Equal(t, "LAYOUT", e.Code, "%s of %q: %v", name, record, err)
			require.Equal(t, record, k.text())
		}
	}
}

// A token that leaves is void for 10 s: the record stays that long. The lease of another holder is as before.
func TestLeavingLeavesTheRecordOfOthers(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	free := scriptcase.Record(7, 0, "-")
	for name, test := range map[string]struct {
		record    string
		lease     time.Duration
		how       lockscript.LeaveHow
		void      bool
		stays     time.Duration // at least; the record is gone where it is 0
		beforeEnd time.Duration
	}{
		"void, another holds it": {scriptcase.HeldByOther, time.Minute, lockscript.LeaveHowVoid, true,
			50 * time.Second, 62 * time.Second},
		"void, nothing is there": {"", 0, lockscript.LeaveHowVoid, true, 9 * time.Second, 12 * time.Second},
		"void, a free record": {free, time.Minute, lockscript.LeaveHowVoid, true, 50 * time.Second,
			62 * time.Second},
		"late, it holds it": {scriptcase.WantedMe, time.Minute, lockscript.LeaveHowLate, true, 50 * time.Second,
			62 * time.Second},
		"late, it was handed over": {scriptcase.GrantedMe, time.Minute, lockscript.LeaveHowLate, true,
			50 * time.Second, 62 * time.Second},
		"late, nothing is there": {"", 0, lockscript.LeaveHowLate, true, 9 * time.Second, 12 * time.Second},
		"unconfirmed, another holds it": {scriptcase.HeldByOther, time.Minute, lockscript.LeaveHowUnconfirmed, false,
			50 * time.Second, 62 * time.Second},
		"unconfirmed, nothing is there": {"", 0, lockscript.LeaveHowUnconfirmed, false, 0, 0},
		"unconfirmed, but confirmed": {scriptcase.WantedMe, time.Minute, lockscript.LeaveHowUnconfirmed, false,
			50 * time.Second, 62 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newLockKeys(t, scriptcase.HeldByOther, time.Minute)
			if test.record == "" {
				require.NoError(t, k.c.Del(ctx, k.lock).Err())
			} else {
				require.NoError(t, k.c.Set(ctx, k.lock, test.record, test.lease).Err())
			}
			held, err := lockscript.Leave(ctx, k.c, lockscript.LeaveParams{Lock: k.lock, Queue: k.queue, Owner: "me",
				How: test.how})
			require.NoError(t, err)
			require.False(t, held)
			if test.stays == 0 {
				require.Zero(t, k.c.Exists(ctx, k.lock).Val())
				return
			}
			left := k.c.PTTL(ctx, k.lock).Val()
			require.GreaterOrEqual(t, left, test.stays)
			require.LessOrEqual(t, left, test.beforeEnd)
			fields := strings.Fields(k.text())
			require.Equal(t, test.void, strings.HasSuffix(fields[3], ",me"), k.text())
			if test.record != "" {
				fields[3] = "-"
				require.Equal(t, strings.Fields(test.record), fields)
			}
		})
	}
}

// A grant that is given back unconfirmed goes to the next waiter, and its token is not void: it may acquire again.
func TestAGrantThatIsGivenBackLeavesNoVoidToken(t *testing.T) {
	t.Parallel()
	for how, void := range map[lockscript.LeaveHow]bool{lockscript.LeaveHowUnconfirmed: false,
		lockscript.LeaveHowVoid: true} {
		k := newLockKeys(t, scriptcase.GrantedMe, time.Minute, scriptcase.EntryOf("b.1"))
		channel := luatomictest.Namespace(t) + how.String()
		k.inbox(channel, "b")
		held, err := lockscript.Leave(t.Context(), k.c, lockscript.LeaveParams{Lock: k.lock, Queue: k.queue,
			Owner: "me",
			How:   how, Channel: channel})
		require.NoError(t, err)
		require.True(t, held)
		fields := strings.Fields(k.text())
		require.Equal(t, "b.1", fields[4])
		require.Equal(t, void, strings.HasSuffix(fields[3], ",me"), k.text())
	}
}

// A grant that nobody waits for is given back by a process that does not know the options of the acquire.
func TestAGrantThatIsGivenBackKeepsItsAfterlife(t *testing.T) {
	t.Parallel()
	hour := strings.Replace(scriptcase.GrantedMe, " 1000 ", " 3600000 ", 1)
	k := newLockKeys(t, hour, time.Minute+time.Hour)
	held, err := lockscript.Leave(t.Context(), k.c, lockscript.LeaveParams{
		Lock: k.lock, Queue: k.queue, Owner: "me", How: lockscript.LeaveHowUnconfirmed,
	})
	require.NoError(t, err)
	require.True(t, held)
	require.Equal(t, "2 7 0 - - 0 0 ", k.text())
	require.Greater(t, k.c.PTTL(t.Context(), k.lock).Val(), 59*time.Minute)
}
