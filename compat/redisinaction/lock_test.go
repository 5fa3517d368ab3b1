package redisinaction_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/redisinaction"
	"github.com/luatomic/luatomic/compat/redisinaction/internal/script"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

func TestLockIsThatOfTheBook(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c, r, prefix := own(t)
	id, err := c.AcquireLock(ctx, "l", nil)
	require.NoError(t, err)
	u, err := uuid.Parse(id)
	require.NoError(t, err)
	require.Equal(t, uuid.Version(4), u.Version())
	require.Equal(t, id, r.Get(ctx, prefix+"lock:l").Val())
	require.Equal(t, time.Duration(-1), r.TTL(ctx, prefix+"lock:l").Val(), "as in the book")

	_, err = c.AcquireLock(ctx, "l", &redisinaction.LockOptions{Once: true})
	var held *redisinaction.HeldError
	require.ErrorAs(t, err, &held)
	require.ErrorIs(t, err, redisinaction.ErrHeld)
	_, ends := held.Remaining.Get()
	require.False(t, ends)
	require.ErrorContains(t, err, "Heal")

	require.ErrorIs(t, c.ReleaseLock(ctx, "l", uuid.NewString()), redisinaction.ErrNotHeld)
	require.Equal(t, id, r.Get(ctx, prefix+"lock:l").Val())
	require.ErrorIs(t, c.ExtendLock(ctx, "l", uuid.NewString(), time.Minute), redisinaction.ErrNotHeld)
	require.Negative(t, r.PTTL(ctx, prefix+"lock:l").Val())
	require.NoError(t, c.ExtendLock(ctx, "l", id, time.Minute))
	require.Positive(t, r.PTTL(ctx, prefix+"lock:l").Val())
	require.NoError(t, c.ReleaseLock(ctx, "l", id))
	require.Zero(t, r.Exists(ctx, prefix+"lock:l").Val())
	require.ErrorIs(t, c.ReleaseLock(ctx, "l", id), redisinaction.ErrNotHeld)
	require.ErrorIs(t, c.ExtendLock(ctx, "l", id, time.Minute), redisinaction.ErrNotHeld)
}

func TestLockWithATimeToLive(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	c, r, prefix := own(t)
	id, err := c.AcquireLock(ctx, "l", &redisinaction.LockOptions{TTL: 6 * time.Second})
	require.NoError(t, err)
	require.Positive(t, r.PTTL(ctx, prefix+"lock:l").Val())
	_, err = c.AcquireLock(ctx, "l", &redisinaction.LockOptions{Once: true, Heal: time.Millisecond})
	var held *redisinaction.HeldError
	require.ErrorAs(t, err, &held)
	remaining, ends := held.Remaining.Get()
	require.True(t, ends)
	require.Greater(t, remaining, time.Millisecond, "a lock with an end is not healed")
	require.ErrorContains(t, err, "at most")
	second, err := c.AcquireLock(ctx, "l", &redisinaction.LockOptions{Wait: -1})
	require.NoError(t, err, "it waits until the first lock expires")
	require.NotEqual(t, id, second)
	require.ErrorIs(t, c.ReleaseLock(ctx, "l", id), redisinaction.ErrNotHeld)
	require.Equal(t, second, r.Get(ctx, prefix+"lock:l").Val())
}

// A copy of an extension that arrives after a later one for more time would end the lock under its holder.
func TestALateCopyOfAnExtensionShortensNoLock(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	c, r, prefix := own(t)
	id, err := c.AcquireLock(ctx, "l", &redisinaction.LockOptions{TTL: time.Minute})
	require.NoError(t, err)
	require.NoError(t, c.ExtendLock(ctx, "l", id, time.Hour))
	require.Greater(t, r.PTTL(ctx, prefix+"lock:l").Val(), 59*time.Minute)
	require.NoError(t, c.ExtendLock(ctx, "l", id, time.Second), "what the copy does")
	require.Greater(t, r.PTTL(ctx, prefix+"lock:l").Val(), 59*time.Minute)
}

func TestALeftoverLockIsHealedOnRequestAlone(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	c, r, prefix := own(t)
	require.NoError(t, r.Set(ctx, prefix+"lock:l", "of a dead process", 0).Err())
	_, err := c.AcquireLock(ctx, "l", &redisinaction.LockOptions{TTL: time.Minute, Wait: 20 * time.Millisecond})
	require.ErrorIs(t, err, redisinaction.ErrHeld)
	require.Negative(t, r.PTTL(ctx, prefix+"lock:l").Val())
	_, err = c.AcquireLock(ctx, "l", &redisinaction.LockOptions{Heal: 50 * time.Millisecond, Wait: time.Minute})
	require.NoError(t, err)
	require.Negative(t, r.PTTL(ctx, prefix+"lock:l").Val(), "the new one has no time to live, as requested")
}

