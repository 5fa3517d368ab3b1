package send_test

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/send"
	"github.com/luatomic/luatomic/luatomictest"
)

// server answers round trips one by one, when the test lets it.
type server struct {
	*send.Pipeline[int]
	reply chan struct{}

	mu    sync.Mutex
	trips [][]int
}

func newServer() *server {
	s := &server{reply: make(chan struct{})}
	s.Pipeline = send.NewPipeline(func(_ context.Context, items []int) {
		s.mu.Lock()
		s.trips = append(s.trips, append([]int(nil), items...))
		s.mu.Unlock()
		<-s.reply
	})
	s.NoneIsOverdue()
	return s
}

func (s *server) sent() [][]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([][]int(nil), s.trips...)
}

// fill starts as many round trips as a pipeline allows, of one item each.
func (s *server) fill(t *testing.T, do func()) {
	for i := range send.FewTrips {
		go do()
		luatomictest.Eventually(t, 10*time.Second, "the round trip is under way", func() bool {
			return len(s.sent()) == i+1
		})
	}
}

func TestWaitingCallsShareTheNextRoundTrip(t *testing.T) {
	t.Parallel()
	s := newServer()
	var callers sync.WaitGroup
	callers.Add(send.FewTrips)
	s.fill(t, func() {
		defer callers.Done()
		s.Do(t.Context(), 0, 1)
	})
	for range 100 {
		callers.Go(func() { require.Equal(t, send.Sent, s.Do(context.Background(), 1, 1)) })
	}
	luatomictest.Eventually(t, 10*time.Second, "100 calls wait", func() bool { return s.Waiting() == 100 })
	for range send.FewTrips - send.SharedTrips { // while many share them there are fewer
		s.reply <- struct{}{}
	}
	luatomictest.Eventually(t, 10*time.Second, "a round trip less", func() bool {
		return s.Active() == send.SharedTrips
	})
	require.Equal(t, 100, s.Waiting())
	s.reply <- struct{}{}
	luatomictest.Eventually(t, 10*time.Second, "they go out", func() bool { return len(s.sent()) == send.FewTrips+1 })
	close(s.reply)
	callers.Wait()
	trips := s.sent()
	require.Len(t, trips, send.FewTrips+1)
	require.Len(t, trips[send.FewTrips], 100, "no caller waits for another round trip")
}

// The callers that one reply wakes share the next round trip. On one processor a goroutine that is started would run
// before them.
func TestCallersThatWakeTogetherGoOutTogether(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const callers, calls = 16, 200
	var trips atomic.Int64
	pipeline := send.NewPipeline(func(context.Context, []int) {
		trips.Add(1)
		runtime.Gosched() // a server takes its time
	})
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for range calls {
				if got := pipeline.Do(t.Context(), 1, 1); got != send.Sent {
					t.Errorf("outcome %d", got)
				}
			}
		})
	}
	all.Wait()
	require.Less(t, trips.Load(), int64(callers*calls/4), "round trips of %d calls", callers*calls)
}

func TestRoundTripsUnderWay(t *testing.T) {
	t.Parallel()
	var now, most atomic.Int64
	pipeline := send.NewPipeline(func(context.Context, []int) {
		n := now.Add(1)
		for {
			m := most.Load()
			if n <= m || most.CompareAndSwap(m, n) {
				break
			}
		}
		time.Sleep(100 * time.Microsecond)
		now.Add(-1)
	})
	pipeline.NoneIsOverdue() // on a busy machine each can be
	for callers, bound := range map[int]int64{1: 1, 4: send.FewTrips, 100: send.FewTrips} {
		most.Store(0)
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				for range 200 {
					pipeline.Do(t.Context(), 1, 1)
				}
			})
		}
		all.Wait()
		require.LessOrEqual(t, most.Load(), bound, "of %d callers", callers)
	}
}

