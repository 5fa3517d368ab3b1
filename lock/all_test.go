package lock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/internal/scriptcase"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/luatomictest"
)

// Several leases are given back at the same time: with a server that does not answer that
// takes as long as one does.
func TestLeasesAreReleasedConcurrently(t *testing.T) {
	t.Parallel()
	ctx, space := t.Context(), luatomictest.Namespace(t)
	c := luatomictest.Client(t)
	l := lab.Locker(t, c, &lock.Options{TTL: time.Minute})
	all, err := l.AcquireAll(ctx, space+"a", space+"b", space+"c")
	require.NoError(t, err)
	var came sync.WaitGroup
	came.Add(len(all))
	together := make(chan struct{})
	go func() {
		came.Wait()
		close(together)
	}()
	c.AddHook(&lab.Around{Sha: gen.LockReleaseScript.SHA, Do: func(run func() error) error {
		select {
		case <-together:
			return run() // sent again, with the script
		default:
		}
		came.Done()
		select {
		case <-together:
			return run()
		case <-time.After(20 * time.Second):
			came.Add(1)
			return context.DeadlineExceeded
		}
	}})
	require.NoError(t, all.Release(ctx))
}

func TestAcquireAllWaitsForTheLockDelay(t *testing.T) {
	t.Parallel()
	k := newLockKeys(t, fmt.Sprintf("7 0 gone %d 1000 60000 - ", time.Now().Add(-2*time.Second).UnixMicro()))
	r, err := gen.LockAcquireAll(t.Context(), k.c, gen.LockAcquireAllParams{
		Locks: []string{k.lock}, Owner: "me", TTL: time.Minute,
	})
	require.NoError(t, err)
	require.EqualValues(t, 1, r.Blocked)
	require.Greater(t, r.Remaining, 50*time.Second)
}

// AcquireAll keeps the mark that the queue has an entry, and the owner that released last.
func TestAcquireAllKeepsTheMarkOfTheQueue(t *testing.T) {
	t.Parallel()
	k := newLockKeys(t, "7 1 - 0 0 0 before ", scriptcase.EntryOf("waiter.1"))
	_, err := gen.LockAcquireAll(t.Context(), k.c, gen.LockAcquireAllParams{
		Locks: []string{k.lock}, Owner: "me", TTL: time.Minute,
	})
	require.NoError(t, err)
	require.Regexp(t, `^\d+ 1 me \d+ 60000 0 before $`, k.text())
	r, err := gen.LockRelease(t.Context(), k.c, gen.LockReleaseParams{
		Lock: k.lock, Queue: k.queue, Owner: "before", Keep: time.Hour,
	})
	require.NoError(t, err)
	require.Equal(t, gen.LockReleaseResultReleased, r, "its reply was lost, and it asks again")
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
				return held
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
				require.Empty(t, holding(), "cancelled at the %d.", nth+1)
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
