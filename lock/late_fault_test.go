package lock_test

import (
	"context"
	"fmt"
	"math"
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
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// A request that arrives after it was withdrawn does nothing for ten seconds, whether the lock is held meanwhile or
// not: the guard is the list of void tokens, which each script keeps.
func TestRequestAfterItsWithdrawalDoesNothing(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	key, queue := "lock:{"+name+"}", "lockq:{"+name+"}"
	_, err := lockscript.Leave(ctx, c, lockscript.LeaveParams{Lock: key, Queue: queue, Owner: "late.1"})
	require.NoError(t, err)
	arrives := func(when string) {
		tried, err := lockscript.Try(ctx, c, lockscript.TryParams{Lock: key, Own: scriptcase.Own("late.1"),
			Life: time.Minute})
		require.NoError(t, err)
		require.NotEqual(t, lockscript.TryStateAcquired, tried.State, when)
		r, err := lockscript.Acquire(ctx, c, lockscript.AcquireParams{
			Lock: key, Queue: queue, Own: scriptcase.Own("late.1"), TTL: time.Minute,
			Entry: scriptcase.EntryOf("late.1"), Fresh: lockscript.AcquireFreshAsks,
		})
		require.NoError(t, err)
		require.False(t, r.Acquired, when)
		require.Equal(t, lockscript.AcquirePlaceVoid, r.Place, when)
		require.Zero(t, c.Exists(ctx, queue).Val(), when)
	}
	arrives("free")
	l := lab.Locker(t, c, &lock.Options{TTL: time.Minute})
	lease, err := l.Try(ctx, name)
	require.NoError(t, err)
	arrives("held")
	require.NoError(t, lease.Extend(ctx))
	arrives("extended")
	require.NoError(t, lease.Release(ctx))
	arrives("released")
	stolen, err := l.Steal(ctx, name)
	require.NoError(t, err)
	arrives("stolen")
	require.NoError(t, stolen.Release(ctx))
	arrives("released again")
	require.InDelta(t, 10, c.PTTL(ctx, key).Val().Seconds(), 5, "it is forgotten")
}

// A request that arrives late joins the waiters that are there, and is passed over though its process lives.
func TestALateRequestBehindAWaiterIsPassedOver(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	l, name, c := lab.NewLocker(t, &lock.Options{TTL: time.Minute})
	key, queue := "lock:{"+name+"}", "lockq:{"+name+"}"
	holder, err := l.Try(ctx, name)
	require.NoError(t, err)
	got := lab.AcquireLater(ctx, l, name)
	lab.WaitFor(t, l, name, 1)
	process := "late" + name
	inbox := c.Subscribe(ctx, "lock:c:"+process)
	defer inbox.Close()
	_, err = inbox.Receive(ctx)
	require.NoError(t, err)
	late := process + ".1"
	_, err = lockscript.Leave(ctx, c, lockscript.LeaveParams{Lock: key, Queue: queue, Owner: late})
	require.NoError(t, err)
	r, err := lockscript.Acquire(ctx, c, lockscript.AcquireParams{
		Lock: key, Queue: queue, Own: scriptcase.Own(late), TTL: time.Minute, Entry: scriptcase.EntryOf(late),
		Fresh: lockscript.AcquireFreshKnows, Channel: "lock:c:",
	})
	require.NoError(t, err)
	require.False(t, r.Acquired)
	require.NoError(t, holder.Release(ctx))
	next := lab.Soon(t, 10*time.Second, "the waiter", got)
	require.NoError(t, next.Err)
	require.NoError(t, next.Lease.Release(ctx))
	info, err := l.Info(ctx, name)
	require.NoError(t, err)
	require.False(t, info.Held, "by %+v", info)
}

// late holds commands back on their way to the server.
type late struct {
	lab.Around
	by time.Duration
}

func (d *late) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if lab.OfScript(cmd, d.Sha) {
			time.Sleep(d.by)
		}
		return next(context.WithoutCancel(ctx), cmd)
	}
}

