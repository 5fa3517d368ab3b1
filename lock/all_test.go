package lock_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	lockscript "github.com/luatomic/luatomic/gen/lock"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/internal/testkit/scriptcase"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/luatomictest"
)

// 50 locks without a tag are one round trip to acquire and one to release; a second acquire finds a lock that is free
// and waited for, and is two.
func TestAcquireAllIsOneRoundTrip(t *testing.T) {
	t.Parallel()
	ctx, space := t.Context(), luatomictest.Namespace(t)
	c := luatomictest.Client(t)
	trips := &lab.RoundTrips{}
	l := lab.Locker(t, c, &lock.Options{TTL: time.Minute})
	names := make([]string, 50)
	for i := range names {
		names[i] = fmt.Sprint(space, i)
	}
	pair := func() (acquire, release int64) {
		before := trips.Load()
		all, err := l.AcquireAll(ctx, names...)
		require.NoError(t, err)
		acquire = trips.Load() - before
		require.NoError(t, all[7].Release(ctx), "one may be released before")
		before = trips.Load()
		require.NoError(t, all.Release(ctx))
		return acquire, trips.Load() - before
	}
	pair() // loads the scripts
	c.AddHook(trips)
	acquire, release := pair()
	require.Equal(t, []int64{1, 1}, []int64{acquire, release})

	require.NoError(t, c.RPush(ctx, "lockq:{"+names[3]+"}", "1000 dead.1 0 1000 ").Err())
	require.NoError(t, c.Set(ctx, "lock:{"+names[3]+"}", "2 1 1 - - 0 0 ", time.Minute).Err())
	pair() // loads the script of a lock that is waited for
	require.NoError(t, c.RPush(ctx, "lockq:{"+names[3]+"}", "1000 dead.1 0 1000 ").Err())
	require.NoError(t, c.Set(ctx, "lock:{"+names[3]+"}", "2 1 1 - - 0 0 ", time.Minute).Err())
	acquire, release = pair()
	require.Equal(t, []int64{2, 1}, []int64{acquire, release})
}

// The release of a lease waits for one beside it. Where each is part of a round trip, none waits for the other's.
func TestReleasesOfAllAtOnceEnd(t *testing.T) {
	t.Parallel()
	space := luatomictest.Namespace(t)
	l := lab.Locker(t, luatomictest.Client(t), &lock.Options{TTL: time.Minute})
	names := make([]string, 20)
	for i := range names {
		names[i] = fmt.Sprint(space, i)
	}
	for range 50 {
		all, err := l.AcquireAll(t.Context(), names...)
		require.NoError(t, err)
		released := make(chan error, 2)
		for range 2 {
			go func() { released <- append(all, all[0]).Release(t.Context()) }()
		}
		for range 2 {
			require.NoError(t, lab.Soon(t, 20*time.Second, "the releases", released))
		}
	}
}

// The reply of the one release may be lost: its repeat finds nothing, and that is no loss of any.
func TestReleaseOfAllWhoseReplyIsLostIsOurs(t *testing.T) {
	t.Parallel()
	ctx, space := t.Context(), luatomictest.Namespace(t)
	c, proxy := proxied(t, luatomictest.URL(t))
	l := lab.Locker(t, c, &lock.Options{TTL: time.Minute})
	for drop := range 2 {
		all, err := l.AcquireAll(ctx, space+"a", space+"b", space+"c")
		require.NoError(t, err)
		proxy.Drop(drop, func(args []string) bool { return strings.EqualFold(args[0], "EVALSHA") })
		require.NoError(t, all.Release(ctx))
	}
}

// The lock that AcquireAll waited for is acquired once, and its lease is the one that is returned: the extension that
// confirms it may be late, and finds a lease that was released, which is no loss.
func TestAcquireAllAcquiresTheLockItWaitedForOnce(t *testing.T) {
	t.Parallel()
	ctx, space := t.Context(), luatomictest.Namespace(t)
	for _, tag := range []string{"", space} {
		t.Run("tag "+tag, func(t *testing.T) {
			t.Parallel()
			holder := lab.Locker(t, luatomictest.Client(t), &lock.Options{TTL: time.Minute, Tag: tag})
			names := []string{space + tag + "a", space + tag + "b"}
			held, err := holder.Try(ctx, names[1])
			require.NoError(t, err)
			begun, released, late := make(chan struct{}, 1), make(chan struct{}), make(chan struct{}, 1)
			c := luatomictest.Client(t)
			c.AddHook(&lab.Around{Sha: lab.Digest(&lockscript.ExtendScript), Do: func(run func() error) error {
				if tag != "" { // else AcquireAll itself extends the lease
					begun <- struct{}{}
					<-released
				}
				defer func() {
					select {
					case late <- struct{}{}:
					default:
					}
				}()
				return run()
			}})
			var mu sync.Mutex
			events := make(map[string]int)
			l := lab.Locker(t, c, &lock.Options{TTL: time.Minute, Claim: 20 * time.Second, Tag: tag,
				Observe: func(e lock.Event) {
					mu.Lock()
					defer mu.Unlock()
					events[e.Kind.String()+" "+strings.TrimPrefix(e.Name, space+tag)]++
				}})
			go func() {
				lab.WaitFor(t, holder, names[1], 1)
				_ = held.Release(ctx)
			}()
			all, err := l.AcquireAll(ctx, names...)
			require.NoError(t, err)
			require.Greater(t, time.Until(all[1].Deadline()), 30*time.Second, "not for Claim alone")
			if tag != "" {
				lab.Soon(t, 20*time.Second, "the extension that will be late", begun)
			}
			require.NoError(t, all.Release(ctx))
			close(released)
			lab.Soon(t, 20*time.Second, "the extension", late)
			seen := func() map[string]int {
				mu.Lock()
				defer mu.Unlock()
				return maps.Clone(events)
			}
			lost := func() bool { return seen()["lost b"] > 0 }
			require.Never(t, lost, 100*time.Millisecond, 5*time.Millisecond)
			require.Equal(t, 1, seen()["acquired b"])
			require.Equal(t, 1, seen()["released b"])
		})
	}
}