// A call that is alone is sent by the goroutine of its caller if its context cannot end. After a shared round trip the
// first call still goes through another goroutine.
func TestACallAloneIsSentByItsCaller(t *testing.T) {
	t.Parallel()
	var sender string
	pipeline := send.NewPipeline(func(_ context.Context, items []int) { sender = goroutine() })
	require.Equal(t, send.Sent, pipeline.Do(context.Background(), 1, 1))
	require.Equal(t, goroutine(), sender)
	pipeline.SetShared()
	require.Equal(t, send.Sent, pipeline.Do(context.Background(), 1, 1))
	require.NotEqual(t, goroutine(), sender, "others may be about to call")
	luatomictest.Eventually(t, 10*time.Second, "its round trip is over", func() bool { return pipeline.Active() == 0 })
	require.Equal(t, send.Sent, pipeline.Do(context.Background(), 1, 1))
	require.Equal(t, goroutine(), sender)
}

// goroutine names the one that runs.
func goroutine() string {
	var stack [64]byte
	name, _, _ := strings.Cut(string(stack[:runtime.Stack(stack[:], false)]), " [")
	return name
}

// Round trips without a reply delay neither later calls nor those that wait: the next call takes them along.
func TestALongRoundTripHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	var trips atomic.Int64
	hang := make(chan struct{})
	pipeline := send.NewPipeline(func(context.Context, []int) {
		if trips.Add(1) <= send.FewTrips {
			<-hang
		}
	})
	var callers sync.WaitGroup
	for i := range send.FewTrips {
		callers.Go(func() { pipeline.Do(t.Context(), 0, 1) })
		luatomictest.Eventually(t, 10*time.Second, "it hangs", func() bool { return trips.Load() == int64(i+1) })
	}
	early := make(chan send.Outcome)
	go func() { early <- pipeline.Do(t.Context(), 1, 1) }()
	for sent := false; !sent; { // the first one that comes late enough
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		sent = pipeline.Do(ctx, 1, 1) == send.Sent
		cancel()
	}
	require.Equal(t, send.Sent, <-early)
	for range 100 {
		require.Equal(t, send.Sent, pipeline.Do(t.Context(), 1, 1), "the others go on")
	}
	// On a busy machine a round trip that returns may be overdue, too.
	luatomictest.Eventually(t, 10*time.Second, "those that hang are long", func() bool {
		return pipeline.Overdue() == send.FewTrips
	})
	close(hang)
	callers.Wait()
	luatomictest.Eventually(t, 10*time.Second, "all have returned", func() bool { return pipeline.Active() == 0 })
	require.Zero(t, pipeline.Overdue())
}

// A server that hangs gets no more than so many round trips.
func TestLongRoundTripsAreBounded(t *testing.T) {
	t.Parallel()
	var trips atomic.Int64
	hang := make(chan struct{})
	pipeline := send.NewPipeline(func(context.Context, []int) {
		trips.Add(1)
		<-hang
	})
	for range 100 {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		pipeline.Do(ctx, 1, 1)
		cancel()
	}
	require.Greater(t, trips.Load(), int64(send.FewTrips), "a long one is not waited for")
	require.LessOrEqual(t, trips.Load(), int64(send.MostTrips+send.FewTrips))
	close(hang)
	luatomictest.Eventually(t, 10*time.Second, "all have returned", func() bool { return pipeline.Active() == 0 })
	require.Zero(t, pipeline.Overdue())
}

func TestARoundTripIsBounded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ size, most int }{"number": {1, 512}, "bytes": {60 << 10, 2},
		"one that is larger": {1 << 20, 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer()
			var callers sync.WaitGroup
			s.fill(t, func() { s.Do(t.Context(), 0, 1) })
			for range 1100 {
				callers.Go(func() { require.Equal(t, send.Sent, s.Do(t.Context(), 1, c.size)) })
			}
			luatomictest.Eventually(t, 10*time.Second, "the calls wait", func() bool { return s.Waiting() == 1100 })
			close(s.reply)
			callers.Wait()
			total, most := 0, 0
			for _, trip := range s.sent()[send.FewTrips:] {
				total, most = total+len(trip), max(most, len(trip))
			}
			require.Equal(t, 1100, total)
			require.Equal(t, c.most, most)
		})
	}
}

