package plainlock_test

import (
	"context"
	"errors"
	"math"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/plainlock"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// open returns a Locker over the client, with a prefix of the test's own.
func open(t *testing.T, c redis.UniversalClient, opts plainlock.Options) *plainlock.Locker {
	t.Helper()
	if opts.Prefix == "" {
		opts.Prefix = luatomictest.Namespace(t)
	}
	l := plainlock.New(c, &opts)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// The key is the prefix and the name, its value the token, its end the TTL: what SET NX PX writes.
func TestTheKeyIsThatOfSetNX(t *testing.T) {
	t.Parallel()
	ctx, c := bounded(t), luatomictest.Client(t)
	name := luatomictest.Namespace(t) + "plain"
	l := plainlock.New(c, &plainlock.Options{TTL: 90 * time.Second})
	t.Cleanup(func() { _ = l.Close() })
	lock, err := l.Try(ctx, name)
	require.NoError(t, err)
	require.Equal(t, name, lock.Key())
	require.Equal(t, lock.Token(), c.Get(ctx, name).Val())
	require.InDelta(t, 90*time.Second, c.PTTL(ctx, name).Val(), float64(10*time.Second))
	require.Zero(t, lock.Fence())
	require.NoError(t, lock.Err())

	_, err = l.Try(ctx, name)
	var held *plainlock.HeldError
	require.ErrorAs(t, err, &held)
	require.ErrorIs(t, err, plainlock.ErrHeld)
	left, ends := held.Remaining.Get()
	require.True(t, ends)
	require.Greater(t, left, 80*time.Second)
	require.False(t, c.SetNX(ctx, name, "another", time.Minute).Val(), "another library cannot take it")

	require.NoError(t, lock.Extend(ctx))
	require.NoError(t, lock.Release(ctx))
	require.Zero(t, c.Exists(ctx, name).Val())
	require.NoError(t, lock.Release(ctx), "a second release is nil")
	require.ErrorIs(t, lock.Err(), plainlock.ErrReleased)
	require.True(t, c.SetNX(ctx, name, "another", 0).Val())
	_, err = l.Try(ctx, name)
	require.ErrorAs(t, err, &held)
	_, ends = held.Remaining.Get()
	require.False(t, ends)
	require.ErrorContains(t, err, "no time to live")
}

func TestBadOptionsAndNames(t *testing.T) {
	t.Parallel()
	ctx, c := bounded(t), luatomictest.Client(t)
	for _, o := range []plainlock.Options{
		{TTL: time.Microsecond}, {TTL: -time.Hour}, {TTL: math.MaxInt64}, {Poll: -1}, {Poll: math.MaxInt64},
	} {
		_, err := open(t, c, o).Acquire(ctx, "x")
		require.ErrorIs(t, err, lua.ErrOutOfRange, "%+v", o)
	}
	_, err := open(t, c, plainlock.Options{}).Acquire(ctx, "")
	require.ErrorIs(t, err, lua.ErrBadName)
}

// A lock that another has taken over is neither extended nor deleted, and its holder's context ends.
func TestALockThatWasTakenOverIsLost(t *testing.T) {
	t.Parallel()
	ctx, c := bounded(t), luatomictest.Client(t)
	l := open(t, c, plainlock.Options{TTL: 300 * time.Millisecond})
	lock, err := l.Try(ctx, "x")
	require.NoError(t, err)
	kept := lock.Keep(ctx)
	require.NoError(t, c.Set(ctx, lock.Key(), "another", time.Minute).Err())
	<-kept.Done()
	require.ErrorIs(t, context.Cause(kept), plainlock.ErrLost)
	require.ErrorIs(t, lock.Extend(ctx), plainlock.ErrLost)
	require.ErrorIs(t, lock.Release(ctx), plainlock.ErrLost)
	require.Equal(t, "another", c.Get(ctx, lock.Key()).Val())
}

// Keep extends the lock beyond its TTL; without it the lock ends by the local clock, and nothing is sent for that.
func TestKeepExtendsALock(t *testing.T) {
	t.Parallel()
	ctx, c := bounded(t), luatomictest.Client(t)
	l := open(t, c, plainlock.Options{TTL: 6 * time.Second})
	kept, err := l.Try(ctx, "kept")
	require.NoError(t, err)
	left, err := l.Try(ctx, "left")
	require.NoError(t, err)
	work := kept.Keep(ctx)
	luatomictest.Eventually(t, time.Minute, "the other lock is over", func() bool { return left.Err() != nil })
	require.ErrorIs(t, left.Err(), plainlock.ErrLost)
	luatomictest.Eventually(t, time.Minute, "its key is expired", func() bool {
		return c.Exists(ctx, left.Key()).Val() == 0
	})
	require.NoError(t, work.Err())
	require.Equal(t, kept.Token(), c.Get(ctx, kept.Key()).Val())
	require.NoError(t, kept.Release(ctx))
	require.ErrorIs(t, context.Cause(work), plainlock.ErrReleased)
}

// A release of Go wakes a waiter of Go, in another process too: with this Poll only the message ends the wait.
func TestAReleaseWakesWaitersInGo(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	prefix := luatomictest.Namespace(t)
	opts := plainlock.Options{Prefix: prefix, TTL: time.Hour, Poll: time.Hour}
	first, second := open(t, luatomictest.Client(t), opts), open(t, luatomictest.Client(t), opts)
	c := luatomictest.Client(t)
	lock, err := first.Try(ctx, "x")
	require.NoError(t, err)
	got := make(chan error, 3)
	for i := range 3 { // two of one process: the second is served after the first
		l := []*plainlock.Locker{first, second, second}[i]
		go func() { got <- l.Do(ctx, "x", func(context.Context) error { return nil }) }()
	}
	luatomictest.Eventually(t, time.Minute, "both processes are subscribed", func() bool {
		name := "luatomic:released:" + lock.Key()
		return c.PubSubNumSub(ctx, name).Val()[name] == 2
	})
	// The attempt after the subscription finds the lock held.
	require.NoError(t, lock.Release(ctx))
	for range 3 {
		require.NoError(t, <-got)
	}
}

// What another library releases, or lets expire, is found by the next poll.
func TestAWaiterPollsForOtherLibraries(t *testing.T) {
	t.Parallel()
	ctx, c := bounded(t), luatomictest.Client(t)
	l := open(t, c, plainlock.Options{Poll: 20 * time.Millisecond})
	lock, err := l.Try(ctx, "x")
	require.NoError(t, err)
	require.NoError(t, lock.Release(ctx))
	for name, end := range map[string]func(){
		"deleted": func() { require.NoError(t, c.Del(ctx, lock.Key()).Err()) },
		"expires": func() { require.NoError(t, c.PExpire(ctx, lock.Key(), 50*time.Millisecond).Err()) },
	} {
		require.True(t, c.SetNX(ctx, lock.Key(), "another", time.Hour).Val(), name)
		got := make(chan *plainlock.Lock, 1)
		go func() {
			lock, err := l.Acquire(ctx, "x")
			if err != nil {
				t.Error(err)
			}
			got <- lock
		}()
		select {
		case <-got:
			t.Fatal("another has it")
		case <-time.After(60 * time.Millisecond):
		}
		end()
		require.NoError(t, (<-got).Release(ctx))
	}
}

// A key of the fence that has something else in it is left alone, and the lock is not taken.
func TestAForeignFenceIsRefused(t *testing.T) {
	t.Parallel()
	ctx, c := bounded(t), luatomictest.Client(t)
	l := open(t, c, plainlock.Options{Fence: true})
	for _, foreign := range []string{"text", "inf", "nan", "-1", "1e300", strconv.FormatInt(1<<53, 10), ""} {
		lock, err := l.Try(ctx, "x")
		require.NoError(t, err)
		fence := "{" + lock.Key() + "}:fence"
		require.NoError(t, lock.Release(ctx))
		require.NoError(t, c.Set(ctx, fence, foreign, time.Hour).Err())
		_, err = l.Try(ctx, "x")
		require.ErrorContains(t, err, "LAYOUT", foreign)
		require.Equal(t, foreign, c.Get(ctx, fence).Val())
		require.Zero(t, c.Exists(ctx, lock.Key()).Val())
		require.NoError(t, c.Del(ctx, fence).Err())
	}
}

// Fences grow from holder to holder, also when their key is lost.
func TestFencesGrow(t *testing.T) {
	t.Parallel()
	ctx, c := bounded(t), luatomictest.Client(t)
	l := open(t, c, plainlock.Options{Fence: true})
	last := int64(0)
	for i := range 5 {
		lock, err := l.Try(ctx, "x")
		require.NoError(t, err)
		require.Greater(t, lock.Fence(), last)
		last = lock.Fence()
		fence := "{" + lock.Key() + "}:fence"
		require.Greater(t, c.TTL(ctx, fence).Val(), 23*time.Hour)
		require.NoError(t, lock.Release(ctx))
		switch i {
		case 1:
			require.NoError(t, c.Del(ctx, fence).Err())
		case 2: // the clock was set back
			last += 1 << 40
			require.NoError(t, c.Set(ctx, fence, last, time.Hour).Err())
		}
	}
	lock, err := l.Try(ctx, "a{tag}b")
	require.NoError(t, err)
	require.EqualValues(t, 1, c.Exists(ctx, lock.Key()+":fence").Val(), "a tag of the name is that of the fence")
}

// On a cluster the fence of every name is in the slot of its lock; a name for which there is no such key is refused.
func TestFencesLieInTheSlotOfTheLock(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	c := luatomictest.StartCluster(t).Client()
	with := plainlock.New(c, &plainlock.Options{Fence: true})
	without := plainlock.New(c, nil)
	t.Cleanup(func() { _ = with.Close() })
	t.Cleanup(func() { _ = without.Close() })
	for _, name := range []string{"x", "a{b", "a{b}c", "{a}b}", "{{a}"} {
		lock, err := with.Try(ctx, name)
		require.NoError(t, err, name)
		require.Positive(t, lock.Fence())
		require.NoError(t, lock.Release(ctx))
	}
	for _, name := range []string{"a}b", "a{}b", "user:{}", "}{a"} {
		_, err := with.Acquire(ctx, name)
		require.ErrorIs(t, err, lua.ErrBadName, name)
		lock, err := without.Try(ctx, name)
		require.NoError(t, err, name)
		require.NoError(t, lock.Release(ctx))
	}
}

func TestOneHoldsTheLockAtATime(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	prefix := luatomictest.Namespace(t)
	inside := 0 // the race detector reports two holders too
	var wg sync.WaitGroup
	for range 4 {
		l := open(t, luatomictest.Client(t), plainlock.Options{Prefix: prefix})
		for range 3 {
			wg.Go(func() {
				for range 10 {
					err := l.Do(ctx, "x", func(context.Context) error {
						inside++
						return nil
					})
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
	require.Equal(t, 120, inside)
}

// An acquire whose reply is lost is repeated, and holds the lock once. A release whose reply is lost counts as the
// caller's own.
func TestLostReplies(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	proxy := luatomictest.NewLossyProxy(t, luatomictest.URL(t))
	o, err := redis.ParseURL(proxy.URL())
	require.NoError(t, err)
	through := redis.NewClient(o)
	t.Cleanup(func() { require.NoError(t, through.Close()) })
	l := open(t, through, plainlock.Options{})
	warm, err := l.Try(ctx, "warm")
	require.NoError(t, err)
	require.NoError(t, warm.Release(ctx))
	for range 5 {
		proxy.Drop(1, luatomictest.Command("EVALSHA"))
		lock, err := l.Try(ctx, "x")
		require.NoError(t, err)
		require.Equal(t, lock.Token(), luatomictest.Client(t).Get(ctx, lock.Key()).Val())
		proxy.Drop(1, luatomictest.Command("EVALSHA"))
		require.NoError(t, lock.Release(ctx))
	}
}

// A caller leaves when its context ends, although the server does not answer; what its request acquires later is
// given back.
func TestACallerLeavesWithItsContext(t *testing.T) {
	t.Parallel()
	proxy := luatomictest.NewLossyProxy(t, luatomictest.URL(t))
	o, err := redis.ParseURL(proxy.URL())
	require.NoError(t, err)
	o.ReadTimeout = time.Minute // a read waits for it, not for the context
	through := redis.NewClient(o)
	t.Cleanup(func() { require.NoError(t, through.Close()) })
	prefix := luatomictest.Namespace(t)
	l := open(t, through, plainlock.Options{Prefix: prefix, TTL: time.Hour})
	c := luatomictest.Client(t)
	warm, err := l.Try(t.Context(), "warm")
	require.NoError(t, err)
	require.NoError(t, warm.Release(t.Context()))
	proxy.Blackhole(true)
	cause := errors.New("enough")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, cause)
	defer cancel()
	began := time.Now()
	_, err = l.Acquire(ctx, "x")
	require.ErrorIs(t, err, cause)
	require.Less(t, time.Since(began), 30*time.Second, "go-redis itself waits for a minute")
	proxy.Blackhole(false)
	l.Close()
	require.Zero(t, c.Exists(t.Context(), prefix+"x").Val())
}

// A waiter whose context ends reports the holder, and the next waiter is served.
func TestAWaiterEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, c := bounded(t), luatomictest.Client(t)
	l := open(t, c, plainlock.Options{TTL: time.Hour, Poll: time.Hour})
	lock, err := l.Try(ctx, "x")
	require.NoError(t, err)
	short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	var wg sync.WaitGroup
	for range 2 { // the second of them waits for its turn
		wg.Go(func() {
			_, err := l.Acquire(short, "x")
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Acquire: %v", err)
			}
		})
	}
	wg.Wait()
	got := make(chan error, 1)
	go func() { got <- l.Do(ctx, "x", func(context.Context) error { return nil }) }()
	luatomictest.Eventually(t, time.Minute, "it waits", func() bool {
		name := "luatomic:released:" + lock.Key()
		return c.PubSubNumSub(ctx, name).Val()[name] == 1
	})
	require.NoError(t, lock.Release(ctx))
	require.NoError(t, <-got)
	luatomictest.Eventually(t, 20*time.Second, "the subscription is over", func() bool {
		return len(c.PubSubChannels(ctx, "luatomic:released:"+lock.Key()).Val()) == 0
	})
}

// The lock of a process that died is acquired when its TTL is over.
func TestTheLockOfADeadProcessEndsWithItsTTL(t *testing.T) {
	t.Parallel()
	ctx, c := bounded(t), luatomictest.Client(t)
	prefix := luatomictest.Namespace(t)
	dead := open(t, c, plainlock.Options{Prefix: prefix, TTL: 300 * time.Millisecond})
	alive := open(t, c, plainlock.Options{Prefix: prefix, Poll: time.Hour})
	_, err := dead.Try(ctx, "x")
	require.NoError(t, err)
	began := time.Now()
	lock, err := alive.Acquire(ctx, "x")
	require.NoError(t, err)
	require.Less(t, time.Since(began), 30*time.Second)
	require.NoError(t, lock.Release(ctx))
}
