package queue_test

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// The memory of a job of 100 B with an id of 10 B, all keys of its queue counted.
func TestBytesOfAJob(t *testing.T) {
	t.Parallel()
	const jobs, size = 32_000, 100
	for _, row := range []struct {
		state string
		most  float64
		job   func(i int) queue.Job
	}{
		{"ready", 220, func(int) queue.Job { return queue.Job{} }},
		{"scheduled", 315, func(int) queue.Job { return queue.Job{Delay: time.Hour} }},
		{"unique", 525, func(i int) queue.Job { return queue.Job{Delay: time.Hour, Unique: fmt.Sprint("order-", i)} }},
	} {
		t.Run(row.state, func(t *testing.T) {
			t.Parallel()
			q, c := lab.NewQueue(t, nil)
			batch := make([]queue.Job, 1000)
			for i := range jobs {
				j := row.job(i)
				j.ID, j.Body = fmt.Sprintf("job-%06d", i), make([]byte, size)
				batch[i%len(batch)] = j
				if i%len(batch) == len(batch)-1 {
					lab.Push(t, q, batch...)
				}
			}
			used := int64(0)
			for _, key := range lab.Must(c.Keys(t.Context(), "{"+q.Name()+"}:*").Result()) {
				used += lab.Must(c.MemoryUsage(t.Context(), key, 0).Result())
			}
			t.Logf("%.0f bytes", float64(used)/jobs)
			require.LessOrEqual(t, float64(used)/jobs, row.most)
			require.Greater(t, float64(used)/jobs, float64(size), "the bodies are counted")
		})
	}
}

// No operation of a queue depends on how many jobs there are, in whatever state: the server's time for each is compared
// between a small queue and a large one on one server. The drill fills the large one with a million jobs of each state.
func TestGrowthOfAQueueCostsNothing(t *testing.T) {
	large, most := 10_000, 4.0 // an operation that walks the jobs takes ten times as long
	if os.Getenv("LUATOMIC_DRILL") != "" {
		large, most = 1_000_000, 2.5 // a ZADD among a million costs 1.5 times as much as among a thousand
	}
	c := luatomictest.StartServer(t).Client()
	var queues []*grown
	for _, n := range []int{1000, large} {
		queues = append(queues, grow(t, c, n))
	}
	for _, op := range growthOps {
		best := []float64{math.Inf(1), math.Inf(1)}
		for range 7 {
			for i, g := range queues {
				begun := serverTime(t, c)
				for range 100 {
					require.NoError(t, op.run(t.Context(), g), op.name)
				}
				best[i] = min(best[i], float64(serverTime(t, c)-begun)/100)
			}
		}
		t.Logf("%-20s %6.1f us with 1000 jobs of each state, %6.1f us with %d", op.name, best[0], best[1], large)
		require.LessOrEqual(t, best[1], best[0]*most, op.name)
	}
}

// grown is a queue with n jobs in each state.
type grown struct {
	*queue.Queue
	n, next int
	held    *queue.Delivery
}

// id names another job of the queue at each call, of those that begin with the prefix.
func (g *grown) id(prefix string) string {
	g.next = (g.next + 7919) % g.n
	return fmt.Sprint(prefix, g.next)
}

func grow(t *testing.T, c *redis.Client, n int) *grown {
	t.Helper()
	ctx := t.Context()
	q, err := queue.New(c, fmt.Sprint("q", n), &queue.Options{Lease: time.Hour, Dead: queue.DeadLimits{Jobs: 2 * n}})
	require.NoError(t, err)
	g := &grown{Queue: q, n: n}
	fill := func(prefix string, delay time.Duration) {
		for from := 0; from < n; from += 1000 {
			batch := make([]queue.Job, 1000)
			for i := range batch {
				batch[i] = queue.Job{ID: fmt.Sprint(prefix, from+i), Body: []byte("body"), Delay: delay}
			}
			lab.Push(t, q, batch...)
		}
	}
	take := func(settle func(context.Context, ...*queue.Delivery) error) {
		for range n / 100 {
			taken, err := q.Take(ctx, 100)
			require.NoError(t, err)
			require.Len(t, taken.Deliveries, 100)
			require.NoError(t, settle(ctx, taken.Deliveries...))
		}
	}
	fill("dead", 0)
	take(func(ctx context.Context, ds ...*queue.Delivery) error { return q.Bury(ctx, "bad", ds...) })
	fill("leased", 0)
	take(func(_ context.Context, ds ...*queue.Delivery) error { g.held = ds[0]; return nil })
	fill("scheduled", time.Hour)
	fill("ready", 0)
	return g
}

