package lock_test

import (
	"context"
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

// A permit that was taken away is not released: its holder learns of it, and a second
// Revoke, or one of a permit that was given back, takes nothing.
func TestReleaseOfARevokedPermitSaysSo(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, _, _, _ := newSemaphore(t, 1, &lock.Options{TTL: time.Minute})
	lease, err := s.Try(ctx, 1)
	require.NoError(t, err)
	was, err := s.Revoke(ctx, lease.Token())
	require.NoError(t, err)
	require.True(t, was)
	other, err := s.Try(ctx, 1)
	require.NoError(t, err)
	require.ErrorIs(t, lease.Release(ctx), lock.ErrRevoked, "another has it")
	require.NoError(t, other.Release(ctx))
	was, err = s.Revoke(ctx, other.Token())
	require.NoError(t, err)
	require.False(t, was, "it was given back")
	info, err := s.Info(ctx)
	require.NoError(t, err)
	require.Zero(t, info.Used)
}

// However many permits were given back lately, a dead holder's is free at once.
func TestDeadPermitIsFreeBehindManyThatWereGivenBack(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, _, name, c := newSemaphore(t, 1, &lock.Options{TTL: time.Minute})
	dead, err := s.Try(ctx, 1)
	require.NoError(t, err)
	key, now := "sem:{"+name+"}", float64(c.Time(ctx).Val().UnixMilli())
	gone := []redis.Z{{Score: now - 1, Member: dead.Token()}}
	for i := range 1000 {
		gone = append(gone, redis.Z{Score: 20_000 - now, Member: "p." + string(rune('A'+i)) + ":1"})
	}
	require.NoError(t, c.ZAdd(ctx, key, gone...).Err())
	lease, err := s.Try(ctx, 1)
	require.NoError(t, err)
	require.NoError(t, lease.Release(ctx))
}

// BenchmarkPermitPair is an uncontended acquire and release, beside that of a lock.
func BenchmarkPermitPair(b *testing.B) {
	l, name, _ := lab.NewLocker(b, nil)
	s, rw := l.Semaphore(name, 10), l.RW(name)
	for kind, try := range map[string]func(context.Context) (*lock.Lease, error){
		"lock":      func(ctx context.Context) (*lock.Lease, error) { return l.Try(ctx, name) },
		"semaphore": func(ctx context.Context) (*lock.Lease, error) { return s.Try(ctx, 2) },
		"read":      rw.RTry,
		"write":     rw.Try,
	} {
		b.Run(kind, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				lease, err := try(b.Context())
				lab.Fatal(b, err)
				lab.Fatal(b, lease.Release(b.Context()))
			}
		})
	}
}

// A lease that is over by the clock is not extended, although nobody has acquired the lock since.
func TestSemaphoreExpiredPermitIsLost(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, _, _, c := newSemaphore(t, 1, &lock.Options{TTL: time.Millisecond})
	lease, err := s.Try(ctx, 1)
	require.NoError(t, err)
	end := time.UnixMicro(lease.Fence()).Add(2 * time.Millisecond)
	luatomictest.Eventually(t, 20*time.Second, "the lease ends", func() bool { return c.Time(ctx).Val().After(end) })
	state, err := lockscript.SemExtend(ctx, c, lockscript.SemExtendParams{
		Permits: lease.Key(), Owner: lease.Token(), TTL: time.Second,
	})
	require.NoError(t, err)
	require.Equal(t, lockscript.SemExtendResultExpired, state)
	next, err := s.Try(ctx, 1)
	require.NoError(t, err)
	require.Greater(t, next.Fence(), lease.Fence())
}

func TestSemaphoreKeepRenews(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, _, _, c := newSemaphore(t, 2, &lock.Options{TTL: 8 * time.Second, Note: "n"})
	lease, err := s.Try(ctx, 2)
	require.NoError(t, err)
	ends := func() float64 { return c.ZScore(ctx, lease.Key(), lease.Token()).Val() }
	first, stored := lease.Deadline(), ends()
	kept := lease.Keep(ctx)
	renewed(t, lease, first)
	require.Greater(t, ends(), stored)
	require.NoError(t, kept.Err())
	require.NoError(t, lease.Release(ctx))
}