func TestLockInput(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c, _, _ := own(t)
	for _, o := range []redisinaction.LockOptions{
		{TTL: time.Microsecond}, {TTL: -1}, {Heal: -1}, {Heal: time.Microsecond},
	} {
		_, err := c.AcquireLock(ctx, "l", &o)
		require.ErrorIs(t, err, lua.ErrOutOfRange)
	}
	_, err := c.AcquireLock(ctx, "", nil)
	require.ErrorIs(t, err, lua.ErrBadName)
	require.ErrorIs(t, c.ReleaseLock(ctx, "", "id"), lua.ErrBadName)
	require.ErrorIs(t, c.ExtendLock(ctx, "", "id", time.Second), lua.ErrBadName)
	require.ErrorIs(t, c.ExtendLock(ctx, "l", "id", 0), lua.ErrOutOfRange)
}

func TestOneHoldsTheLockAtATime(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	c, _, _ := own(t)
	inside := 0 // the race detector reports two holders too
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				id, err := c.AcquireLock(ctx, "l", &redisinaction.LockOptions{Wait: -1})
				if err != nil {
					t.Error(err)
					return
				}
				inside++
				if err := c.ReleaseLock(ctx, "l", id); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, 160, inside)
}

func TestAcquireEndsWithItsContext(t *testing.T) {
	t.Parallel()
	c, r, prefix := own(t)
	require.NoError(t, r.Set(t.Context(), prefix+"lock:l", "other", 0).Err())
	cause := errors.New("enough")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 5*time.Second, cause)
	defer cancel()
	_, err := c.AcquireLock(ctx, "l", &redisinaction.LockOptions{Wait: -1})
	require.ErrorIs(t, err, redisinaction.ErrHeld)
	require.ErrorIs(t, err, cause)
	require.NoError(t, c.ReleaseLock(ctx, "l", "other"), "a release works after the end")
}

// proxied returns a client of the same keys through a proxy that loses replies.
func proxied(t testing.TB, prefix string) (*redisinaction.Client, *redis.Client, *luatomictest.LossyProxy) {
	t.Helper()
	proxy := luatomictest.NewLossyProxy(t, luatomictest.URL(t))
	opts, err := redis.ParseURL(proxy.URL())
	require.NoError(t, err)
	r := redis.NewClient(opts)
	t.Cleanup(func() { _ = r.Close() })
	return redisinaction.New(r, &redisinaction.Options{Prefix: prefix}), r, proxy
}

// A lost reply neither leaves a lock without a holder nor hides a release.
func TestLockWithLostReplies(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	_, r, prefix := own(t)
	c, _, proxy := proxied(t, prefix)
	for lost := range 5 {
		proxy.Drop(lost, luatomictest.Command("EVALSHA"))
		id, err := c.AcquireLock(ctx, "l", nil)
		require.NoError(t, err)
		require.Equal(t, id, r.Get(ctx, prefix+"lock:l").Val())
		proxy.Drop(lost, luatomictest.Command("EVALSHA"))
		require.NoError(t, c.ReleaseLock(ctx, "l", id))
		require.Zero(t, r.Exists(ctx, prefix+"lock:l").Val())
	}
}

// An acquire that is cancelled before the reply leaves no lock behind.
func TestACancelledAcquireLeavesNoLock(t *testing.T) {
	t.Parallel()
	_, r, prefix := own(t)
	c, _, proxy := proxied(t, prefix)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := c.AcquireLock(ctx, "warm", nil)
	require.NoError(t, err)
	proxy.Drop(1, func(args []string) bool {
		if !luatomictest.Command("EVALSHA")(args) {
			return false
		}
		cancel()
		return true
	})
	_, err = c.AcquireLock(ctx, "l", &redisinaction.LockOptions{Wait: -1})
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, r.Exists(t.Context(), prefix+"lock:l").Val())
}

// A lock that may have been acquired and has been released is known not to be held.
func TestAnAcquireWithoutAReplyWhoseLockIsReleasedIsNotUnknown(t *testing.T) {
	t.Parallel()
	for _, lost := range []*lua.Script{&script.AcquireLockScript, &script.ExtendLockScript} {
		t.Run(lost.Name, func(t *testing.T) {
			t.Parallel()
			_, r, prefix := own(t)
			c, _, proxy := proxied(t, prefix)
			id, err := c.AcquireLock(bounded(t), "l", nil)
			require.NoError(t, err)
			require.NoError(t, c.ReleaseLock(t.Context(), "l", id))
			proxy.Drop(1000, luatomictest.Command("EVALSHA", lab.Digest(lost)))
			_, err = c.AcquireLock(t.Context(), "l", nil) // a call without a deadline is retried for 10 s
			require.ErrorContains(t, err, "no reply")
			require.NotErrorIs(t, err, lua.ErrOutcomeUnknown)
			require.Zero(t, r.Exists(t.Context(), prefix+"lock:l").Val())
		})
	}
}

// refusal is an error that the server replies.
type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) RedisError()     {}

