package queue_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/internal/testkit/scriptcase"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// A cancel of a running job ends its context at the next renewal. The job is not tried again, its event says so, and
// its name is free.
func TestCancelReachesARunningJob(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var seen observed
	q, c := lab.NewQueue(t, &queue.Options{Lease: 9 * time.Second, Observe: seen.add})
	lab.Push(t, q, queue.Job{ID: "j", Unique: "u", Headers: map[string]string{"a": "b"}})
	began, cause, end := make(chan struct{}), make(chan error, 1), make(chan struct{})
	reported := make(chan error, 10)
	done := make(chan queue.Consumed)
	go func() {
		out, _ := q.Consume(ctx, &queue.ConsumeOptions{OnError: func(err error) { reported <- err }},
			func(ctx context.Context, d *queue.Delivery) error {
				close(began)
				<-ctx.Done()
				cause <- context.Cause(ctx)
				<-end
				return errors.New("interrupted")
			})
		done <- out
	}()
	lab.Soon(t, 20*time.Second, "the handler", began)
	states, err := q.Cancel(ctx, "j")
	require.NoError(t, err)
	require.Equal(t, []queue.State{queue.Leased}, states)
	require.ErrorIs(t, lab.Soon(t, 20*time.Second, "the end of the context", cause), queue.ErrCancelled)
	require.Len(t, lab.Push(t, q, queue.Job{ID: "k", Unique: "u"}).Duplicates, 1,
		"the name is held while the handler runs")
	close(end)
	var failed *queue.JobError
	require.ErrorAs(t, lab.Soon(t, 20*time.Second, "the error", reported), &failed)
	require.Equal(t, queue.OutcomeCancelled, failed.Outcome)
	luatomictest.Eventually(t, 20*time.Second, "the job is deleted", func() bool {
		return c.Exists(ctx, lab.Key(q, "b"), lab.Key(q, "l"), lab.Key(q, "n"), lab.Key(q, "u"), lab.Key(q, "ux"),
			lab.Key(q, "o"), lab.Key(q, "s"), lab.Key(q, "r"), lab.Key(q, "d")).Val() == 0
	})
	stop()
	out := lab.Soon(t, 20*time.Second, "the end", done)
	require.Equal(t, queue.Consumed{Cancelled: 1}, out)
	require.Equal(t, []queue.Outcome{queue.OutcomeCancelled}, seen.outcomes("j"))
}

// A Cancel notifies the consumer that has the job, so that it need not wait for its next renewal.
func TestCancelReachesARunningJobAtOnce(t *testing.T) {
	lab.Long(t)
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	c := luatomictest.Client(t)
	qs := several(t, c, 2, queue.Options{Lease: time.Hour})
	lab.Push(t, qs[0], queue.Job{ID: "j"})
	lab.Push(t, qs[1], queue.Job{ID: "j"})
	began, cause, done := make(chan struct{}, 2), make(chan error, 2), make(chan error, 1)
	go func() {
		_, err := queue.ConsumeAll(ctx, nil, func(ctx context.Context, d *queue.Delivery) error {
			began <- struct{}{}
			<-ctx.Done()
			if d.Queue() == qs[1] {
				cause <- context.Cause(ctx)
			}
			return nil
		}, queue.Source{Queue: qs[0]}, queue.Source{Queue: qs[1]})
		done <- err
	}()
	lab.Soon(t, 20*time.Second, "a handler", began)
	lab.Soon(t, 20*time.Second, "the other handler", began)
	channel := keyOf(qs[1], "l")
	luatomictest.Eventually(t, 20*time.Second, "the consumer subscribes", func() bool {
		return c.PubSubNumSub(ctx, channel).Val()[channel] == 1
	})
	_, err := qs[1].Cancel(ctx, "j")
	require.NoError(t, err)
	require.ErrorIs(t, lab.Soon(t, 20*time.Second, "the end of the context", cause), queue.ErrCancelled)
	_, err = qs[0].Cancel(ctx, "j")
	require.NoError(t, err)
	stop()
	require.ErrorIs(t, lab.Soon(t, 20*time.Second, "the end", done), context.Canceled)
}

// A cancelled job that was deleted at the end of its lease, while its handler went on, is counted as its event says.
func TestCancelledJobWithoutItsLeaseIsCounted(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var seen observed
	q, c := lab.NewQueue(t, &queue.Options{Lease: time.Hour, Observe: seen.add})
	lab.Push(t, q, queue.Job{ID: "j"})
	out, err := q.Consume(ctx, nil, func(_ context.Context, d *queue.Delivery) error {
		defer stop()
		_, err := q.Cancel(ctx, d.ID)
		require.NoError(t, err)
		require.ErrorIs(t, d.Extend(ctx, time.Hour), queue.ErrCancelled)
		require.NoError(t, c.ZAdd(ctx, lab.Key(q, "l"), redis.Z{Score: lab.Past, Member: d.ID}).Err())
		_ = lab.Must(q.Reclaim(ctx)) // or the consumer does
		require.False(t, c.HExists(ctx, lab.Key(q, "b"), d.ID).Val())
		return errors.New("too late")
	})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, []queue.Outcome{queue.OutcomeCancelled}, seen.outcomes("j"))
	require.Equal(t, queue.Consumed{Cancelled: 1}, out)
}

