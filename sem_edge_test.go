package luatomic_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic"
	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// The functions that stand in several scripts are the same everywhere.
func TestSemaphoreScriptsShareTheirFunctions(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("scripts/sem_*.lua")
	require.NoError(t, err)
	seen := make(map[string]string)
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		for _, part := range strings.Split(string(text), "\nlocal function ")[1:] {
			name, _, _ := strings.Cut(part, "(")
			body, _, ok := strings.Cut(part, "\nend\n")
			require.True(t, ok)
			if before, there := seen[name]; there {
				require.Equal(t, before, body, "%s in %s", name, f)
			}
			seen[name] = body
		}
	}
	require.Contains(t, seen, "grant")
}

// The kin of the lock on a cluster, where each is told in its own slot.
func TestKinOfTheLockOnACluster(t *testing.T) {
	t.Parallel()
	ctx, cluster := t.Context(), luatomictest.StartCluster(t)
	mine := locker(t, cluster.Client(), &luatomic.LockerOptions{TTL: time.Minute})
	other := locker(t, cluster.Client(), &luatomic.LockerOptions{TTL: time.Minute})
	for i := range 6 {
		name := fmt.Sprint("name", i)
		s := mine.Semaphore(name, 2)
		held, err := s.Try(ctx, 2)
		require.NoError(t, err)
		got := acquiring(ctx, other.Semaphore(name, 2), 1)
		waitForPermits(t, s, 1)
		require.NoError(t, held.Release(ctx))
		require.NoError(t, permit(t, got).Release(ctx))

		writer, err := mine.RW(name).Try(ctx)
		require.NoError(t, err)
		reading := inBackground(ctx, other.RW(name).RAcquire)
		waitForRW(t, mine.RW(name), 1)
		reader, err := mine.RW(name).Downgrade(ctx, writer)
		require.NoError(t, err)
		require.NoError(t, permit(t, reading).Release(ctx))
		require.NoError(t, reader.Release(ctx))

		seen := observing(t, other.Election(name))
		require.Zero(t, sees(t, seen, ""))
		leads, err := mine.Election(name).Campaign(ctx, "me")
		require.NoError(t, err)
		sees(t, seen, "me")
		require.NoError(t, leads.Resign(ctx))
		require.Zero(t, sees(t, seen, ""))
	}
}

// A permit guards other scripts like a lock does.
func TestSemaphorePermitGuards(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, l, name, c := newSemaphore(t, 2, nil)
	one, err := s.Try(ctx, 1)
	require.NoError(t, err)
	reader, err := l.RW(name).RTry(ctx)
	require.NoError(t, err)
	for _, lease := range []*luatomic.Lease{one, reader} {
		q, err := luatomic.NewQueue(lua.Guard(c, lease), name, nil)
		require.NoError(t, err)
		_, err = q.Push(ctx, luatomic.Job{})
		require.NoError(t, err)
		require.NoError(t, lease.Release(ctx))
		_, err = q.Push(ctx, luatomic.Job{})
		require.ErrorIs(t, err, lua.ErrFenced)
	}
}

// On a server that is over its memory limit nothing new is acquired, and what is held
// is extended, given back and handed over.
func TestSemaphoreOverTheMemoryLimit(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := luatomictest.StartServer(t).Client()
	l := locker(t, c, &luatomic.LockerOptions{TTL: time.Minute, Note: "n"})
	s, rw, e := l.Semaphore("s", 2), l.RW("s"), l.Election("s")
	one, err := s.Try(ctx, 2)
	require.NoError(t, err)
	writer, err := rw.Try(ctx)
	require.NoError(t, err)
	leads, err := e.Campaign(ctx, "me")
	require.NoError(t, err)
	next := acquiring(ctx, s, 1)
	waitForPermits(t, s, 1)
	require.NoError(t, c.ConfigSet(ctx, "maxmemory", "1").Err())
	_, err = l.Semaphore("new", 1).Try(ctx, 1)
	require.ErrorContains(t, err, "OOM")
	require.NoError(t, one.Extend(ctx))
	require.NoError(t, one.Release(ctx))
	require.NoError(t, permit(t, next).Release(ctx))
	require.NoError(t, s.Resize(ctx, 1))
	reader, err := rw.Downgrade(ctx, writer)
	require.NoError(t, err)
	require.NoError(t, reader.Release(ctx))
	require.NoError(t, leads.Resign(ctx))
}