// A Try whose request is held back in the network has left when it arrives, and leaves no lock behind.
func TestTryThatArrivesLateLeavesNoLock(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	warm := lab.Locker(t, luatomictest.Client(t), nil)
	lease, err := warm.Try(t.Context(), name)
	require.NoError(t, err)
	require.NoError(t, lease.Release(t.Context()))
	c.AddHook(&late{lab.Around{Sha: lab.Digest(&lockscript.TryScript)}, 6 * time.Second})
	l := lab.Locker(t, c, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err = l.Try(ctx, name)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, time.Since(start), 5500*time.Millisecond, "before the request arrives")
	time.Sleep(time.Until(start.Add(6500 * time.Millisecond))) // it has arrived
	info, err := warm.Info(t.Context(), name)
	require.NoError(t, err)
	require.False(t, info.Held, "by %+v", info)
}

// An entry of a waiter that has left is granted to nobody: its process gives the lock back, and the next waiter has it
// long before the claim of the grant is over.
func TestGrantThatNobodyWaitsForIsGivenBack(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for kind, test := range map[string]struct {
		entry   func(token string) string
		acquire func(l *lock.Locker, name string) (*lock.Lease, error)
		push    func(c *redis.Client, name, entry string) error
	}{
		"lock": {
			func(token string) string { return "60000 " + token + " 0 1000 " },
			func(l *lock.Locker, name string) (*lock.Lease, error) { return l.Acquire(ctx, name) },
			func(c *redis.Client, name, entry string) error { return c.LPush(ctx, "lockq:{"+name+"}", entry).Err() },
		},
		"semaphore": {
			func(token string) string { return token + ":1 60000\n" },
			func(l *lock.Locker, name string) (*lock.Lease, error) { return l.Semaphore(name, 1).Acquire(ctx, 1) },
			func(c *redis.Client, name, entry string) error {
				return c.ZAdd(ctx, "semq:{"+name+"}", redis.Z{Score: -1, Member: entry}).Err()
			},
		},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			l, name, c := lab.NewLocker(t, &lock.Options{TTL: time.Minute})
			holder, err := test.acquire(l, name)
			require.NoError(t, err)
			got := make(chan lab.Acquired, 1)
			go func() {
				lease, err := test.acquire(l, name)
				got <- lab.Acquired{Lease: lease, Err: err}
			}()
			luatomictest.Eventually(t, 20*time.Second, "one waits", func() bool {
				return c.Exists(ctx, "lockq:{"+name+"}", "semq:{"+name+"}").Val() > 0
			})
			process, _, _ := strings.Cut(holder.Token(), ".")
			require.NoError(t, test.push(c, name, test.entry(process+".left")))
			require.NoError(t, holder.Release(ctx))
			next := lab.Soon(t, 10*time.Second, "the waiter behind the entry", got)
			require.NoError(t, next.Err)
			require.NoError(t, next.Lease.Release(ctx))
		})
	}
}

// A lease that is handed over lasts for the claim, and is extended to the whole TTL at once.
func TestHandedOverLeaseIsExtendedAtOnce(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	l, name, _ := lab.NewLocker(t, &lock.Options{TTL: time.Minute, Claim: 5 * time.Second})
	holder, err := l.Try(ctx, name)
	require.NoError(t, err)
	got := lab.AcquireLater(ctx, l, name)
	lab.WaitFor(t, l, name, 1)
	require.NoError(t, holder.Release(ctx))
	next := lab.Soon(t, 4*time.Second, "handed over", got)
	require.NoError(t, next.Err)
	luatomictest.Eventually(t, 4*time.Second, "the whole TTL", func() bool {
		return time.Until(next.Lease.Deadline()) > 50*time.Second
	})
	require.NoError(t, next.Lease.Release(ctx))
}

// A stopped process with many waiters delays the others by one claim, not by one for each of its waiters.
func TestStoppedProcessWithManyWaitersCostsOneClaim(t *testing.T) {
	t.Parallel()
	l, name, _ := lab.NewLocker(t, &lock.Options{TTL: time.Minute})
	holder, err := l.Try(t.Context(), name)
	require.NoError(t, err)
	p := startLockProcess(t, luatomictest.URL(t), name)
	p.do("locker 1m 5s")
	p.do("queue 8")
	lab.WaitFor(t, l, name, 8)
	got := lab.AcquireLater(t.Context(), l, name)
	lab.WaitFor(t, l, name, 9)
	p.pause()
	defer p.resume()
	start := time.Now()
	require.NoError(t, holder.Release(t.Context()))
	next := lab.Soon(t, 20*time.Second, "the lock", got)
	require.NoError(t, next.Err)
	t.Logf("after %v", time.Since(start))
	require.Less(t, time.Since(start), 9*time.Second, "two claims")
	require.NoError(t, next.Lease.Release(t.Context()))
}

