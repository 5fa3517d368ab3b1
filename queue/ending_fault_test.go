package queue_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// unanswered loses the replies of the script until the flag is false.
func unanswered(t *testing.T, p *luatomictest.LossyProxy, script *lua.Script) *atomic.Bool {
	t.Helper()
	require.NoError(t, lua.Preload(t.Context(), luatomictest.Client(t), script))
	var losing atomic.Bool
	losing.Store(true)
	of := lab.Sent(script)
	p.Drop(1<<30, func(args []string) bool { return of(args) && losing.Load() })
	return &losing
}

// untilRun returns a context that ends when the server has run the script once more through the proxy. On a busy
// machine no time is long enough for that, and a call that did not arrive is another one than a call without a reply.
func untilRun(ctx context.Context, t *testing.T, p *luatomictest.LossyProxy, script *lua.Script) context.Context {
	t.Helper()
	sent := lab.Sent(script)
	before := p.Executed(sent)
	ctx, cancel := context.WithCancel(ctx)
	t.Cleanup(lab.Every(5*time.Millisecond, func() {
		if p.Executed(sent) > before {
			cancel()
		}
	}))
	return ctx
}

// A consumer gives a job back, and no attempt of its call has a reply. The next call learns what the first one did: the
// job is returned, or dead, and its lease is not taken for lost.
func TestConsumerLearnsWhatItsUnansweredCallDid(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]queue.Consumed{"retried": {Retried: 1}, "dead": {Dead: 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q, _ := lab.NewQueue(t, nil)
			var seen observed
			far, p := lossy(t, q, &queue.Options{Observe: seen.add})
			losing := unanswered(t, p, &queuescript.NackScript)
			lab.Push(t, q, queue.Job{ID: "x"})
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			var mu sync.Mutex
			var reported []error
			out, err := far.Consume(ctx, &queue.ConsumeOptions{
				Backoff: func(int) time.Duration { return time.Hour },
				OnError: func(err error) {
					mu.Lock()
					defer mu.Unlock()
					reported = append(reported, err)
					if errors.Is(err, lua.ErrOutcomeUnknown) {
						losing.Store(false)
					}
					var failed *queue.JobError
					if !losing.Load() && errors.As(err, &failed) {
						stop()
					}
				},
			}, func(context.Context, *queue.Delivery) error {
				time.AfterFunc(20*time.Second, stop) // a call that is never given up, or a report that never comes
				if name == "dead" {
					return queue.Discard(errors.New("no"))
				}
				return errors.New("no")
			})
			require.ErrorIs(t, err, context.Canceled)
			require.Equal(t, want, out)
			require.Equal(t, []queue.Outcome{queue.Outcome(name)}, seen.outcomes("x"))
			for _, err := range reported {
				require.NotErrorIs(t, err, queue.ErrLeaseLost)
			}
			days, err := q.Counts(t.Context(), 2) // midnight may be now
			require.NoError(t, err)
			require.Equal(t, 1, days[0].Failed+days[1].Failed)
		})
	}
}

// Two calls end the lease of one delivery at the same moment. The second one, which began with other deliveries, finds
// the first on its way and repeats it: it has its verdict, and no lease is lost.
func TestCallThatEndsALeaseFindsTheOneOnItsWay(t *testing.T) {
	t.Parallel()
	q, c := lab.NewQueue(t, nil)
	require.NoError(t, lua.Preload(t.Context(), c, &queuescript.NackScript))
	lab.Push(t, q, queue.Job{ID: "x"}, queue.Job{ID: "y"})
	x, y := lab.TakeOne(t, q), lab.TakeOne(t, q)
	var tries atomic.Int32
	ran := []chan bool{make(chan bool), make(chan bool), make(chan bool)}
	released, on := make(chan bool), make(chan bool)
	t.Cleanup(sync.OnceFunc(func() { close(released) }))
	c.AddHook(&lab.Around{Sha: lab.Digest(&queuescript.NackScript), Do: func(run func() error) error {
		err := run()
		i := int(tries.Add(1)) - 1
		if i < len(ran) {
			close(ran[i])
		}
		switch i {
		case 0, 2: // the replies of the first call for each delivery come late
			<-released
		case 1:
			<-on
		}
		return err
	}})
	both := make(chan error, 1)
	go func() { _ = x.Nack(context.Background(), time.Hour, "why") }()
	lab.Soon(t, 20*time.Second, "the first call for x", ran[0])
	go func() { both <- q.Nack(context.Background(), time.Hour, "why", x, y) }()
	lab.Soon(t, 20*time.Second, "its repeat", ran[1])
	go func() { _ = y.Nack(context.Background(), time.Hour, "why") }()
	lab.Soon(t, 20*time.Second, "the first call for y", ran[2])
	close(on)
	require.NoError(t, lab.Soon(t, 20*time.Second, "the call for both", both))
}