// semKeys names a semaphore of the test's own.
func semKeys(t *testing.T) (c *redis.Client, k, permits, queue string) {
	k = luatomictest.Namespace(t)
	return luatomictest.Client(t), k, "sem:{" + k + "}", "semq:{" + k + "}"
}

// One that holds a permit and stands in the queue, after an error half-way, leaves the
// queue with its next look, or the next grant would give it a second one.
func TestSemaphoreHolderLeavesTheQueue(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c, k, permits, queue := semKeys(t)
	entry := standing("p.me:2", "nobody")
	require.NoError(t, semOf(5, map[string]float64{"p.me:2": future}, entry)(ctx, c, k))
	r, err := gen.SemAcquire(ctx, c, gen.SemAcquireParams{Permits: permits, Queue: queue, Owner: "p.me:2", Limit: 5, TTL: time.Minute, Entry: entry})
	require.NoError(t, err)
	require.True(t, r.Acquired)
	require.Zero(t, c.Exists(ctx, queue).Val())
}

// One that waits for more than there is any more is refused with its next look, and
// goes; one that waits for less goes on waiting.
func TestSemaphoreLookAfterAShrink(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c, k, permits, queue := semKeys(t)
	heavy, light := standing("p.heavy:5", "c:"+k), standing("p.light:1", "c:"+k)
	require.NoError(t, subscribe(ctx, t, c, "c:"+k))
	require.NoError(t, semOf(2, map[string]float64{"p.a:2": future}, standing("p.first:1", "c:"+k), heavy, light)(ctx, c, k))
	look := func(token, entry string) gen.SemAcquireResult {
		r, err := gen.SemAcquire(ctx, c, gen.SemAcquireParams{Permits: permits, Queue: queue, Owner: token, Limit: 5, TTL: time.Minute, Entry: entry})
		require.NoError(t, err)
		return r
	}
	require.Equal(t, gen.SemAcquirePlaceRefused, look("p.heavy:5", heavy).Place)
	require.Equal(t, gen.SemAcquirePlaceWaiting, look("p.light:1", light).Place)
	require.Equal(t, int64(2), c.ZCard(ctx, queue).Val())
}

// What was given back is forgotten after 10 s, and a note goes with its permit.
func TestSemaphoreForgetsWhatWasGivenBack(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c, k, permits, queue := semKeys(t)
	now := float64(c.Time(ctx).Val().UnixMilli())
	require.NoError(t, semOf(5, map[string]float64{
		"p.old:1": -now + 20_000, "p.recent:1": -now + 1000, "p.dead:2": now - 1, "p.dead:2\nnote": now - 1, "p.live:1": future,
	})(ctx, c, k))
	_, err := gen.SemAcquire(ctx, c, gen.SemAcquireParams{Permits: permits, Queue: queue, Owner: "p.me:3", Limit: 5, TTL: time.Minute, Note: "mine"})
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"p.recent:1", "p.live:1", "p.me:3", "p.me:3\nmine", "limit", "used", "fence"}, c.ZRange(ctx, permits, 0, -1).Val())
	state, err := gen.SemRelease(ctx, c, gen.SemReleaseParams{Permits: permits, Queue: queue, Owner: "p.me:3", Note: "mine"})
	require.NoError(t, err)
	require.Equal(t, gen.SemReleaseResultReleased, state)
	require.ElementsMatch(t, []string{"p.recent:1", "p.live:1", "p.me:3", "limit", "used", "fence"}, c.ZRange(ctx, permits, 0, -1).Val())
	require.Equal(t, semBase+1, c.ZScore(ctx, permits, "used").Val())
}

