package lock_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	lockscript "github.com/luatomic/luatomic/gen/lock"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/luatomictest"
)

// Row 18. A hundred arrive from ten clients within a moment: the order of their
// places in the queue is the order in which they have the lock.
func TestLockOrderOfGrantsIsOrderOfTickets(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	l, name, c := lab.NewLocker(t, &lock.Options{TTL: time.Minute})
	holder, err := l.Try(ctx, name)
	require.NoError(t, err)
	const clients, each = 10, 10
	got := make(chan lab.Acquired, clients*each)
	for range clients {
		from := lab.Locker(t, luatomictest.Client(t), &lock.Options{TTL: time.Minute})
		for range each {
			go func() {
				lease, err := from.Acquire(ctx, name)
				got <- lab.Acquired{Lease: lease, Err: err}
			}()
		}
	}
	lab.WaitFor(t, l, name, clients*each)
	var tickets, grants []string
	for _, e := range c.LRange(ctx, "lockq:{"+name+"}", 0, -1).Val() {
		tickets = append(tickets, strings.Fields(e)[1])
	}
	last := holder
	for range clients * each {
		require.NoError(t, last.Release(ctx))
		next := lab.Soon(t, 20*time.Second, "handed over", got)
		require.NoError(t, next.Err)
		require.Greater(t, next.Lease.Fence(), last.Fence())
		grants = append(grants, next.Lease.Token())
		last = next.Lease
	}
	require.Equal(t, tickets, grants)
	require.NoError(t, last.Release(ctx))
}

// Row 23. What a hand-over costs: one call, however many wait and in however many
// processes; one connection to listen for each process.
func TestHandOverCosts(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server := luatomictest.StartServer(t)
	c := server.Client()
	const processes, pool = 50, 8
	var from []*lock.Locker
	var extended atomic.Int64
	count := lab.Before(func(cmds ...redis.Cmder) {
		for _, cmd := range cmds {
			if lab.OfScript(cmd, lab.Digest(&lockscript.ExtendScript)) {
				extended.Add(1)
			}
		}
	})
	for range processes {
		mine := server.Client(func(o *redis.Options) {
			o.PoolSize, o.PoolTimeout = pool, time.Minute
			o.PipelinePoolSize = -1 // PoolSize bounds the connections of pipelines, too
		})
		mine.AddHook(count)
		from = append(from, lab.Locker(t, mine, &lock.Options{TTL: time.Minute}))
	}
	l := lab.Locker(t, c, &lock.Options{TTL: time.Minute})
	for range 2 { // loads the scripts
		lease, err := l.Try(ctx, "warm")
		require.NoError(t, err)
		require.NoError(t, lease.Release(ctx))
	}
	for _, of := range []struct{ processes, waiters int }{{5, 1}, {5, 10}, {5, 100}, {5, 1000}, {50, 1000}} {
		processes, waiters := of.processes, of.waiters
		name := fmt.Sprint("w", processes, "-", waiters)
		holder, err := l.Try(ctx, name)
		require.NoError(t, err)
		var wg sync.WaitGroup
		for i := range waiters {
			wg.Go(func() {
				lease, err := from[i%processes].Acquire(ctx, name)
				if err == nil {
					err = lease.Release(ctx)
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		lab.WaitFor(t, l, name, waiters)
		connections := strings.Count(c.ClientList(ctx).Val(), "\n")
		require.LessOrEqual(t, connections, processes*(pool+1)+10, "the pools and one each")
		before, extensions := lab.Calls(t, c), extended.Load()
		require.NoError(t, holder.Release(ctx))
		wg.Wait()
		after := lab.Calls(t, c)
		sent := after["evalsha"] + after["eval"] - before["evalsha"] - before["eval"]
		// A lease is extended in the background unless its release comes first, which on a busy machine it does not.
		sent -= int(extended.Load() - extensions)
		t.Logf("%d wait in %d processes: %.3f calls for each hand-over", waiters, processes,
			float64(sent)/float64(waiters+1))
		require.LessOrEqual(t, float64(sent), 1.1*float64(waiters+1))
	}
}

// Row 23. Waiting sends nothing but two signs of life of each process every 2 s: a PING on the connection for messages,
// and the question whether the server of the commands has it.
func TestIdleWaitersSendNothing(t *testing.T) {
	t.Parallel()
	lab.Unmarked(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	server := luatomictest.StartServer(t)
	c := server.Client()
	const processes, each = 3, 50
	l := lab.Locker(t, c, &lock.Options{TTL: time.Minute})
	_, err := l.Try(ctx, "x")
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range processes {
		from := lab.Locker(t, server.Client(), nil)
		for range each {
			wg.Go(func() { _, _ = from.Acquire(ctx, "x") })
		}
	}
	lab.WaitFor(t, l, "x", processes*each)
	window := 4 * time.Second
	if os.Getenv("LUATOMIC_DRILL") != "" {
		window = 30 * time.Second
	}
	before := lab.Calls(t, c)
	start := time.Now()
	for time.Since(start) < window {
		pause := time.NewTimer(window - time.Since(start))
		<-pause.C
	}
	after := lab.Calls(t, c)
	// One attempt of each process in half a minute keeps the queue from expiring.
	looks := processes * int(time.Since(start)/(29*time.Second))
	for command, n := range after {
		switch command {
		case "info":
		case "ping", "pubsub|numsub":
			require.LessOrEqual(t, n-before[command], processes*int(time.Since(start)/(2*time.Second)+1),
				"signs of life")
		default:
			require.LessOrEqual(t, n-before[command], looks, command)
		}
	}
	cancel()
	wg.Wait()
}