// A cancelled job of a worker that died is deleted when its lease ends, and a take whose reply was lost does not return
// it.
func TestCancelledJobOfADeadWorkerIsDeleted(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	lab.Push(t, q, queue.Job{ID: "j", Unique: "u", Kind: "k"}, queue.Job{ID: "other"})
	taken, err := q.Take(ctx, 2)
	require.NoError(t, err)
	require.Len(t, taken.Deliveries, 2)
	_, err = q.Cancel(ctx, "j")
	require.NoError(t, err)
	found, err := q.Find(ctx, "j")
	require.NoError(t, err)
	require.Equal(t, queue.Leased, found[0].State)
	for _, id := range []string{"j", "other"} {
		require.NoError(t, c.ZAdd(ctx, lab.Key(q, "l"), redis.Z{Score: lab.Past, Member: id}).Err())
	}
	r, err := q.Reclaim(ctx)
	require.NoError(t, err)
	require.Equal(t, []int{1, 0, 1}, []int{r.Returned, r.Buried, r.Cancelled})
	require.Equal(t, "other", lab.TakeOne(t, q).ID)
	require.NoError(t, takeNone(t, q))
	require.Zero(t, c.Exists(ctx, lab.Key(q, "u"), lab.Key(q, "ux"), lab.Key(q, "o")).Val())
	require.Equal(t, int64(1), c.HLen(ctx, lab.Key(q, "b")).Val())
}

// The repeat of a take whose reply was lost leaves out what was cancelled meanwhile.
func TestCancelBeforeTheRepeatOfATake(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	lab.Push(t, q, queue.Job{ID: "a", Unique: "u"}, queue.Job{ID: "b"})
	k := func(s string) string { return lab.Key(q, s) }
	p := queuescript.TakeParams{Queues: []queuescript.TakeQueue{scriptcase.TakeQueue("{"+q.Name()+"}", "me")}, Max: 10,
		Bytes: 1000, Token: 1, Since: 1}
	r, err := queuescript.Take(ctx, c, p)
	require.NoError(t, err)
	require.Len(t, r.Jobs, 2)
	_, err = q.Cancel(ctx, "a")
	require.NoError(t, err)
	p.Since, p.Token = 1, 2
	r, err = queuescript.Take(ctx, c, p)
	require.NoError(t, err)
	require.Len(t, r.Jobs, 1)
	require.Equal(t, "b", r.Jobs[0].ID)
	require.Equal(t, "x", c.HGet(ctx, k("n"), "a").Val(), "the end of its lease deletes it")
}

// However a worker ends the lease of a cancelled job, the job is over. An ack says that the work was done.
func TestEndingTheLeaseOfACancelledJobDeletesIt(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for name, end := range map[string]func(d *queue.Delivery) error{
		"ack":    func(d *queue.Delivery) error { return d.Ack(ctx) },
		"nack":   func(d *queue.Delivery) error { return d.Nack(ctx, time.Hour, "why") },
		"return": func(d *queue.Delivery) error { return d.Return(ctx, 0) },
		"bury":   func(d *queue.Delivery) error { return d.Bury(ctx, "why") },
	} {
		q, c := lab.NewQueue(t, nil)
		lab.Push(t, q, queue.Job{ID: "j", Unique: "u", Kind: "k"})
		d := lab.TakeOne(t, q)
		_, err := q.Cancel(ctx, "j")
		require.NoError(t, err)
		err = d.Extend(ctx, time.Minute)
		require.ErrorIs(t, err, queue.ErrCancelled, name)
		require.NotErrorIs(t, err, queue.ErrLeaseLost, name)
		require.NoError(t, end(d), name)
		for key := range lab.Dump(ctx, t, c, q.Name()) {
			require.Positive(t, c.PTTL(ctx, key).Val(), "%s: %s", name, key)
		}
	}
}

// A cancel whose reply is lost repeats itself and answers the same.
func TestCancelRepeatsWithTheSameAnswer(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, _ := lab.NewQueue(t, nil)
	lab.Push(t, q, queue.Job{ID: "leased"}, queue.Job{ID: "dead"})
	lab.TakeOne(t, q)
	require.NoError(t, lab.TakeOne(t, q).Bury(ctx, "no"))
	lab.Push(t, q, queue.Job{ID: "ready"}, queue.Job{ID: "scheduled", Delay: time.Hour})
	_, err := q.Cancel(ctx, "none") // the server has the script now
	require.NoError(t, err)
	proxy := luatomictest.NewLossyProxy(t, luatomictest.URL(t))
	opts, err := redis.ParseURL(proxy.URL())
	require.NoError(t, err)
	c := redis.NewClient(opts)
	defer c.Close()
	lossy, err := queue.New(c, q.Name(), nil)
	require.NoError(t, err)
	sent := lab.Sent(&queuescript.CancelScript)
	proxy.Drop(2, sent)
	states, err := lossy.Cancel(ctx, "scheduled", "ready", "leased", "dead", "absent")
	require.NoError(t, err)
	require.Equal(t, 3, proxy.Executed(sent))
	require.Equal(t, []queue.State{queue.Scheduled, queue.Ready, queue.Leased, queue.Dead, queue.Absent}, states)
}

// Cancel and ack at the same moment: the job is gone, once, and nothing of it stays.
func TestCancelAgainstAck(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	for i := range 100 {
		id := fmt.Sprint("j", i)
		lab.Push(t, q, queue.Job{ID: id, Unique: "u"})
		d := lab.TakeOne(t, q)
		var at sync.WaitGroup
		var states []queue.State
		var cancelled, acked error
		at.Go(func() { states, cancelled = q.Cancel(ctx, id) })
		at.Go(func() { acked = d.Ack(ctx) })
		at.Wait()
		require.NoError(t, cancelled)
		require.NoError(t, acked)
		require.Contains(t, []queue.State{queue.Leased, queue.Absent}, states[0])
		require.Zero(t, c.Exists(ctx, lab.Key(q, "b"), lab.Key(q, "l"), lab.Key(q, "n"), lab.Key(q, "u"),
			lab.Key(q, "ux"), lab.Key(q, "r")).Val())
	}
}