// An acquire whose second script is refused, or finds the lock gone, does not hold it.
func TestALockThatDoesNotGetItsTimeToLiveIsNotHeld(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	_, r, prefix := own(t)
	far, refused, calls := luatomictest.Client(t), refusal("NOPERM refused"), 0
	far.AddHook(&lab.Around{Sha: lab.Digest(&script.ExtendLockScript), Do: func(run func() error) error {
		switch calls++; calls {
		case 1:
			return refused
		case 2:
			require.NoError(t, r.Del(ctx, prefix+"lock:l").Err()) // it has expired
		}
		return run()
	}})
	c := redisinaction.New(far, &redisinaction.Options{Prefix: prefix})
	_, err := c.AcquireLock(ctx, "l", nil)
	require.ErrorIs(t, err, refused)
	require.Zero(t, r.Exists(ctx, prefix+"lock:l").Val())
	id, err := c.AcquireLock(ctx, "l", nil)
	require.NoError(t, err)
	require.Equal(t, 3, calls, "it is acquired anew")
	require.Equal(t, id, r.Get(ctx, prefix+"lock:l").Val())
	require.Negative(t, r.PTTL(ctx, prefix+"lock:l").Val())
}

// The book's acquire_lock waits 10 s: a lock that is released meanwhile is acquired without any option.
func TestAcquireLockWaitsByDefault(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	c, _, _ := own(t)
	first, err := c.AcquireLock(ctx, "l", &redisinaction.LockOptions{Once: true})
	require.NoError(t, err)
	_, err = c.AcquireLock(ctx, "l", &redisinaction.LockOptions{Once: true, Wait: time.Minute})
	require.ErrorIs(t, err, redisinaction.ErrHeld)
	for _, opts := range []*redisinaction.LockOptions{nil, {TTL: time.Minute}} {
		type result struct {
			id  string
			err error
		}
		acquired := make(chan result, 1)
		go func() {
			id, err := c.AcquireLock(ctx, "l", opts)
			acquired <- result{id, err}
		}()
		select {
		case r := <-acquired:
			t.Fatalf("a lock that is held: %v", r.err)
		case <-time.After(100 * time.Millisecond):
		}
		require.NoError(t, c.ReleaseLock(ctx, "l", first))
		r := <-acquired
		require.NoError(t, r.err)
		first = r.id
	}
}

// After a lost reply the runtime asks again, and the lock is held for its whole time to live from then on; a copy that
// arrives late takes nothing from a longer one.
func TestARepeatedAcquireHasItsWholeTimeToLive(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	_, r, prefix := own(t)
	params := script.AcquireLockParams{Lock: prefix + "lock:l", Identifier: "me", TTL: time.Hour}
	for _, left := range []time.Duration{time.Minute, 2 * time.Hour} {
		require.NoError(t, r.Set(ctx, prefix+"lock:l", "me", left).Err())
		again, err := script.AcquireLock(ctx, r, params)
		require.NoError(t, err)
		require.True(t, again.Acquired)
		require.Greater(t, r.PTTL(ctx, prefix+"lock:l").Val(), max(left, time.Hour)-time.Minute)
	}
}

// A reply that takes longer than the time to live says nothing about now: the lock is acquired anew.
func TestALockThatIsOverWithItsReplyIsAcquiredAnew(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	_, r, prefix := own(t)
	require.NoError(t, lua.Preload(ctx, r, redisinaction.Scripts()...))
	slow := redis.NewClient(r.Options())
	t.Cleanup(func() { _ = slow.Close() })
	first := true
	slow.AddHook(&lab.Around{Sha: lab.Digest(&script.AcquireLockScript), Do: func(run func() error) error {
		err := run()
		if first && err == nil {
			luatomictest.Eventually(t, 10*time.Second, "the lock has expired", func() bool {
				return r.Exists(ctx, prefix+"lock:l").Val() == 0
			})
			first = false
		}
		return err
	}})
	c := redisinaction.New(slow, &redisinaction.Options{Prefix: prefix})
	id, err := c.AcquireLock(ctx, "l", &redisinaction.LockOptions{TTL: 2 * time.Second}) // the release has as long
	require.NoError(t, err)
	require.NoError(t, c.ReleaseLock(ctx, "l", id))
}

// A request is sent again when its connection breaks. A copy that arrives after the release holds the lock for a few
// seconds, and not for the whole time to live of the holder, or for ever.
func TestALateCopyOfAnAcquireHoldsTheLockShortly(t *testing.T) {
	t.Parallel()
	for _, ttl := range []time.Duration{0, time.Hour, time.Second} {
		t.Run(ttl.String(), func(t *testing.T) {
			t.Parallel()
			ctx := bounded(t)
			_, r, prefix := own(t)
			far, held := lab.HoldUp(t, &script.AcquireLockScript, 0)
			c := redisinaction.New(far, &redisinaction.Options{Prefix: prefix})
			id, err := c.AcquireLock(ctx, "l", &redisinaction.LockOptions{TTL: ttl})
			require.NoError(t, err)
			left := r.PTTL(ctx, prefix+"lock:l").Val()
			require.Equal(t, ttl == 0, left < 0)
			require.Greater(t, left, ttl-time.Minute)
			require.NoError(t, c.ReleaseLock(ctx, "l", id))
			held.Arrive(t)
			<-held.Arrived
			require.Equal(t, id, r.Get(ctx, prefix+"lock:l").Val(), "it arrived")
			left = r.PTTL(ctx, prefix+"lock:l").Val()
			require.Positive(t, left)
			require.LessOrEqual(t, left, 10*time.Second)
		})
	}
}
