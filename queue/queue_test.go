package queue_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
	"github.com/luatomic/luatomic/rpc"
)

func TestPushTakeAck(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	pushed, err := q.Push(ctx, queue.Job{ID: "a", Body: []byte("A")}, queue.Job{Body: []byte("B")})
	require.NoError(t, err)
	require.Equal(t, 2, pushed.Ready)
	require.Equal(t, "a", pushed.IDs[0])
	require.Len(t, pushed.IDs[1], 36, "a new id is a UUID")

	taken, err := q.Take(ctx, 10)
	require.NoError(t, err)
	require.Len(t, taken.Deliveries, 2)
	first := taken.Deliveries[0]
	require.Equal(t, "a", first.ID)
	require.Equal(t, []byte("A"), first.Body)
	require.Equal(t, 1, first.Attempt)
	require.Equal(t, pushed.Now, first.EnqueuedAt, "one stamp for the batch, from the server")
	require.Equal(t, 30*time.Second, first.Deadline().Sub(taken.Now))

	require.NoError(t, q.Ack(ctx, taken.Deliveries...))
	left, err := c.Keys(ctx, lab.Key(q, "[^i]*")).Result()
	require.NoError(t, err)
	require.Empty(t, left, "a finished job leaves nothing behind")
}

func TestBadNames(t *testing.T) {
	t.Parallel()
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1})
	defer c.Close()
	for name, rule := range map[string]string{
		"": "is empty", "a{b": "holds a brace", "}": "holds a brace", "a\x00b": "control character",
		strings.Repeat("n", 129): "has 129 bytes, at most 128",
	} {
		_, err := queue.New(c, name, nil)
		require.ErrorIs(t, err, lua.ErrBadName)
		require.ErrorContains(t, err, rule)
		_, err = lock.New(c, nil).Try(t.Context(), name)
		require.ErrorIs(t, err, lua.ErrBadName)
		_, err = rpc.NewBus(c, name, nil)
		require.ErrorIs(t, err, lua.ErrBadName)
	}
	_, err := queue.New(c, "ok", &queue.Options{Prefix: "a{"})
	require.ErrorIs(t, err, lua.ErrBadName)
}

// No script may change a byte of a payload.
func TestBodiesKeepTheirBytes(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, _ := lab.NewQueue(t, nil)
	want := [][]byte{
		[]byte(`{"a":[],"b":{},"n":9223372036854775807,"f":1e300,"z":-0.0,"enqueued_at":1}`),
		{}, {0}, []byte("a\x00b\r\n:\xff\xfe"), []byte("\u2028"), bytes.Repeat([]byte{0x80}, 100_000),
	}
	var jobs []queue.Job
	for i, b := range want {
		jobs = append(jobs, queue.Job{ID: fmt.Sprintf("%d:%d", i, i), Body: b})
	}
	_, err := q.Push(ctx, jobs...)
	require.NoError(t, err)
	taken, err := q.Take(ctx, 100)
	require.NoError(t, err)
	require.Len(t, taken.Deliveries, len(want))
	for i, d := range taken.Deliveries {
		require.Equal(t, jobs[i].ID, d.ID)
		require.True(t, bytes.Equal(want[i], d.Body), "body %d", i)
	}
}

func TestTakeStopsBeforeTooManyBytes(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, _ := lab.NewQueue(t, nil)
	big := make([]byte, 600_000)
	for range 3 {
		_, err := q.Push(ctx, queue.Job{Body: big})
		require.NoError(t, err)
	}
	for range 3 {
		taken, err := q.Take(ctx, 10)
		require.NoError(t, err)
		require.Len(t, taken.Deliveries, 1)
	}
}

// A cancelled job leaves its entry behind. It is dropped and the next job comes
// in the same call.
func TestTakeDropsEntriesWithoutABody(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	pushed, err := q.Push(ctx, lab.Bodies(5)...)
	require.NoError(t, err)
	require.NoError(t, c.HDel(ctx, lab.Key(q, "b"), pushed.IDs[0], pushed.IDs[1]).Err())
	taken, err := q.Take(ctx, 2)
	require.NoError(t, err)
	require.Equal(t, 2, taken.Dropped)
	require.Len(t, taken.Deliveries, 2)
	require.Equal(t, pushed.IDs[2], taken.Deliveries[0].ID)
	require.Equal(t, int64(2), c.ZCard(ctx, lab.Key(q, "l")).Val(), "no lease for what is gone")
}