// The context of several leases is over at the first check after the end of one, before any timer has run.
func TestTheContextOfLeasesReadsTheClock(t *testing.T) {
	t.Parallel()
	c, space := luatomictest.Client(t), luatomictest.Namespace(t)
	for round := range 20 {
		l := lock.New(c, &lock.Options{TTL: 50 * time.Millisecond})
		all, err := l.AcquireAll(t.Context(), fmt.Sprint(space, "a", round), fmt.Sprint(space, "b", round))
		require.NoError(t, err)
		require.NoError(t, l.Close(), "it renews no lease")
		kept := all.Keep(t.Context())
		for all.Err() == nil {
			continue
		}
		require.Error(t, kept.Err())
		<-kept.Done()
		require.ErrorIs(t, context.Cause(kept), lock.ErrLost)
	}
}

func TestAcquireAllWaitsForTheLockDelay(t *testing.T) {
	t.Parallel()
	k := newLockKeys(t, "2 7 0 - gone 60000 61000 ", 59*time.Second)
	r, err := lockscript.AcquireAll(t.Context(), k.c, lockscript.AcquireAllParams{
		Locks: []string{k.lock}, Own: scriptcase.Own("me"), Life: time.Minute,
	})
	require.NoError(t, err)
	require.EqualValues(t, 1, r.Blocked)
	require.Greater(t, r.Remaining, 50*time.Second)
}

// AcquireAll keeps the sign that the queue has an entry, and the void tokens: a request of theirs may still arrive.
func TestAcquireAllKeepsTheSignOfTheQueue(t *testing.T) {
	t.Parallel()
	k := newLockKeys(t, "2 7 1 9999999999,late.1 - 0 0 ", time.Minute, scriptcase.EntryOf("waiter.1"))
	acquire := func(owner string) lockscript.AcquireAllResult {
		return lab.Must(lockscript.AcquireAll(t.Context(), k.c, lockscript.AcquireAllParams{
			Locks: []string{k.lock}, Own: scriptcase.Own(owner), Life: time.Minute,
		}))
	}
	require.EqualValues(t, 1, acquire("late.1").Blocked)
	require.Zero(t, acquire("me").Blocked)
	require.Regexp(t, `^2 \d+ 1 9999999999,late\.1 me 0 1000 note$`, k.text())
}

// Row 26. Several locks: all or none, whatever is lost or cancelled.
func TestAcquireAllLeavesNothingHalfHeld(t *testing.T) {
	t.Parallel()
	url := luatomictest.URL(t)
	for _, tagged := range []bool{true, false} {
		t.Run(fmt.Sprint("tagged ", tagged), func(t *testing.T) {
			t.Parallel()
			c, proxy := proxied(t, url)
			space := luatomictest.Namespace(t)
			names := []string{space + "c", space + "a", space + "b"}
			opts := lock.Options{TTL: time.Minute}
			if tagged {
				opts.Tag = space
			}
			l := lab.Locker(t, c, &opts)
			direct := lab.Locker(t, luatomictest.Client(t), &opts)
			holding := func() (held []string) {
				for info, err := range direct.List(t.Context()) {
					require.NoError(t, err)
					if info.Held && strings.HasPrefix(info.Name, space) {
						held = append(held, info.Name)
					}
				}
				slices.Sort(held)
				return slices.Compact(held)
			}
			warm, err := l.AcquireAll(t.Context(), names...)
			require.NoError(t, err)
			require.Len(t, holding(), 3)
			require.NoError(t, warm.Release(t.Context()))
			require.Empty(t, holding())

			for nth := range 3 {
				ctx, cancel := context.WithCancel(t.Context())
				seen := 0
				proxy.Drop(1, func(args []string) bool {
					if !strings.EqualFold(args[0], "EVALSHA") {
						return false
					}
					if seen++; seen <= nth && !tagged {
						return false
					}
					return cancelled(cancel)
				})
				_, err = l.AcquireAll(ctx, names...)
				cancel()
				require.ErrorIs(t, err, context.Canceled)
				// The caller does not wait for its withdrawal longer than a moment.
				luatomictest.Eventually(t, 10*time.Second, fmt.Sprintf("nothing is held, cancelled at the %d.", nth+1),
					func() bool { return len(holding()) == 0 })
			}

			last, err := direct.Try(t.Context(), names[0])
			require.NoError(t, err)
			short, cancel := context.WithTimeout(t.Context(), 3*time.Second) // it has an answer by then
			defer cancel()
			_, err = l.AcquireAll(short, names...)
			require.True(t, errors.Is(err, lock.ErrHeld) && errors.Is(err, context.DeadlineExceeded), err)
			require.Equal(t, []string{names[0]}, holding(), "it holds nothing while it waits")
			require.NoError(t, last.Release(t.Context()))
		})
	}
}
