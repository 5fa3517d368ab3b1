//go:build !race

package send_test

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/send"
)

// The race detector has the runtime choose at random which goroutine is next.

// On one processor, what GoLast runs comes after the goroutines that can run, and not after those that have used up
// their time: a program that computes would delay it by tens of milliseconds. The machine may stop this test at any
// place, so that a round alone says nothing.
func TestGoLastRunsAfterThoseThatCanRun(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const times = 1000
	behind := 0
	for range times {
		if lastOfTwelve(send.GoLast) {
			behind++
		}
	}
	require.Greater(t, behind, times*9/10, "with reuse.Go it is the first")

	var slices, stop atomic.Int64
	for range 4 {
		go func() {
			for stop.Load() == 0 {
				slices.Add(1)
				runtime.Gosched()
			}
		}()
	}
	ran, before := make(chan struct{}), slices.Load()
	for range times {
		send.GoLast(func() { ran <- struct{}{} })
		<-ran
	}
	stop.Store(1)
	require.Less(t, slices.Load()-before, int64(2*times), "with runtime.Gosched each time is behind four of them")
}

// lastOfTwelve reports whether what run runs comes after eleven goroutines that could run before.
func lastOfTwelve(run func(func())) bool {
	var order []string
	var all sync.WaitGroup
	for range 11 {
		all.Go(func() { order = append(order, "ready") })
	}
	all.Add(1)
	run(func() {
		defer all.Done()
		order = append(order, "behind")
	})
	all.Wait()
	return order[len(order)-1] == "behind"
}