// On a Ring the holder is notified of a revocation at once, on whatever shard the lock is.
func TestRevocationOnARingIsNotifiedAtOnce(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	one, two := luatomictest.StartServer(t), luatomictest.StartServer(t)
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"0": one.Addr(), "1": two.Addr()}})
	defer ring.Close()
	l := lab.Locker(t, ring, &lock.Options{TTL: time.Minute})
	for i := range 8 {
		name := fmt.Sprint("x", i)
		lease, err := l.Try(ctx, name)
		require.NoError(t, err)
		permit, err := l.Semaphore(name, 1).Try(ctx, 1)
		require.NoError(t, err)
		kept, of := lease.Keep(ctx), permit.Keep(ctx)
		luatomictest.Eventually(t, 10*time.Second, "the inbox is subscribed", func() bool {
			return len(one.Client().PubSubChannels(ctx, "lock:c:*").Val())+
				len(two.Client().PubSubChannels(ctx, "lock:c:*").Val()) > 0
		})
		_, err = l.ForceRelease(ctx, name, 0)
		require.NoError(t, err)
		_, err = l.Semaphore(name, 1).Revoke(ctx, permit.Token())
		require.NoError(t, err)
		lab.Soon(t, 5*time.Second, "notified", kept.Done())
		lab.Soon(t, 5*time.Second, "notified", of.Done())
		require.ErrorIs(t, context.Cause(kept), lock.ErrRevoked)
		require.ErrorIs(t, lease.Release(ctx), lock.ErrRevoked)
	}
}