// Fences grow across a lost key and a clock that was ahead.
func TestSemaphoreFenceGrows(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, _, name, c := newSemaphore(t, 1, nil)
	last := int64(0)
	for range 5 {
		lease, err := s.Try(ctx, 1)
		require.NoError(t, err)
		require.Greater(t, lease.Fence(), last, "the key was gone")
		last = lease.Fence()
		require.NoError(t, c.Del(ctx, lease.Key()).Err())
	}
	ahead := time.Now().Add(time.Hour).UnixMicro()
	require.NoError(t, c.ZAdd(ctx, "sem:{"+name+"}",
		redis.Z{Score: float64(ahead), Member: "fence"}, redis.Z{Score: 1e15 + 1, Member: "limit"}).Err())
	for i := range int64(3) {
		lease, err := s.Try(ctx, 1)
		require.NoError(t, err)
		require.Equal(t, ahead+i+1, lease.Fence())
		require.NoError(t, lease.Release(ctx))
	}
}

// semKeys names a semaphore of the test's own.
func semKeys(t *testing.T) (c *redis.Client, k, permits, queue string) {
	k = luatomictest.Namespace(t)
	return luatomictest.Client(t), k, "sem:{" + k + "}", "semq:{" + k + "}"
}

// An owner that holds a permit and is in the queue, after an error half-way, leaves the
// queue with its next attempt, or the next grant would give it a second permit.
func TestSemaphoreHolderLeavesTheQueue(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c, k, permits, queue := semKeys(t)
	entry := scriptcase.Standing("p.me:2")
	require.NoError(t, scriptcase.SemOf(5, map[string]float64{"p.me:2": lab.Future}, entry)(ctx, c, k))
	r, err := lockscript.SemAcquire(ctx, c, lockscript.SemAcquireParams{
		Permits: permits, Queue: queue, Channel: permits + ":", Owner: "p.me:2", Limit: 5, TTL: time.Minute,
		Entry: entry,
	})
	require.NoError(t, err)
	require.True(t, r.Acquired)
	require.Zero(t, c.Exists(ctx, queue).Val())
}

// A waiter for more than the new limit is refused with its next attempt, and
// goes; one that waits for less goes on waiting.
func TestSemaphoreAttemptAfterAShrink(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c, k, permits, queue := semKeys(t)
	heavy, light := scriptcase.Standing("p.heavy:5"), scriptcase.Standing("p.light:1")
	require.NoError(t, lab.Subscribe(ctx, t, c, permits+":p"))
	first := scriptcase.Standing("p.first:1")
	set := scriptcase.SemOf(2, map[string]float64{"p.a:2": lab.Future}, first, heavy, light)
	require.NoError(t, set(ctx, c, k))
	look := func(token, entry string) lockscript.SemAcquireResult {
		r, err := lockscript.SemAcquire(ctx, c, lockscript.SemAcquireParams{
			Permits: permits, Queue: queue, Channel: permits + ":", Owner: token, Limit: 5, TTL: time.Minute,
			Entry: entry,
		})
		require.NoError(t, err)
		return r
	}
	require.Equal(t, lockscript.SemAcquirePlaceRefused, look("p.heavy:5", heavy).Place)
	require.Equal(t, lockscript.SemAcquirePlaceWaiting, look("p.light:1", light).Place)
	require.Equal(t, int64(2), c.ZCard(ctx, queue).Val())
}

// What was given back is forgotten after 10 s, and a note goes with its permit.
func TestSemaphoreForgetsWhatWasGivenBack(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c, k, permits, queue := semKeys(t)
	now := float64(c.Time(ctx).Val().UnixMilli())
	require.NoError(t, scriptcase.SemOf(5, map[string]float64{
		"p.old:1": -now + 20_000, "p.recent:1": -now + 1000, "p.dead:2": now - 1, "p.dead:2\nnote": now - 1,
		"p.live:1": lab.Future,
	})(ctx, c, k))
	_, err := lockscript.SemAcquire(ctx, c, lockscript.SemAcquireParams{
		Permits: permits, Queue: queue, Channel: permits + ":", Owner: "p.me:3", Limit: 5, TTL: time.Minute,
		Note: "mine",
	})
	require.NoError(t, err)
	require.ElementsMatch(t, []string{
		"p.recent:1", "p.live:1", "p.me:3", "p.me:3\nmine", "limit", "used", "fence",
	}, c.ZRange(ctx, permits, 0, -1).Val())
	state, err := lockscript.SemRelease(ctx, c, lockscript.SemReleaseParams{
		Permits: permits, Queue: queue, Channel: permits + ":", Owner: "p.me:3", Note: "mine",
	})
	require.NoError(t, err)
	require.Equal(t, lockscript.SemReleaseResultReleased, state)
	require.ElementsMatch(t, []string{
		"p.recent:1", "p.live:1", "p.me:3", "limit", "used", "fence",
	}, c.ZRange(ctx, permits, 0, -1).Val())
	require.Equal(t, scriptcase.SemBase+1, c.ZScore(ctx, permits, "used").Val())
}

