package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/internal/clock"
	"github.com/luatomic/luatomic/internal/notify"
	"github.com/luatomic/luatomic/lua"
)

// Handler works on one delivery. A nil error acks the job. Snooze puts it off,
// Discard sends it to the dead set. Any other error gives it back, to be delivered
// again after the consumer's back-off, or to the dead set once it has failed
// QueueOptions.MaxFailures times. The context ends when the lease is lost; what the
// handler does after that may be done by another worker too.
type Handler func(ctx context.Context, d *Delivery) error

type snooze struct{ d time.Duration }

func (s *snooze) Error() string { return "luatomic: put off for " + s.d.String() }

// Snooze is what a Handler returns to have the job delivered again after d. It
// counts as no failure.
func Snooze(d time.Duration) error { return &snooze{max(d, 0)} }

type discard struct{ err error }

func (d *discard) Error() string { return "luatomic: discarded: " + d.err.Error() }
func (d *discard) Unwrap() error { return d.err }

// Discard is what a Handler returns when no repeat can help: the job goes to the
// dead set at once, with err as the reason.
func Discard(err error) error {
	if err == nil {
		err = errNoReason
	}
	return &discard{err}
}

var errNoReason = errors.New("luatomic: no reason given")

// ConsumeOptions are the settings of Consume. The zero value is ready to use.
type ConsumeOptions struct {
	// Concurrency is how many handlers run at once. Default 10.
	Concurrency int
	// Backoff is the delay before a job is delivered again that has failed that
	// many times. Default: 1 s, doubled each time, 1 h at most.
	Backoff func(failures int) time.Duration
	// Idle is the longest sleep on an empty queue. A push ends the sleep at once;
	// this is for words that get lost. Default 10 s, and 1 s while the subscription
	// that hears them is down.
	Idle time.Duration
	// Grace is how long handlers may go on when ctx ends. Then their context is
	// cancelled and their jobs are given back, as if not taken. Default 10 s.
	Grace time.Duration
	// Drain ends Consume when the queue holds no ready, scheduled or leased job.
	Drain bool
	// OnError, if set, sees failed calls and handler errors. Consume goes on.
	OnError func(err error)
}

// Consumed counts what a consumer did. Retried are all jobs given back: failed,
// put off, or interrupted.
type Consumed struct {
	Acked, Retried, Dead int
}

// Consume takes jobs and runs the handler on each until ctx ends, or until the
// queue is empty with Drain. It renews leases while handlers run, takes back the
// jobs of dead workers, and promotes what is due by taking it. Where handlers are
// quick it takes some jobs ahead, so that a round trip serves many: 2 ms of work, up to
// 20 ms of it behind a backlog, when finished jobs are acked up to 10 ms later.
//
// When ctx ends, handlers that run get Grace to finish; the jobs of those that do
// not are given back and can be taken again at once. A handler that panics, or ends
// its goroutine, counts as failed. Consume goes on through failures that pass, such as
// a server that is away. The error is nil after a drain; the cause of ctx's end; or a
// failure that no repeat can cure, such as a key of the wrong type, a client that is
// closed, or a lease below a millisecond.
func (q *Queue) Consume(ctx context.Context, opts *ConsumeOptions, h Handler) (Consumed, error) {
	c, err := newConsumer(q, opts, h)
	if err != nil {
		return Consumed{}, err
	}
	work, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	var background sync.WaitGroup
	background.Go(func() { c.renew(work) })
	listening, deaf := context.WithCancel(work)
	defer deaf()
	background.Go(func() { c.wake.Run(listening, q.client) })
	background.Go(func() { c.settle(work) })
	var handlers sync.WaitGroup
	for range c.opts.Concurrency {
		c.start(&handlers, ctx, work)
	}
	err = c.loop(ctx, work)
	close(c.jobs)
	deaf()
	background.Go(func() { c.leave(work) })
	c.await(&handlers, stop)
	close(c.finished)
	stop(nil)
	background.Wait()
	return Consumed{Acked: int(c.acked.Load()), Retried: int(c.retried.Load()), Dead: int(c.dead.Load())}, err
}

type consumer struct {
	queue *Queue
	opts  ConsumeOptions
	h     Handler

	wake     *notify.Listener
	channel  string         // left behind by the last look
	jobs     chan *Delivery // taken, and not yet handled
	inHand   atomic.Int64   // taken, and not yet handled to the end
	freed    chan struct{}  // there is room again
	began    time.Time
	moved    atomic.Int64  // when a job was last taken or handled, ns after began
	pace     atomic.Int64  // time of a handler, ns
	ahead    atomic.Int64  // time of work to take before a handler is free, ns
	finished chan finished // handled, and not yet settled

	mu   sync.Mutex // guards held
	held map[*Delivery]life

	// fences keeps extending apart from settling: the one moves the fences that the
	// other names.
	fences sync.Mutex
	doubt  bool // a renewal had no answer; guarded by fences

	acked, retried, dead atomic.Int64
}

// How long those sleep who can be told of work, and those who cannot.
const (
	longIdle  = 10 * time.Second
	shortIdle = time.Second
)

