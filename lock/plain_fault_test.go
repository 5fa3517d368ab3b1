package lock_test

import (
	"context"
	"fmt"
	"net"
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

// replicas starts two servers, the second a replica of the first.
func replicas(t *testing.T) (first, second *luatomictest.Server) {
	t.Helper()
	first = luatomictest.StartServer(t, "--repl-diskless-sync-delay", "0")
	second = luatomictest.StartServer(t)
	host, port, err := net.SplitHostPort(first.Addr())
	require.NoError(t, err)
	c := second.Client()
	require.NoError(t, c.ReplicaOf(t.Context(), host, port).Err())
	luatomictest.Eventually(t, 30*time.Second, "the replica is in step", func() bool {
		return strings.Contains(c.Info(t.Context(), "replication").Val(), "master_link_status:up")
	})
	return first, second
}

// Row 9. Too few replicas confirm: the lock is given back, and the error says so.
func TestLockThatIsNotReplicatedIsGivenBack(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	first, second := replicas(t)
	c := first.Client()
	plain := lab.Locker(t, c, &lock.Options{TTL: time.Minute})
	l := lab.Locker(t, c, &lock.Options{Replicas: 1, ReplicaTimeout: 200 * time.Millisecond, TTL: time.Minute})
	luatomictest.Eventually(t, 30*time.Second, "replicated", func() bool {
		lease, err := l.Try(ctx, "x")
		if err != nil {
			require.ErrorIs(t, err, lock.ErrNotReplicated)
			return false
		}
		require.NoError(t, lease.Release(ctx))
		return true
	})
	second.Pause()
	_, err := l.Try(ctx, "x")
	require.ErrorIs(t, err, lock.ErrNotReplicated)
	require.ErrorContains(t, err, "0 of 1 replicas")
	free, err := plain.Try(ctx, "x")
	require.NoError(t, err, "it was given back")
	got := lab.AcquireLater(ctx, l, "x")
	lab.WaitFor(t, plain, "x", 1)
	require.NoError(t, free.Release(ctx))
	require.ErrorIs(t, lab.Soon(t, 20*time.Second, "refused", got).Err, lock.ErrNotReplicated,
		"one that is handed over needs them, too")
	_, err = l.Steal(ctx, "x")
	require.ErrorIs(t, err, lock.ErrNotReplicated)
	_, err = l.AcquireAll(ctx, "x")
	require.ErrorIs(t, err, lock.ErrNotReplicated)
	_, err = l.With(lock.Options{
		Replicas: 1, ReplicaTimeout: 100 * time.Millisecond, Tag: "t",
	}).AcquireAll(ctx, "x", "y")
	require.ErrorIs(t, err, lock.ErrNotReplicated)
	for info, err := range plain.List(ctx) {
		require.NoError(t, err)
		require.Fail(t, "held", "%+v", info)
	}
	free, err = plain.Try(ctx, "x")
	require.NoError(t, err)
	require.NoError(t, free.Release(ctx))
	second.Resume()
	luatomictest.Eventually(t, 30*time.Second, "replicated again", func() bool {
		lease, err := l.Acquire(ctx, "x")
		return err == nil && lease.Release(ctx) == nil
	})
}

// Row 9. The replica is promoted: the fences it gives out are greater than those of
// the old master, also where the last grants never arrived.
func TestFenceGrowsOverAFailover(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	first, second := replicas(t)
	before := lab.Locker(t, first.Client(), &lock.Options{TTL: 5 * time.Second})
	last := int64(0)
	for i := range 5 {
		if i == 3 {
			second.Pause() // what follows never arrives
		}
		lease, err := before.Try(ctx, "x")
		require.NoError(t, err)
		last = lease.Fence()
		if i < 4 {
			require.NoError(t, lease.Release(ctx))
		}
	}
	first.Kill()
	second.Resume()
	c := second.Client()
	luatomictest.Eventually(t, 30*time.Second, "promoted", func() bool {
		return c.ReplicaOf(ctx, "no", "one").Err() == nil
	})
	after := lab.Locker(t, c, nil)
	luatomictest.Eventually(t, 30*time.Second, "the lock", func() bool {
		lease, err := after.Try(ctx, "x")
		if err != nil {
			return false
		}
		require.Greater(t, lease.Fence(), last)
		return true
	})
}

// Row 12. The clock of the server steps: back, the lease lasts longer by that; forth,
// it ends. The fence grows in any case.
func TestFenceGrowsOverStepsOfTheServersClock(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server := miniredis.RunT(t)
	now := time.Now()
	server.SetTime(now)
	c := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer c.Close()
	l := lab.Locker(t, c, &lock.Options{TTL: 8 * time.Second})
	last := int64(0)
	for _, step := range []time.Duration{
		0, time.Second, -10 * time.Second, 0, 20 * time.Second, -time.Hour, 0, time.Minute,
	} {
		now = now.Add(step)
		server.SetTime(now)
		lease, err := l.Try(ctx, "x")
		require.NoError(t, err)
		require.Greater(t, lease.Fence(), last, "after a step of %v", step)
		last = lease.Fence()
		require.NoError(t, lease.Extend(ctx))
		got := lab.AcquireLater(ctx, l, "x")
		luatomictest.Eventually(t, 20*time.Second, "it waits", func() bool {
			return c.LLen(ctx, "lockq:{x}").Val() == 1
		})
		now = now.Add(-10 * time.Second)
		server.SetTime(now)
		require.NoError(t, lease.Release(ctx), "a step back does not take it away")
		next := lab.Soon(t, 20*time.Second, "handed over", got)
		require.NoError(t, next.Err)
		require.Greater(t, next.Lease.Fence(), last, "handed over after a step back")
		last = next.Lease.Fence()
		stolen, err := l.Steal(ctx, "x")
		require.NoError(t, err)
		require.Greater(t, stolen.Fence(), last, "stolen after a step back")
		last = stolen.Fence()
		now = now.Add(10 * time.Second)
		server.SetTime(now)
		server.FastForward(20 * time.Second) // its keys expire by a clock of their own
		require.ErrorIs(t, stolen.Extend(ctx), lock.ErrLost, "a step forth ends it")
		require.ErrorIs(t, stolen.Release(ctx), lock.ErrLost)
	}
}

// Row 13. The script cache is flushed in every state of a lock, renewals included.
func TestLocksSurviveScriptFlush(t *testing.T) {
	lab.Long(t)
	t.Parallel()
	ctx := t.Context()
	server := luatomictest.StartServer(t)
	c := server.Client()
	flush := func() { require.NoError(t, c.ScriptFlush(ctx).Err()) }
	l := lab.Locker(t, server.Client(), &lock.Options{TTL: time.Minute})
	keeping := lab.Locker(t, server.Client(), &lock.Options{TTL: 6 * time.Second})
	var kept []context.Context
	for i := range 600 {
		lease, err := keeping.Try(ctx, fmt.Sprint("kept", i))
		require.NoError(t, err)
		kept = append(kept, lease.Keep(ctx))
	}
	next := time.NewTicker(50 * time.Millisecond)
	defer next.Stop()
	for range 140 { // 7 s: none of them lives so long unless it is renewed
		<-next.C
		flush()
		lease, err := l.Try(ctx, "x")
		require.NoError(t, err)
		flush()
		got := lab.AcquireLater(ctx, l, "x")
		lab.WaitFor(t, l, "x", 1)
		flush()
		require.NoError(t, lease.Extend(ctx))
		flush()
		require.NoError(t, lease.Release(ctx))
		waiter := lab.Soon(t, 20*time.Second, "handed over", got)
		require.NoError(t, waiter.Err)
		flush()
		stolen, err := l.Steal(ctx, "x")
		require.NoError(t, err)
		flush()
		require.NoError(t, stolen.Release(ctx))
		all, err := l.With(lock.Options{Tag: "t"}).AcquireAll(ctx, "a", "b")
		require.NoError(t, err)
		flush()
		require.NoError(t, all.Release(ctx))
	}
	for _, k := range kept {
		require.NoError(t, k.Err())
	}
}

// Row 24. The server is over its limit: nobody acquires, and the holders
// extend, release and hand it over.
func TestLockOnAFullServer(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server := luatomictest.StartServer(t, "--maxmemory-policy", "noeviction")
	c := server.Client()
	l := lab.Locker(t, c, &lock.Options{TTL: time.Minute})
	lease, err := l.Try(ctx, "x")
	require.NoError(t, err)
	forced, err := l.Try(ctx, "y")
	require.NoError(t, err)
	first, second := lab.AcquireLater(ctx, l, "x"), lab.AcquireLater(ctx, l, "y")
	lab.WaitFor(t, l, "x", 1)
	lab.WaitFor(t, l, "y", 1)
	require.NoError(t, c.ConfigSet(ctx, "maxmemory", "1").Err())

	_, err = l.Try(ctx, "free")
	require.Error(t, err)
	require.ErrorContains(t, err, "OOM")
	require.ErrorIs(t, err, lua.ErrNotExecuted)
	_, err = l.Acquire(ctx, "free")
	require.ErrorContains(t, err, "OOM")
	require.NoError(t, lease.Extend(ctx))
	require.NoError(t, lease.Release(ctx))
	next := lab.Soon(t, 20*time.Second, "handed over", first)
	require.NoError(t, next.Err)
	require.NoError(t, next.Lease.Extend(ctx))
	require.NoError(t, next.Lease.Release(ctx))
	done, err := l.ForceRelease(ctx, "y", forced.Fence())
	require.NoError(t, err)
	require.True(t, done)
	require.NoError(t, lab.Soon(t, 20*time.Second, "handed over by force", second).Err)
	require.NoError(t, c.ConfigSet(ctx, "maxmemory", "0").Err())
	free, err := l.Try(ctx, "x")
	require.NoError(t, err)
	require.NoError(t, free.Release(ctx))
}

// Row 24. The keys were evicted: the holder notices at its next renewal, and the owner that
// waits has the lock within the lease.
func TestEvictedLockIsNoticed(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	l, name, c := lab.NewLocker(t, &lock.Options{TTL: 3 * time.Second})
	lease, err := l.Try(ctx, name)
	require.NoError(t, err)
	kept := lease.Keep(ctx)
	got := lab.AcquireLater(ctx, lab.Locker(t, luatomictest.Client(t), nil), name)
	lab.WaitFor(t, l, name, 1)
	require.NoError(t, c.Del(ctx, "lock:{"+name+"}", "lockq:{"+name+"}").Err())
	lab.Soon(t, 20*time.Second, "noticed", kept.Done())
	require.ErrorIs(t, context.Cause(kept), lock.ErrLost)
	next := lab.Soon(t, 20*time.Second, "the lock", got)
	require.NoError(t, next.Err)
	require.Greater(t, next.Lease.Fence(), lease.Fence())
	require.NoError(t, next.Lease.Release(ctx))
}

// One script passes over the waiters of at most 1000 dead processes. The lock stays free
// and wanted, so that the next call goes on.
func TestHandOverPassesOver1000DeadProcesses(t *testing.T) {
	t.Parallel()
	for name, free := range map[string]func(k lockKeys){
		"release": func(k lockKeys) {
			lab.Must(lockscript.Release(t.Context(), k.c,
				lockscript.ReleaseParams{Lock: k.lock, Queue: k.queue, Owner: "me"}))
		},
		"force": func(k lockKeys) { k.force(lockscript.ForceParams{Owner: "-", Channel: k.lock}) },
	} {
		k := newLockKeys(t, scriptcase.WantedMe, time.Minute)
		k.dead(2500)
		free(k)
		require.EqualValues(t, 1500, k.c.LLen(t.Context(), k.queue).Val(), name)
		try := lab.Must(lockscript.Try(t.Context(), k.c, lockscript.TryParams{Lock: k.lock, Own: scriptcase.Own("new"),
			Life: time.Minute}))
		require.Equal(t, lockscript.TryStateWanted, try.State, name)
		require.False(t, k.acquire(lockscript.AcquireParams{Own: scriptcase.Own("new")}).Acquired,
			"%s: others may live behind the dead", name)
		require.EqualValues(t, 500, k.c.LLen(t.Context(), k.queue).Val(), name)
		require.True(t, k.acquire(lockscript.AcquireParams{Own: scriptcase.Own("new")}).Acquired, name)
		require.Zero(t, k.c.Exists(t.Context(), k.queue).Val(), name)
	}
}

// dead puts n waiters into the queue, each of a process of its own that has died.
func (k lockKeys) dead(n int) {
	entries := make([]any, n)
	for i := range entries {
		entries[i] = scriptcase.EntryOf(fmt.Sprintf("dead%d.1", i))
	}
	require.NoError(k.t, k.c.RPush(k.t.Context(), k.queue, entries...).Err())
}

// A dead waiter costs no write of the record: a record may be large, and the dead many.
func TestDeadWaitersCostNoWriteOfTheLock(t *testing.T) {
	t.Parallel()
	c := luatomictest.StartServer(t).Client()
	for name, tc := range map[string]struct {
		text  string
		lease time.Duration
		sets  int
		free  func(k lockKeys)
	}{
		"acquire": {scriptcase.WantedOther, 0, 1, func(k lockKeys) {
			k.acquire(lockscript.AcquireParams{Own: scriptcase.Own("me")})
		}},
		"release": {scriptcase.WantedMe, time.Minute, 0, func(k lockKeys) {
			lab.Must(lockscript.Release(t.Context(), c, lockscript.ReleaseParams{Lock: k.lock, Queue: k.queue,
				Owner: "me"}))
		}},
		"force": {scriptcase.WantedMe, time.Minute, 1, func(k lockKeys) {
			k.force(lockscript.ForceParams{Owner: "-", Channel: "i"})
		}},
	} {
		require.NoError(t, scriptcase.LockOf(tc.text, tc.lease)(t.Context(), c, name))
		k := lockKeys{t, c, "lock:{" + name + "}", "lockq:{" + name + "}"}
		k.dead(50)
		before := lab.Calls(t, c)["set"]
		tc.free(k)
		require.Zero(t, c.Exists(t.Context(), k.queue).Val(), name)
		require.Equal(t, tc.sets, lab.Calls(t, c)["set"]-before, name)
	}
}

// A timeout below what WAIT counts in is not the timeout 0, with which WAIT waits for ever.
func TestShortestReplicaTimeoutEnds(t *testing.T) {
	t.Parallel()
	c := luatomictest.Client(t)
	l := lab.Locker(t, c, &lock.Options{Replicas: 1, ReplicaTimeout: time.Microsecond, TTL: time.Minute})
	_, err := l.Try(t.Context(), luatomictest.Namespace(t))
	require.ErrorIs(t, err, lock.ErrNotReplicated)
	require.ErrorContains(t, err, "0 of 1 replicas")
}