// The fence of an attempt that is granted is its own, not that of the waiters granted
// after it.
func TestSemaphoreFenceIsOnesOwn(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c, k, permits, queue := semKeys(t)
	sub := c.Subscribe(ctx, permits+":p")
	defer sub.Close()
	_, err := sub.Receive(ctx)
	require.NoError(t, err)
	mine := scriptcase.Standing("p.me:1")
	require.NoError(t, scriptcase.SemOf(5, nil, mine, scriptcase.Standing("p.x:1"))(ctx, c, k))
	a, err := lockscript.SemAcquire(ctx, c, lockscript.SemAcquireParams{
		Permits: permits, Queue: queue, Channel: permits + ":", Owner: "p.me:1", Limit: 5, TTL: time.Minute,
		Entry: mine,
	})
	require.NoError(t, err)
	require.True(t, a.Acquired)
	next, err := sub.ReceiveMessage(ctx)
	require.NoError(t, err)
	require.Contains(t, next.Payload, fmt.Sprint("g p.x:1 ", a.Fence+1, " "))
}

// Keys stay as long as they are needed and no longer, whatever an error left.
func TestSemaphoreKeysExpire(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c, k, permits, queue := semKeys(t)
	require.NoError(t, scriptcase.SemOf(5, map[string]float64{"p.a:5": lab.Future})(ctx, c, k))
	require.NoError(t, c.Persist(ctx, permits).Err())
	_, err := lockscript.SemExtend(ctx, c, lockscript.SemExtendParams{Permits: permits, Owner: "p.a:5", TTL: time.Hour})
	require.NoError(t, err)
	require.InDelta(t, (time.Hour + time.Minute).Seconds(), c.PTTL(ctx, permits).Val().Seconds(), 5, "it had no end")
	_, err = lockscript.SemExtend(ctx, c, lockscript.SemExtendParams{Permits: permits, Owner: "p.a:5",
		TTL: 3 * time.Hour})
	require.NoError(t, err)
	require.Greater(t, c.PTTL(ctx, permits).Val(), 3*time.Hour)
	_, err = lockscript.SemAcquire(ctx, c, lockscript.SemAcquireParams{
		Permits: permits, Queue: queue, Channel: permits + ":", Owner: "p.b:1", Limit: 5, TTL: time.Hour,
		Entry: scriptcase.Standing("p.b:1"),
	})
	require.NoError(t, err)
	require.Positive(t, c.PTTL(ctx, queue).Val())
	require.NoError(t, c.Del(ctx, permits, queue).Err())
	_, err = lockscript.SemResize(ctx, c, lockscript.SemResizeParams{Permits: permits, Queue: queue,
		Channel: permits + ":", Size: 5})
	require.NoError(t, err)
	require.Positive(t, c.PTTL(ctx, permits).Val())
}

// semEdge is a semaphore with a limit of 5 and a queue whose channel has a subscriber, on
// which one script is called; granted are the owners that were notified of a permit.
func semEdge(
	t *testing.T, holders map[string]float64, tokens ...string,
) (c *redis.Client, permits, queue string, granted func(n int) []string) {
	c, k, permits, queue := semKeys(t)
	sub := c.Subscribe(t.Context(), permits+":p")
	t.Cleanup(func() { require.NoError(t, sub.Close()) })
	_, err := sub.Receive(t.Context())
	require.NoError(t, err)
	var entries []string
	for _, token := range tokens {
		entries = append(entries, scriptcase.Standing(token))
	}
	require.NoError(t, scriptcase.SemOf(5, holders, entries...)(t.Context(), c, k))
	return c, permits, queue, func(n int) (out []string) {
		for len(out) < n {
			m, err := sub.ReceiveMessage(t.Context())
			require.NoError(t, err)
			if rest, ok := strings.CutPrefix(m.Payload, "g "); ok {
				token, _, _ := strings.Cut(rest, " ")
				out = append(out, token)
			}
		}
		return out
	}
}