// The server stops while Acquire tries, subscribes or waits: it returns at the end of its context all the same.
func TestAcquireReturnsAtTheEndOfItsContext(t *testing.T) {
	t.Parallel()
	h := newHang(t)
	_, err := h.other.Try(t.Context(), "x")
	require.NoError(t, err)
	fresh, waiting := lab.Locker(t, h.client(t), nil), lab.Locker(t, h.client(t), nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	returned := make(chan error, 3)
	go func() { _, err := waiting.Acquire(ctx, "x"); returned <- err }()
	lab.WaitFor(t, h.other, "x", 1)
	h.server.Pause()
	asked := make(chan struct{}, 99)
	// the first is that of its connection
	h.proxy.DropRequest(1, func([]string) bool { asked <- struct{}{}; return false })
	go func() { _, err := fresh.Acquire(ctx, "x"); returned <- err }()
	lab.Soon(t, 20*time.Second, "Acquire asks the server", asked)
	go func() { _, err := fresh.Try(ctx, "y"); returned <- err }()
	lab.Soon(t, 20*time.Second, "Try asks the server", asked)
	cancel()
	for range 3 { // go-redis itself waits for a minute
		require.ErrorIs(t, lab.Soon(t, 20*time.Second, "it returns", returned), context.Canceled)
	}
}

// A released lock costs no memory, and with Afterlife it stays for so long.
func TestReleasedLocksLeaveNothing(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := luatomictest.StartServer(t).Client()
	l := lab.Locker(t, c, nil)
	for i := range 1000 {
		lease, err := l.Try(ctx, fmt.Sprint("x", i))
		require.NoError(t, err)
		require.NoError(t, lease.Release(ctx))
	}
	require.Zero(t, c.DBSize(ctx).Val())
	lease, err := lab.Locker(t, c, &lock.Options{Afterlife: time.Minute}).Try(ctx, "x")
	require.NoError(t, err)
	require.NoError(t, lease.Release(ctx))
	require.InDelta(t, 60, c.PTTL(ctx, "lock:{x}").Val().Seconds(), 5)
}

// The clock of the server is set back between two holders. A process that knows the last fence, by whichever call, gets
// a greater one; one that knows nothing does while the record stays.
func TestFenceGrowsForAProcessThatKnowsTheLast(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server := miniredis.RunT(t)
	now := time.Now()
	server.SetTime(now)
	c := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer c.Close()
	knows := lab.Locker(t, c, nil)
	var last int64
	cycle := func(l *lock.Locker, when string) {
		lease, err := l.Try(ctx, "x")
		require.NoError(t, err, when)
		require.Greater(t, lease.Fence(), last, when)
		last = lease.Fence()
		require.NoError(t, lease.Release(ctx))
		now = now.Add(-time.Hour)
		server.SetTime(now)
	}
	cycle(knows, "first")
	cycle(knows, "it had the last")
	other := lab.Locker(t, c, &lock.Options{Afterlife: time.Minute})
	held, err := knows.Try(ctx, "x")
	require.NoError(t, err)
	_, err = other.Try(ctx, "x")
	require.ErrorIs(t, err, lock.ErrHeld)
	last = held.Fence()
	require.NoError(t, held.Release(ctx))
	cycle(other, "it tried while the last had it")
	cycle(lab.Locker(t, c, nil), "the record stays")
}

// What is out of range is refused before anything is sent; what is under the key and is no lock is left as it is.
func TestBadInputOfLocks(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	for what, opts := range map[string]lock.Options{
		"TTL":            {TTL: time.Microsecond},
		"TTL ":           {TTL: -time.Second},
		"TTL  ":          {TTL: math.MaxInt64},
		"Claim":          {Claim: -1},
		"Afterlife":      {Afterlife: -1},
		"Afterlife ":     {Afterlife: math.MaxInt64},
		"MaxHold":        {MaxHold: -1},
		"LockDelay":      {LockDelay: -1},
		"LockDelay ":     {LockDelay: math.MaxInt64},
		"Poll":           {Poll: -1},
		"Replicas":       {Replicas: -1},
		"ReplicaTimeout": {ReplicaTimeout: -1},
	} {
		_, err := lab.Locker(t, c, &opts).Try(ctx, name)
		require.ErrorIs(t, err, lua.ErrOutOfRange, what)
		require.ErrorContains(t, err, what[:3], what)
	}
	l := lab.Locker(t, c, nil)
	_, err := l.Semaphore(name, 0).Try(ctx, 1)
	require.ErrorIs(t, err, lua.ErrOutOfRange)
	key := "lock:{" + name + "}"
	for _, foreign := range []string{
		"", "token", "1732280000000000 0 P.1 1732280000000000 10000 0 - note", "2 9999999999999999 0 - P.1 0 1000 ",
	} {
		require.NoError(t, c.Set(ctx, key, foreign, time.Minute).Err())
		_, err := l.Try(ctx, name)
		require.ErrorIs(t, err, lock.ErrNotALock, foreign)
		require.ErrorContains(t, err, "delete it", foreign)
		short, cancel := context.WithTimeout(ctx, 20*time.Second)
		_, err = l.Acquire(short, name)
		cancel()
		require.ErrorIs(t, err, lock.ErrNotALock, foreign)
		_, err = l.Info(ctx, name)
		require.ErrorIs(t, err, lock.ErrNotALock, foreign)
		_, err = l.Steal(ctx, name)
		require.ErrorIs(t, err, lock.ErrNotALock, foreign)
		require.Equal(t, foreign, c.Get(ctx, key).Val())
	}
	require.NoError(t, c.Del(ctx, key).Err())
	require.NoError(t, c.HSet(ctx, key, "a", "b").Err())
	_, err = l.Try(ctx, name)
	require.ErrorIs(t, err, lua.ErrWrongType)
	require.Equal(t, "b", c.HGet(ctx, key, "a").Val())
}

// The note of another process reaches no terminal raw, and not at any length.
func TestNoteOfTheHolderIsPrintable(t *testing.T) {
	t.Parallel()
	e := &lock.HeldError{Name: "x", Holder: "\x1b[2J\nluatomic: FAKE\u009b\u202e"}
	require.Equal(t, `luatomic: lock is held: "x" by "\x1b[2J\nluatomic: FAKE\u009b\u202e"`, e.Error())
	e.Holder = string(make([]byte, 1<<20))
	require.Less(t, len(e.Error()), 10_000)
	e.Holder, e.Remaining = "worker-7", time.Second
	require.Contains(t, e.Error(), `"x" by worker-7, for 1s more`)
}