// F8 and F9: the guard is the fence in ack, nack and extend.
func TestAStaleWorkerCannotTouchTheJob(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, &queue.Options{Lease: 20 * time.Millisecond})
	_, err := q.Push(ctx, queue.Job{ID: "j"})
	require.NoError(t, err)
	stale := lab.TakeOne(t, q)
	luatomictest.Eventually(t, 5*time.Second, "the lease ends", func() bool {
		r, err := q.Reclaim(ctx)
		require.NoError(t, err)
		return r.Returned == 1
	})

	// Ready again, not leased.
	require.ErrorIs(t, stale.Ack(ctx), queue.ErrLeaseLost)
	long, err := queue.New(c, q.Name(), nil)
	require.NoError(t, err)
	fresh := lab.TakeOne(t, long)
	require.Equal(t, 2, fresh.Attempt, "a lost lease counts as a failure")

	before := lab.Dump(ctx, t, c, q.Name())
	require.ErrorIs(t, stale.Ack(ctx), queue.ErrLeaseLost)
	require.ErrorIs(t, stale.Nack(ctx, 0, ""), queue.ErrLeaseLost)
	require.ErrorIs(t, stale.Bury(ctx, ""), queue.ErrLeaseLost)
	require.ErrorIs(t, stale.Extend(ctx, time.Hour), queue.ErrLeaseLost)
	require.Equal(t, before, lab.Dump(ctx, t, c, q.Name()), "nothing changed")

	require.NoError(t, fresh.Ack(ctx))
	require.NoError(t, stale.Ack(ctx), "a job that is gone counts as finished")
	require.ErrorIs(t, stale.Nack(ctx, 0, ""), queue.ErrLeaseLost)
	require.ErrorIs(t, stale.Extend(ctx, time.Hour), queue.ErrLeaseLost)
	stats, err := q.Stats(ctx)
	require.NoError(t, err)
	require.Zero(t, stats.Ready+stats.Scheduled+stats.Leased+stats.Dead, "a finished job does not come back")
}

func TestAckNamesTheLostDeliveries(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	_, err := q.Push(ctx, lab.Bodies(3)...)
	require.NoError(t, err)
	taken, err := q.Take(ctx, 3)
	require.NoError(t, err)
	ds := taken.Deliveries
	require.NoError(t, c.ZIncrBy(ctx, lab.Key(q, "l"), 1, ds[1].ID).Err())
	err = q.Ack(ctx, ds...)
	var gone *queue.LeaseLostError
	require.ErrorAs(t, err, &gone)
	require.Equal(t, []string{ds[1].ID}, gone.IDs)
	stats, err := q.Stats(ctx)
	require.NoError(t, err)
	require.Equal(t, 1, stats.Leased, "the others are finished")
}

func TestExtendMovesTheDeadline(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, _ := lab.NewQueue(t, &queue.Options{Lease: time.Second})
	_, err := q.Push(ctx, lab.Bodies(1)...)
	require.NoError(t, err)
	d := lab.TakeOne(t, q)
	before := d.Deadline()
	require.NoError(t, d.Extend(ctx, time.Hour))
	require.Greater(t, d.Deadline().Sub(before), 50*time.Minute)
	require.NoError(t, d.Ack(ctx), "the new fence is the delivery's")
}

func TestNackDelaysAndCountsAndBuryKeeps(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	_, err := q.Push(ctx, queue.Job{ID: "j", Body: []byte("B")})
	require.NoError(t, err)
	require.NoError(t, lab.TakeOne(t, q).Nack(ctx, 0, "first"))
	d := lab.TakeOne(t, q)
	require.Equal(t, 2, d.Attempt)
	require.NoError(t, d.Nack(ctx, time.Hour, "second"))
	stats, err := q.Stats(ctx)
	require.NoError(t, err)
	require.Equal(t, 1, stats.Scheduled)
	require.Greater(t, stats.NextDue.Or(time.Time{}).Sub(stats.Now), 59*time.Minute)

	require.NoError(t, c.ZAdd(ctx, lab.Key(q, "s"), redis.Z{Score: 1, Member: "j"}).Err())
	d = lab.TakeOne(t, q)
	require.Equal(t, 3, d.Attempt)
	require.NoError(t, d.Bury(ctx, "third"))
	stats, err = q.Stats(ctx)
	require.NoError(t, err)
	require.Equal(t, 1, stats.Dead)
	require.Equal(t, "B", c.HGet(ctx, lab.Key(q, "b"), "j").Val(), "the body stays with a dead job")
}