// One that has no room itself gives the head what a dead holder left, and keeps the
// semaphore for as long as the lease that it grants.
func TestSemaphoreNewcomerServesTheHead(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c, permits, queue, granted := semEdge(t, map[string]float64{
		"p.live:4": lab.Future, "p.dead:1": lab.Past,
	}, "p.head:1")
	r, err := lockscript.SemAcquire(ctx, c, lockscript.SemAcquireParams{
		Permits: permits, Queue: queue, Channel: permits + ":", Owner: "p.me:2", Limit: 5, TTL: time.Minute,
		Entry: "p.me:2 1000\n",
	})
	require.NoError(t, err)
	require.False(t, r.Acquired)
	require.Equal(t, []string{"p.head:1"}, granted(1))

	require.NoError(t, c.Del(ctx, queue).Err())
	require.NoError(t, c.ZAdd(ctx, permits, redis.Z{Score: scriptcase.SemBase, Member: "used"}).Err())
	_, err = lockscript.SemAcquire(ctx, c, lockscript.SemAcquireParams{
		Permits: permits, Queue: queue, Channel: permits + ":", Owner: "p.long:1", Limit: 5, TTL: 3 * time.Hour,
	})
	require.NoError(t, err)
	require.Greater(t, c.PTTL(ctx, permits).Val(), 3*time.Hour)
}

// What a release skips: entries for more than the limit, entries that were
// given up and entries of owners that hold a permit already, after an error half-way. And what dead
// holders left is granted as well.
func TestSemaphoreReleaseServesWhoCanBeServed(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	now := float64(time.Now().UnixMilli())
	for name, holders := range map[string]map[string]float64{
		"too heavy": {"p.me:1": lab.Future, "p.live:3": lab.Future},
		"gave up":   {"p.me:1": lab.Future, "p.live:3": lab.Future, "p.gone:1": -now},
		"holds":     {"p.me:1": lab.Future, "p.gone:4": lab.Future},
		"dead":      {"p.me:1": lab.Future, "p.dead:4": lab.Past},
	} {
		head := map[string]string{
			"too heavy": "p.heavy:6", "gave up": "p.gone:1", "holds": "p.gone:4", "dead": "p.all:5",
		}[name]
		c, permits, queue, granted := semEdge(t, holders, head, "p.next:1")
		state, err := lockscript.SemRelease(ctx, c, lockscript.SemReleaseParams{Permits: permits, Queue: queue,
			Channel: permits + ":", Owner: "p.me:1"})
		require.NoError(t, err)
		require.Equal(t, lockscript.SemReleaseResultReleased, state)
		want := []string{"p.next:1"}
		switch name {
		case "dead":
			want = []string{"p.all:5"}
		case "holds":
			want = []string{"p.gone:4", "p.next:1"} // it is notified once more
		}
		require.Equal(t, want, granted(len(want)), name)
	}
}

// A release takes back the permits of the dead, grants them to the waiters in the same script,
// and counts what was given back long ago no more than once.
func TestSemaphoreReleaseTakesBackWhatTheDeadHad(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	permits, queue, channel := "sem:{"+name+"}", "semq:{"+name+"}", "sem:{"+name+"}:p"
	inbox := c.Subscribe(ctx, channel)
	defer inbox.Close()
	_, err := inbox.Receive(ctx)
	require.NoError(t, err)
	acquire := func(owner, entry string) lockscript.SemAcquireResult {
		r, err := lockscript.SemAcquire(ctx, c, lockscript.SemAcquireParams{
			Permits: permits, Queue: queue, Channel: permits + ":", Owner: owner, Limit: 3, TTL: time.Minute,
			Entry: entry,
		})
		require.NoError(t, err)
		return r
	}
	release := func(owner string) {
		r, err := lockscript.SemRelease(ctx, c, lockscript.SemReleaseParams{Permits: permits, Queue: queue,
			Channel: permits + ":",
			Owner:   owner})
		require.NoError(t, err)
		require.Equal(t, lockscript.SemReleaseResultReleased, r)
	}
	used := func() int { return int(c.ZScore(ctx, permits, "used").Val() - 1e15) }
	ago := func(d time.Duration) float64 { return float64(c.Time(ctx).Val().Add(-d).UnixMilli()) }

	require.True(t, acquire("p.old:1", "").Acquired)
	release("p.old:1")
	require.True(t, acquire("p.alive:1", "").Acquired)
	require.True(t, acquire("p.dead:2", "").Acquired)
	require.False(t, acquire("p.waits:3", "p.waits:3 60000\n").Acquired)
	require.NoError(t, c.ZAdd(ctx, permits, redis.Z{
		Member: "p.old:1", Score: -ago(20 * time.Second),
	}, redis.Z{Member: "p.dead:2", Score: ago(time.Second)}).Err())
	release("p.alive:1")
	message, err := inbox.ReceiveMessage(ctx)
	require.NoError(t, err)
	require.Regexp(t, `^g p\.waits:3 `, message.Payload, "it is granted, and not asked to look")
	require.Equal(t, 3, used())
	require.Zero(t, c.ZScore(ctx, permits, "p.old:1").Val(), "forgotten")
	release("p.waits:3")
	require.Zero(t, used())
}
