package send_test

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/send"
	"github.com/luatomic/luatomic/luatomictest"
)

func TestAGoroutineStaysForTheNextFunction(t *testing.T) {
	before := runtime.NumGoroutine() // the tests in parallel begin after this one
	ran, names := make(chan string), make(map[string]bool)
	for range 1000 {
		send.Go(func() { ran <- goroutine() })
		names[<-ran] = true
	}
	require.Less(t, len(names), 100, "functions without a pause share a goroutine")
	luatomictest.Eventually(t, 10*time.Second, "no goroutine is left", func() bool {
		return runtime.NumGoroutine() <= before
	})
}

// ring counts its runs.
type ring chan struct{}

func (r ring) Run() { r <- struct{}{} }

// Not parallel: AllocsPerRun counts those of the whole process.
func TestARunnerCostsNoAllocation(t *testing.T) {
	ran := make(ring)
	luatomictest.Eventually(t, 20*time.Second, "a hundred runs without an allocation", func() bool {
		return testing.AllocsPerRun(100, func() { // a busy machine ends idle goroutines
			send.Reuse(ran)
			<-ran
		}) == 0
	})
}

func TestAGoroutineThatWaitsHoldsNothing(t *testing.T) {
	type item struct{ _ [64]byte }
	freed, held := make(chan struct{}), new(item)
	runtime.AddCleanup(held, func(int) { close(freed) }, 0)
	ran := make(chan struct{})
	func(held *item) {
		send.Go(func() {
			runtime.KeepAlive(held)
			close(ran)
		})
	}(held)
	held = nil
	<-ran
	luatomictest.Eventually(t, 10*time.Second, "what the function referred to is free", func() bool {
		runtime.GC()
		select {
		case <-freed:
			return true
		default:
			return false
		}
	})
}

// A function that waits holds up no other, and one that ends its goroutine takes no other with it.
func TestFunctionsDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	end := make(chan struct{})
	var begun, all sync.WaitGroup
	for range 100 {
		begun.Add(1)
		all.Add(1)
		send.Go(func() {
			defer all.Done()
			begun.Done()
			<-end
			runtime.Goexit()
		})
	}
	begun.Wait()
	close(end)
	all.Wait()
	ran := make(chan struct{})
	send.Go(func() { close(ran) })
	<-ran
}