// newListener makes a listener on a channel of its own.
func (q *Queue) newListener() (*notify.Listener, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("luatomic: %w", err)
	}
	return notify.New(q.keys.Channel(id.String())), nil
}

func newConsumer(q *Queue, opts *ConsumeOptions, h Handler) (*consumer, error) {
	c := &consumer{queue: q, h: h, began: time.Now(), held: make(map[*Delivery]life)}
	var err error
	if c.wake, err = q.newListener(); err != nil {
		return nil, err
	}
	if opts != nil {
		c.opts = *opts
	}
	if c.opts.Concurrency <= 0 {
		c.opts.Concurrency = 10
	}
	if c.opts.Backoff == nil {
		c.opts.Backoff = doubling
	}
	if c.opts.Idle <= 0 {
		c.opts.Idle = longIdle
	}
	c.opts.Idle = max(c.opts.Idle, time.Millisecond) // the server's clock has no shorter wait
	if c.opts.Grace <= 0 {
		c.opts.Grace = 10 * time.Second
	}
	c.jobs = make(chan *Delivery, MaxBatch+c.opts.Concurrency)
	c.freed = make(chan struct{}, 1)
	c.finished = make(chan finished, MaxBatch)
	return c, nil
}

// idle is the longest sleep as things are.
func (c *consumer) idle() time.Duration {
	if c.wake.Channel() == "" {
		return min(c.opts.Idle, shortIdle)
	}
	return c.opts.Idle
}

func doubling(failures int) time.Duration {
	return min(time.Second<<min(failures-1, 20), time.Hour)
}

// loop takes jobs as there is room for them. It returns nil when the queue is
// drained.
func (c *consumer) loop(ctx, work context.Context) error {
	retry := clock.Backoff{First: 10 * time.Millisecond, Last: shortIdle}
	for {
		n := c.room(ctx)
		if n == 0 {
			return context.Cause(ctx)
		}
		c.channel = c.wake.Channel()
		t, err := c.queue.take(ctx, n, c.channel, c.idle())
		c.accept(work, t.Deliveries)
		c.backlog(len(t.Deliveries) == n)
		wait, drained, err := c.next(ctx, t, err)
		switch {
		case err != nil && hopeless(err):
			return err
		case err != nil:
			if ctx.Err() == nil {
				c.channel = "" // a server that is away holds no stop up
			}
			c.failed(ctx, err)
			clock.Sleep(ctx, retry.Next())
		case drained:
			return nil
		default:
			retry.Reset()
			c.rest(ctx, wait)
		}
	}
}

// next says how long to sleep after a take, or that there is nothing left to wait
// for. What other workers lost is taken back first.
func (c *consumer) next(ctx context.Context, t Taken, err error) (wait time.Duration, drained bool, _ error) {
	if err != nil {
		return 0, false, err
	}
	if lapse, ok := t.NextLapse.Get(); ok && !lapse.After(t.Now) {
		r, err := c.queue.Reclaim(ctx)
		c.dead.Add(int64(r.Buried))
		if r.Buried > 0 {
			err = errors.Join(err, c.trim(ctx))
		}
		if err != nil || r.Returned+r.Buried > 0 {
			return 0, false, err
		}
	}
	if len(t.Deliveries) > 0 || t.Dropped > 0 {
		return 0, false, nil
	}
	idle := c.idle()
	if t.Paused {
		return idle, false, nil
	}
	if c.opts.Drain {
		s, err := c.queue.Stats(ctx)
		if err != nil || s.Ready+s.Scheduled+s.Leased == 0 {
			return 0, err == nil, err
		}
		idle = min(idle, drainIdle)
	}
	wait = min(until(t.NextDue, t.Now, idle), until(t.NextLapse, t.Now, idle))
	return max(wait, shortWait), false, nil
}

// leave gets out of the line of those who wait. If somebody has told this consumer of
// work by then, it tells the next one. It is a hint, so what fails is not repeated.
func (c *consumer) leave(work context.Context) {
	if c.channel == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(work), time.Second)
	defer cancel()
	left, err := c.queue.client.ZRem(ctx, c.queue.keys.Wake, c.channel).Result()
	if err == nil && left == 0 {
		_, _ = c.queue.promote(ctx, 1, "", 0)
	}
}

// shortWait is for a look that found nothing although it is time: it is not repeated at
// once.
const shortWait = 100 * time.Microsecond

// drainIdle is how often a draining consumer looks whether other workers have
// finished what they hold: nobody tells of that.
const drainIdle = 50 * time.Millisecond

// hopeless reports whether a repeat would fail in the same way.
func hopeless(err error) bool {
	for _, final := range []error{
		lua.ErrExecutedInPart, lua.ErrBadReply, lua.ErrOutOfRange, lua.ErrNoGuard, redis.ErrClosed,
	} {
		if errors.Is(err, final) {
			return true
		}
	}
	return false
}

// errStopped ends the handlers that outlast the grace.
var errStopped = errors.New("luatomic: consumer stopped")

// failed reports an error, unless it is only the end of ctx.
func (c *consumer) failed(ctx context.Context, err error) {
	if c.opts.OnError != nil && (ctx.Err() == nil || !errors.Is(err, ctx.Err())) {
		c.opts.OnError(err)
	}
}