// A change that comes after the call that undid it changes nothing, and what others
// left by dying makes room for an upgrade.
func TestSemaphoreChangeAtTheEdges(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c, k, permits, queue := semKeys(t)
	now := float64(c.Time(ctx).Val().UnixMilli())
	require.NoError(t, semOf(5, map[string]float64{"p.me:1": future, "p.dead:1": now - 1, "p.undone:5": -now - 0.5})(ctx, c, k))
	change := func(former, owner string) gen.SemChangeResult {
		r, err := gen.SemChange(ctx, c, gen.SemChangeParams{Permits: permits, Queue: queue, Former: former, Owner: owner, TTL: 2 * time.Hour})
		require.NoError(t, err)
		return r
	}
	require.Equal(t, gen.SemChangeStateExpired, change("p.me:1", "p.undone:5").State)
	require.Equal(t, gen.SemChangeStateExpired, change("p.dead:1", "p.other:1").State)
	first := change("p.me:1", "p.all:5")
	require.Equal(t, gen.SemChangeStateChanged, first.State)
	require.Greater(t, c.PTTL(ctx, permits).Val(), 2*time.Hour, "as long as the new lease")
	again := change("p.me:1", "p.all:5")
	require.Equal(t, gen.SemChangeStateChanged, again.State, "a repeat")
	require.Greater(t, again.Fence, first.Fence)
}

// The fence of a change, and of a look that is granted, is its own, not that of those
// who were granted after it.
func TestSemaphoreFenceIsOnesOwn(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c, k, permits, queue := semKeys(t)
	sub := c.Subscribe(ctx, "c:"+k)
	defer sub.Close()
	_, err := sub.Receive(ctx)
	require.NoError(t, err)
	next := func() string {
		m, err := sub.ReceiveMessage(ctx)
		require.NoError(t, err)
		return m.Payload
	}
	require.NoError(t, semOf(5, map[string]float64{"p.all:5": future}, standing("p.x:1", "c:"+k))(ctx, c, k))
	r, err := gen.SemChange(ctx, c, gen.SemChangeParams{Permits: permits, Queue: queue, Former: "p.all:5", Owner: "p.me:1", TTL: time.Minute})
	require.NoError(t, err)
	require.Contains(t, next(), fmt.Sprint("g p.x:1 ", r.Fence+1, " "))

	require.NoError(t, c.Del(ctx, permits, queue).Err())
	mine := standing("p.me:1", "c:"+k)
	require.NoError(t, semOf(5, nil, mine, standing("p.x:1", "c:"+k))(ctx, c, k))
	a, err := gen.SemAcquire(ctx, c, gen.SemAcquireParams{Permits: permits, Queue: queue, Owner: "p.me:1", Limit: 5, TTL: time.Minute, Entry: mine})
	require.NoError(t, err)
	require.True(t, a.Acquired)
	require.Contains(t, next(), fmt.Sprint("g p.x:1 ", a.Fence+1, " "))
}

// Keys stay as long as they are needed and no longer, whatever an error left.
func TestSemaphoreKeysExpire(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c, k, permits, queue := semKeys(t)
	require.NoError(t, semOf(5, map[string]float64{"p.a:5": future})(ctx, c, k))
	require.NoError(t, c.Persist(ctx, permits).Err())
	_, err := gen.SemExtend(ctx, c, gen.SemExtendParams{Permits: permits, Owner: "p.a:5", TTL: time.Hour})
	require.NoError(t, err)
	require.InDelta(t, (time.Hour + time.Minute).Seconds(), c.PTTL(ctx, permits).Val().Seconds(), 5, "it had no end")
	_, err = gen.SemExtend(ctx, c, gen.SemExtendParams{Permits: permits, Owner: "p.a:5", TTL: 3 * time.Hour})
	require.NoError(t, err)
	require.Greater(t, c.PTTL(ctx, permits).Val(), 3*time.Hour)
	_, err = gen.SemAcquire(ctx, c, gen.SemAcquireParams{Permits: permits, Queue: queue, Owner: "p.b:1", Limit: 5, TTL: time.Hour, Entry: standing("p.b:1", "nobody")})
	require.NoError(t, err)
	require.Positive(t, c.PTTL(ctx, queue).Val())
	require.NoError(t, c.Del(ctx, permits, queue).Err())
	_, err = gen.SemResize(ctx, c, gen.SemResizeParams{Permits: permits, Queue: queue, Size: 5})
	require.NoError(t, err)
	require.Positive(t, c.PTTL(ctx, permits).Val())
}