// A call that ends a lease and has no reply decides: the next call on the delivery learns its verdict first.
func TestCallAfterAnUnansweredOneLearnsItsVerdict(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]struct {
		call func(context.Context, *queue.Delivery) error
		lost bool
	}{
		"the same": {call: func(ctx context.Context, d *queue.Delivery) error { return d.Nack(ctx, time.Hour, "why") }},
		"an ack":   {call: func(ctx context.Context, d *queue.Delivery) error { return d.Ack(ctx) }, lost: true},
		"a bury": {call: func(ctx context.Context, d *queue.Delivery) error {
			return d.Bury(ctx, "why")
		}, lost: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q, _ := lab.NewQueue(t, nil)
			far, p := lossy(t, q, nil)
			losing := unanswered(t, p, &queuescript.NackScript)
			lab.Push(t, q, queue.Job{ID: "x"})
			d := lab.TakeOne(t, far)
			short := untilRun(t.Context(), t, p, &queuescript.NackScript)
			require.ErrorIs(t, d.Nack(short, time.Hour, "why"), lua.ErrOutcomeUnknown)
			losing.Store(false)
			err := next.call(t.Context(), d)
			require.Equal(t, next.lost, errors.Is(err, queue.ErrLeaseLost), err)
			require.Equal(t, !next.lost, err == nil, err)
			require.ErrorIs(t, d.Nack(t.Context(), time.Hour, "why"), queue.ErrLeaseLost, "it is not the worker's")
			found, err := q.Find(t.Context(), "x")
			require.NoError(t, err)
			require.Equal(t, queue.Scheduled, found[0].State)
			require.Equal(t, 1, found[0].Failures)
		})
	}
}

// A handler settles its job, has no reply, and returns that error. The consumer learns what the handler's call did.
func TestConsumerLearnsWhatItsHandlersCallDid(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script *lua.Script
		settle func(context.Context, *queue.Delivery) error
		want   queue.Consumed
	}{
		"retried": {&queuescript.NackScript, func(ctx context.Context, d *queue.Delivery) error {
			return d.Nack(ctx, time.Hour, "smtp down")
		}, queue.Consumed{Retried: 1}},
		"acked": {&queuescript.AckScript, func(ctx context.Context, d *queue.Delivery) error {
			return d.Ack(ctx)
		}, queue.Consumed{Acked: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q, _ := lab.NewQueue(t, nil)
			var seen observed
			far, p := lossy(t, q, &queue.Options{Observe: seen.add})
			losing := unanswered(t, p, c.script)
			lab.Push(t, q, queue.Job{ID: "x"})
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			out, err := far.Consume(ctx, nil, func(ctx context.Context, d *queue.Delivery) error {
				err := c.settle(untilRun(ctx, t, p, c.script), d)
				require.ErrorIs(t, err, lua.ErrOutcomeUnknown)
				losing.Store(false)
				stop()
				return err
			})
			require.ErrorIs(t, err, context.Canceled)
			require.Equal(t, c.want, out)
			require.Equal(t, []queue.Outcome{queue.Outcome(name)}, seen.outcomes("x"))
		})
	}
}