func TestCallersLeaveWhileTheServerHangs(t *testing.T) {
	t.Parallel()
	const callers = 100_000
	s := newServer()
	var first sync.WaitGroup
	ctx, leave := context.WithCancel(t.Context())
	first.Add(send.FewTrips)
	s.fill(t, func() {
		defer first.Done()
		require.Equal(t, send.Left, s.Do(ctx, 0, 1), "its round trip is under way")
	})
	before := runtime.NumGoroutine()
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			if got := s.Do(ctx, 1, 1); got != send.Withdrawn {
				t.Errorf("outcome %d", got)
			}
		})
	}
	luatomictest.Eventually(t, time.Minute, "all wait", func() bool { return s.Waiting() == callers })
	leave()
	all.Wait()
	first.Wait()
	require.Zero(t, s.Waiting())
	luatomictest.Eventually(t, 20*time.Second, "their goroutines have ended", func() bool {
		return runtime.NumGoroutine() <= before
	})
	close(s.reply)
	require.Equal(t, send.Sent, s.Do(t.Context(), 2, 1), "the pipeline works on")
	for _, trip := range s.sent() {
		require.NotContains(t, trip, 1, "a call that was withdrawn is never sent")
	}
}

// A round trip whose send panics no longer counts against the limit.
func TestAPanicInARoundTripEndsIt(t *testing.T) {
	t.Parallel()
	broken := true
	pipeline := send.NewPipeline(func(context.Context, []int) {
		if broken {
			panic("hook")
		}
	})
	for range 8 {
		require.Panics(t, func() { pipeline.Do(context.Background(), 1, 1) })
	}
	broken = false
	require.Equal(t, send.Sent, pipeline.Do(t.Context(), 1, 1))
}

// A hook of the client that ends the goroutine of a round trip, as a failed assertion in a test does, leaves no caller
// waiting and does not count against the limit: neither where a call was alone nor where several shared the round trip.
func TestARoundTripThatExitsKeepsNoCaller(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	pipeline := send.NewPipeline(func(context.Context, []int) { runtime.Goexit() })
	for range 2 * send.FewTrips {
		require.Equal(t, send.Sent, pipeline.Do(ctx, 0, 1))
	}
	pipeline.SetShared()
	var callers sync.WaitGroup
	var left atomic.Int64
	for range 100 {
		callers.Go(func() {
			if pipeline.Do(ctx, 0, 1) != send.Sent {
				left.Add(1)
			}
		})
	}
	callers.Wait()
	require.Zero(t, left.Load())
	luatomictest.Eventually(t, 10*time.Second, "all have returned", func() bool { return pipeline.Active() == 0 })
}

// A spare request holds no item, although its goroutine may wait for the next one.
func TestAnItemIsFreeAfterItsCall(t *testing.T) {
	type item struct{ _ [64]byte }
	pipeline, freed := send.NewPipeline(func(context.Context, []*item) {}), make(chan struct{})
	for i := range 1000 {
		it := new(item)
		if i == 999 {
			runtime.AddCleanup(it, func(int) { close(freed) }, 0)
		}
		require.Equal(t, send.Sent, pipeline.Do(t.Context(), it, 1))
	}
	luatomictest.Eventually(t, 10*time.Second, "the last item is free", func() bool {
		runtime.GC()
		select {
		case <-freed:
			return true
		default:
			return false
		}
	})
}

// A call that waited and goes out alone is sent with the context of its caller, as one that did not wait.
func TestASingleItemHasTheContextOfItsCaller(t *testing.T) {
	t.Parallel()
	type key struct{}
	seen, reply := make(chan any, send.FewTrips+1), make(chan struct{})
	pipeline := send.NewPipeline(func(ctx context.Context, _ []int) {
		seen <- ctx.Value(key{})
		<-reply
	})
	pipeline.NoneIsOverdue()
	var callers sync.WaitGroup
	for range send.FewTrips {
		callers.Go(func() { pipeline.Do(context.WithValue(t.Context(), key{}, "at once"), 1, 1) })
		require.Equal(t, "at once", <-seen)
	}
	callers.Go(func() { pipeline.Do(context.WithValue(t.Context(), key{}, "waited"), 1, 1) })
	luatomictest.Eventually(t, 10*time.Second, "it waits", func() bool { return pipeline.Waiting() == 1 })
	close(reply)
	callers.Wait()
	require.Equal(t, "waited", <-seen)
}
