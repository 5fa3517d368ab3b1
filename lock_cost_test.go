package luatomic_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic"
	"github.com/luatomic/luatomic/luatomictest"
)

// Row 18. A hundred arrive from ten clients within a moment: the order of their
// places in the queue is the order in which they have the lock.
func TestLockOrderOfGrantsIsOrderOfTickets(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	l, name, c := newLocker(t, &luatomic.LockerOptions{TTL: time.Minute})
	holder, err := l.Try(ctx, name)
	require.NoError(t, err)
	const clients, each = 10, 10
	got := make(chan acquired, clients*each)
	for range clients {
		from := locker(t, luatomictest.Client(t), &luatomic.LockerOptions{TTL: time.Minute})
		for range each {
			go func() {
				lease, err := from.Acquire(ctx, name)
				got <- acquired{lease: lease, err: err}
			}()
		}
	}
	waitFor(t, l, name, clients*each)
	var tickets, grants []string
	for _, e := range c.ZRange(ctx, "lockq:{"+name+"}", 0, -1).Val() {
		tickets = append(tickets, strings.Fields(e)[0])
	}
	last := holder
	for range clients * each {
		require.NoError(t, last.Release(ctx))
		next := soon(t, 20*time.Second, "handed over", got)
		require.NoError(t, next.err)
		require.Greater(t, next.lease.Fence(), last.Fence())
		grants = append(grants, next.lease.Token())
		last = next.lease
	}
	require.Equal(t, tickets, grants)
	require.NoError(t, last.Release(ctx))
}

// calls is how often the server has run each command.
func calls(t testing.TB, c *redis.Client) map[string]int {
	t.Helper()
	out := make(map[string]int)
	for _, m := range regexp.MustCompile(`cmdstat_([^:]+):calls=(\d+)`).FindAllStringSubmatch(c.Info(t.Context(), "commandstats").Val(), -1) {
		out[m[1]] = must(strconv.Atoi(m[2]))
	}
	return out
}

// Row 23. What a hand-over costs: one call, however many wait and in however many
// processes; one connection to listen for each process.
func TestHandOverCosts(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server := luatomictest.StartServer(t)
	c := server.Client()
	const processes, pool = 50, 8
	var from []*luatomic.Locker
	for range processes {
		mine := server.Client(func(o *redis.Options) { o.PoolSize, o.PoolTimeout = pool, time.Minute })
		from = append(from, locker(t, mine, &luatomic.LockerOptions{TTL: time.Minute}))
	}
	l := locker(t, c, &luatomic.LockerOptions{TTL: time.Minute})
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
		waitFor(t, l, name, waiters)
		connections := strings.Count(c.ClientList(ctx).Val(), "\n")
		require.LessOrEqual(t, connections, processes*(pool+1)+10, "the pools and one each")
		before := calls(t, c)
		require.NoError(t, holder.Release(ctx))
		wg.Wait()
		after := calls(t, c)
		sent := after["evalsha"] + after["eval"] - before["evalsha"] - before["eval"]
		t.Logf("%d wait in %d processes: %.3f calls for each hand-over", waiters, processes, float64(sent)/float64(waiters+1))
		require.LessOrEqual(t, float64(sent), 1.1*float64(waiters+1))
	}
}

// Row 23. Waiting sends nothing but a sign of life of each process every 3 s.
func TestIdleWaitersSendNothing(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	server := luatomictest.StartServer(t)
	c := server.Client()
	const processes, each = 3, 50
	l := locker(t, c, &luatomic.LockerOptions{TTL: time.Minute})
	_, err := l.Try(ctx, "x")
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range processes {
		from := locker(t, server.Client(), nil)
		for range each {
			wg.Go(func() { _, _ = from.Acquire(ctx, "x") })
		}
	}
	waitFor(t, l, "x", processes*each)
	window := 4 * time.Second
	if os.Getenv("LUATOMIC_DRILL") != "" {
		window = 30 * time.Second
	}
	before := calls(t, c)
	start := time.Now()
	for time.Since(start) < window {
		pause := time.NewTimer(window - time.Since(start))
		<-pause.C
	}
	after := calls(t, c)
	// One look of each process in half a minute keeps the queue from expiring.
	looks := processes * int(time.Since(start)/(29*time.Second))
	for command, n := range after {
		switch command {
		case "info":
		case "ping":
			require.LessOrEqual(t, n-before[command], processes*int(time.Since(start)/(3*time.Second)+1), "signs of life")
		default:
			require.LessOrEqual(t, n-before[command], looks, command)
		}
	}
	cancel()
	wg.Wait()
}
