package lock_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/luatomictest"
)

// gauge is what is held at a moment, by those who hold it.
type gauge struct {
	limit  int64
	fences sync.Map

	mu   sync.Mutex
	held map[*lock.Lease]int64
	most int64
}

// inside runs f while the lease counts, and reports a permit too many or a fence that
// came twice. A lease counts as long as its holder takes it for good, which ends
// before the server's own time: however late the machine runs, those are held.
func (g *gauge) inside(lease *lock.Lease, weight int64, f func()) error {
	now := g.enter(lease, weight)
	defer g.leave(lease)
	if now > g.limit {
		return fmt.Errorf("%d of %d are held", now, g.limit)
	}
	if _, twice := g.fences.LoadOrStore(lease.Fence(), true); twice {
		return fmt.Errorf("the fence %d was given twice", lease.Fence())
	}
	f()
	return nil
}

func (g *gauge) enter(lease *lock.Lease, weight int64) (now int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.held == nil {
		g.held = make(map[*lock.Lease]int64)
	}
	g.held[lease] = weight
	for l, w := range g.held {
		if l.Err() == nil {
			now += w
		}
	}
	g.most = max(g.most, now)
	return now
}

func (g *gauge) leave(lease *lock.Lease) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.held, lease)
}

// faultyClients are clients through proxies that cut and lose what they carry, until
// the test ends.
func faultyClients(t *testing.T, server *luatomictest.Server, n int) []*redis.Client {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	clients := make([]*redis.Client, n)
	for i := range clients {
		proxy := luatomictest.NewLossyProxy(t, server.URL())
		opts, err := redis.ParseURL(proxy.URL())
		require.NoError(t, err)
		clients[i] = redis.NewClient(opts)
		t.Cleanup(func() { require.NoError(t, clients[i].Close()) })
		sent := luatomictest.Command("EVALSHA")
		proxy.Drop(1<<30, func(args []string) bool { return sent(args) && rand.IntN(20) == 0 })
		running.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(i), 1))
			for n := 0; ctx.Err() == nil; n++ {
				timer := time.NewTimer(time.Duration(10+rnd.IntN(40)) * time.Millisecond)
				select {
				case <-timer.C:
				case <-ctx.Done():
					timer.Stop()
				}
				if n%3 == 0 {
					proxy.CutAll()
				}
				if i == 0 && n%5 == 0 {
					_ = server.Client().ScriptFlush(ctx).Err()
				}
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return clients
}

// Many clients whose connections break and whose replies get lost, some of which
// never give back: never more is held than the limit, no writer meets a reader, each
// fence is given once, and in the end everything is free.
func TestSemaphoreHistoryUnderFaults(t *testing.T) {
	t.Parallel()
	rounds := 40
	if os.Getenv("LUATOMIC_DRILL") != "" {
		rounds = 1000
	}
	server := luatomictest.StartServer(t)
	clients := faultyClients(t, server, 6)
	run := func(name string, limit int64, acquire func(l *lock.Locker, rnd *rand.Rand) (func(context.Context) (*lock.Lease, error), int64)) {
		g := gauge{limit: limit}
		var wg sync.WaitGroup
		var done, crashed atomic.Int64
		for i, c := range clients {
			l := lab.Locker(t, c, &lock.Options{TTL: 500 * time.Millisecond})
			wg.Go(func() {
				rnd := rand.New(rand.NewPCG(uint64(i), 2))
				for range rounds {
					call, weight := acquire(l, rnd)
					err := historyStep(t.Context(), &g, call, weight, rnd, &crashed)
					if err != nil {
						t.Error(err)
						return
					}
					done.Add(1)
				}
			})
		}
		wg.Wait()
		t.Logf("%s: %d held in turn, %d never gave back, at most %d of %d at once", name, done.Load(), crashed.Load(), g.most, limit)
		require.Positive(t, crashed.Load())
	}
	run("semaphore", 4, func(l *lock.Locker, rnd *rand.Rand) (func(context.Context) (*lock.Lease, error), int64) {
		weight := 1 + rnd.IntN(3)
		return func(ctx context.Context) (*lock.Lease, error) { return l.Semaphore("s", 4).Acquire(ctx, weight) }, int64(weight)
	})
	const all = 1000
	run("read-write lock", all, func(l *lock.Locker, rnd *rand.Rand) (func(context.Context) (*lock.Lease, error), int64) {
		if rnd.IntN(4) == 0 {
			return l.RW("rw").Acquire, all
		}
		return l.RW("rw").RAcquire, 1
	})
	last := lab.Locker(t, server.Client(), nil)
	lease, err := last.Semaphore("s", 4).Acquire(t.Context(), 4)
	require.NoError(t, err, "everything came back")
	require.NoError(t, lease.Release(t.Context()))
	lease, err = last.RW("rw").Acquire(t.Context())
	require.NoError(t, err)
	require.NoError(t, lease.Release(t.Context()))
}

