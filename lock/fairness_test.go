package lock_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/luatomictest"
)

// 50 processes with 20 waiters each contend for one lock. While one waits, each of the others has about one turn: at
// random turns the slowest in a hundred would see each of the others have four or five.
func TestFairnessBetweenProcesses(t *testing.T) {
	const processes, waiters, rounds = 50, 20, 5
	name := luatomictest.Namespace(t)
	var mu sync.Mutex // guards those below
	var passed []int  // the turns of others while one waited
	var taken, atHalf [processes]int
	start := make(chan struct{})
	var all sync.WaitGroup
	for p := range processes {
		// A turn is passed on when its waiter is not run for as long as the claim lasts: on a busy machine, too.
		l := lab.Locker(t, luatomictest.Client(t), &lock.Options{TTL: time.Minute, Claim: time.Minute})
		turn := func() error {
			mu.Lock()
			before := len(passed)
			mu.Unlock()
			lease, err := l.Acquire(t.Context(), name)
			if err != nil {
				return err
			}
			mu.Lock()
			taken[p]++
			if passed = append(passed, len(passed)-before); len(passed) == processes*waiters*rounds/2 {
				atHalf = taken
			}
			mu.Unlock()
			return lease.Release(t.Context())
		}
		for range waiters {
			all.Go(func() {
				<-start
				for range rounds {
					if err := turn(); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	close(start)
	all.Wait()
	require.Len(t, passed, processes*waiters*rounds)
	slices.Sort(passed)
	p99 := passed[len(passed)*99/100]
	t.Logf("turns of others while one waits: p99 %d; turns of a process at half: %d to %d", p99, slices.Min(atHalf[:]),
		slices.Max(atHalf[:]))
	require.Less(t, p99, 2*processes*waiters)
	require.Less(t, slices.Max(atHalf[:]), 3*slices.Min(atHalf[:]))
}