func TestReclaimBuriesWhatFailedTooOften(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, _ := lab.NewQueue(t, &queue.Options{Lease: time.Millisecond, MaxFailures: 2})
	_, err := q.Push(ctx, queue.Job{ID: "poison"})
	require.NoError(t, err)
	reclaim := func() (r queue.Reclaimed) {
		lab.TakeOne(t, q)
		luatomictest.Eventually(t, 5*time.Second, "the lease ends", func() bool {
			var err error
			r, err = q.Reclaim(ctx)
			require.NoError(t, err)
			return r.Returned+r.Buried > 0
		})
		return r
	}
	require.Equal(t, 1, reclaim().Returned)
	require.Equal(t, 1, reclaim().Buried)
	stats, err := q.Stats(ctx)
	require.NoError(t, err)
	require.Equal(t, 1, stats.Dead)
}

// A server over its memory limit refuses producers whole and lets consumers drain:
// the guard is the first write of take, nack and reclaim.
func TestMemoryLimitRefusesProducersAndLetsConsumersDrain(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := luatomictest.StartServer(t).Client()
	q, err := queue.New(c, "q", &queue.Options{Lease: 50 * time.Millisecond})
	require.NoError(t, err)
	_, err = q.Push(ctx, lab.Bodies(10)...)
	require.NoError(t, err)
	_, err = q.Push(ctx, queue.Job{ID: "due", Delay: time.Millisecond})
	require.NoError(t, err)
	require.NoError(t, c.ConfigSet(ctx, "maxmemory", "1mb").Err())
	require.NoError(t, c.ConfigSet(ctx, "maxmemory-policy", "noeviction").Err())

	before := lab.Dump(ctx, t, c, "q")
	_, err = q.Push(ctx, lab.Bodies(1)...)
	require.ErrorIs(t, err, lua.ErrNotExecuted)
	require.ErrorContains(t, err, "OOM")
	require.Equal(t, before, lab.Dump(ctx, t, c, "q"))

	luatomictest.Eventually(t, 20*time.Second, "the job is due", func() bool {
		p, err := q.Promote(ctx)
		require.NoError(t, err)
		return p.Moved == 1
	})
	taken, err := q.Take(ctx, 3)
	require.NoError(t, err)
	require.Len(t, taken.Deliveries, 3)
	require.NoError(t, taken.Deliveries[0].Ack(ctx))
	require.NoError(t, taken.Deliveries[1].Nack(ctx, time.Minute, ""))
	require.NoError(t, taken.Deliveries[2].Extend(ctx, 60*time.Millisecond))
	luatomictest.Eventually(t, 5*time.Second, "the lease ends", func() bool {
		r, err := q.Reclaim(ctx)
		require.NoError(t, err)
		return r.Returned == 1
	})
	left, err := q.Take(ctx, 100)
	require.NoError(t, err)
	require.Len(t, left.Deliveries, 9)
	require.NoError(t, q.Ack(ctx, left.Deliveries...))
}

// No server: the error names the address and what kind of failure it is.
func TestNoServer(t *testing.T) {
	t.Parallel()
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1})
	defer c.Close()
	q, err := queue.New(c, "q", nil)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err = q.Push(ctx, lab.Bodies(1)...)
	require.ErrorIs(t, err, lua.ErrNotExecuted)
	require.ErrorContains(t, err, "127.0.0.1:1")
	require.True(t, errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "refused"))
}

// A lease whose job is gone is dropped, not made a job without a body.
func TestReclaimDropsLeasesWithoutAJob(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	require.NoError(t, c.ZAdd(ctx, lab.Key(q, "l"), redis.Z{Score: lab.Past, Member: "ghost"}).Err())
	r, err := q.Reclaim(ctx)
	require.NoError(t, err)
	require.Zero(t, r.Returned+r.Buried)
	require.Empty(t, lab.Dump(ctx, t, c, q.Name()))
}