// historyStep acquires, holds for a moment and gives back, but for one time in twenty.
func historyStep(ctx context.Context, g *gauge, acquire func(context.Context) (*lock.Lease, error), weight int64, rnd *rand.Rand, crashed *atomic.Int64) error {
	var lease *lock.Lease
	for {
		one, cancel := context.WithTimeout(ctx, time.Duration(50+rnd.IntN(2000))*time.Millisecond)
		got, err := acquire(one)
		cancel()
		if err == nil {
			lease = got
			break
		}
		if ctx.Err() != nil {
			return err // faults and the end of the wait are part of it
		}
	}
	crashes := rnd.IntN(20) == 0
	err := g.inside(lease, weight, func() {
		if crashes {
			crashed.Add(1)
		}
		for end := time.Now().Add(time.Duration(rnd.IntN(3)) * time.Millisecond); crashes && lease.Err() == nil || time.Now().Before(end) && lease.Err() == nil; {
			pauseFor(time.Millisecond)
		}
	})
	if crashes || err != nil {
		return err
	}
	_ = lease.Release(ctx) // under these faults a lease may be over
	return nil
}

// pauseFor lets others run: the time is part of what is tested.
func pauseFor(d time.Duration) { <-time.After(d) }

const semEnvName = "LUATOMIC_TEST_SEMAPHORE"

// TestSemaphoreProcess is what the processes of TestSemaphoreKilledProcesses run: one
// that takes two permits, as soon as it can, and never gives them back.
func TestSemaphoreProcess(t *testing.T) {
	name := os.Getenv(semEnvName)
	if name == "" {
		t.Skip("runs as a process of TestSemaphoreKilledProcesses")
	}
	s := lab.Locker(t, luatomictest.Client(t), &lock.Options{TTL: 5 * time.Second}).Semaphore(name, 2)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	fmt.Println("ready")
	lease, err := s.Acquire(ctx, 2)
	if err != nil {
		require.ErrorIs(t, err, context.Canceled)
		return
	}
	lease.Keep(ctx)
	<-ctx.Done()
}

// Row 19, with real processes: a holder that is killed is out when its lease is over,
// and waiters that were killed keep nobody up meanwhile.
func TestSemaphoreKilledProcesses(t *testing.T) {
	t.Parallel()
	s, _, name, _ := newSemaphore(t, 2, &lock.Options{TTL: time.Minute})
	holder := startSemaphoreProcess(t, name)
	luatomictest.Eventually(t, 30*time.Second, "the process holds it", func() bool {
		info, err := s.Info(t.Context())
		require.NoError(t, err)
		return info.Used == 2
	})
	var waiters []*exec.Cmd
	for i := range 3 {
		waiters = append(waiters, startSemaphoreProcess(t, name))
		waitForPermits(t, s, i+1)
	}
	mine := acquiring(t.Context(), s, 1)
	waitForPermits(t, s, 4)
	for _, cmd := range append(waiters, holder) {
		require.NoError(t, cmd.Process.Kill())
		require.Error(t, cmd.Wait())
	}
	begun := time.Now()
	lease := permit(t, mine)
	t.Log("after the kill:", time.Since(begun))
	// Its last renewal was a third of a lease ago at most: with a waiter it were eight seconds and more.
	require.Less(t, time.Since(begun), 8*time.Second, "one lease of the dead holder, none of the dead waiters")
	require.NoError(t, lease.Release(t.Context()))
}

func startSemaphoreProcess(t *testing.T, name string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, "-test.run=^TestSemaphoreProcess$", "-test.timeout=2m")
	cmd.Env = append(os.Environ(), semEnvName+"="+name, "LUATOMIC_REDIS_URL="+luatomictest.URL(t), "GORACE=atexit_sleep_ms=0")
	_, err = cmd.StdinPipe() // ends with this process
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	for said := bufio.NewScanner(out); said.Scan(); {
		if said.Text() == "ready" {
			return cmd
		}
	}
	require.NoError(t, errors.New("the process did not come up"))
	return nil
}
