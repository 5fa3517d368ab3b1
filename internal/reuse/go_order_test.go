//go:build !race

package reuse_test

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/reuse"
)

// The race detector has the runtime choose at random which goroutine is next.

// On one processor, what Behind runs comes after the goroutines that can run, and not after those that have used up their
// time: a program that computes would delay it by tens of milliseconds.
func TestBehindThoseThatCanRun(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var order []string
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() { order = append(order, "ready") })
	}
	all.Add(1)
	reuse.Behind(func() {
		defer all.Done()
		order = append(order, "behind")
	})
	all.Wait()
	require.Equal(t, "behind", order[10])

	var slices, stop atomic.Int64
	for range 4 {
		go func() {
			for stop.Load() == 0 {
				slices.Add(1)
				runtime.Gosched()
			}
		}()
	}
	const times = 1000
	ran, before := make(chan struct{}), slices.Load()
	for range times {
		reuse.Behind(func() { ran <- struct{}{} })
		<-ran
	}
	stop.Store(1)
	require.Less(t, slices.Load()-before, int64(times), "with runtime.Gosched each time is behind four of them")
}