// growthOps leave a queue as they found it.
var growthOps = []struct {
	name string
	run  func(context.Context, *grown) error
}{
	{"push, take, ack", func(ctx context.Context, g *grown) error {
		return g.cycle(ctx, func(d *queue.Delivery) error { return g.Ack(ctx, d) })
	}},
	{"push, take, nack", func(ctx context.Context, g *grown) error {
		return g.cycle(ctx, func(d *queue.Delivery) error { return g.Nack(ctx, time.Hour, "later", d) })
	}},
	{"requeue, take, bury", func(ctx context.Context, g *grown) error {
		if _, err := g.Requeue(ctx, g.id("dead")); err != nil {
			return err
		}
		return g.one(ctx, func(d *queue.Delivery) error { return g.Bury(ctx, "bad", d) })
	}},
	{"extend", func(ctx context.Context, g *grown) error { return g.Extend(ctx, time.Hour, g.held) }},
	{"push, cancel", func(ctx context.Context, g *grown) error {
		if _, err := g.Push(ctx, queue.Job{ID: "one", Delay: time.Minute}); err != nil {
			return err
		}
		_, err := g.Cancel(ctx, "one")
		return err
	}},
	{"reschedule", func(ctx context.Context, g *grown) error {
		_, err := g.Reschedule(ctx, g.id("scheduled"), time.Now().Add(2*time.Hour))
		return err
	}},
	{"find", func(ctx context.Context, g *grown) error {
		_, err := g.Find(ctx, g.id("dead"), g.id("scheduled"), g.id("leased"))
		return err
	}},
	{"peek", func(ctx context.Context, g *grown) error {
		_, err := g.Peek(ctx, queue.Dead, g.n/2, 10)
		return err
	}},
	{"stats", func(ctx context.Context, g *grown) error { _, err := g.Stats(ctx); return err }},
	{"promote of nothing", func(ctx context.Context, g *grown) error { _, err := g.Promote(ctx); return err }},
	{"reclaim of nothing", func(ctx context.Context, g *grown) error { _, err := g.Reclaim(ctx); return err }},
	{"trim of nothing", func(ctx context.Context, g *grown) error {
		_, err := g.Trim(ctx, queue.DeadLimits{Jobs: 2 * g.n})
		return err
	}},
}

// cycle pushes a job, takes one, and settles that.
func (g *grown) cycle(ctx context.Context, settle func(*queue.Delivery) error) error {
	if _, err := g.Push(ctx, queue.Job{Body: []byte("body")}); err != nil {
		return err
	}
	return g.one(ctx, settle)
}

func (g *grown) one(ctx context.Context, settle func(*queue.Delivery) error) error {
	taken, err := g.Take(ctx, 1)
	if err != nil {
		return err
	}
	return settle(taken.Deliveries[0])
}

// serverTime is how long the server has worked on scripts, in us.
func serverTime(t *testing.T, c *redis.Client) int64 {
	t.Helper()
	sum := int64(0)
	for line := range strings.Lines(c.Info(t.Context(), "commandstats").Val()) {
		name, values, _ := strings.Cut(strings.TrimSpace(line), ":")
		if !slices.Contains([]string{"cmdstat_evalsha", "cmdstat_evalsha_ro"}, name) {
			continue
		}
		var calls, usec int64
		_, err := fmt.Sscanf(values, "calls=%d,usec=%d", &calls, &usec)
		require.NoError(t, err)
		sum += usec
	}
	require.Positive(t, sum)
	return sum
}
