package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/luatomic/luatomic/internal/decline"
	"github.com/luatomic/luatomic/internal/notify"
	"github.com/luatomic/luatomic/lua"
)

// Handler works on one delivery. A nil error acks the job. Snooze delivers it again later, Discard moves it to the dead
// set, and Decline leaves it to another process. Any other error returns the job, to be delivered again after
// ConsumeOptions.Backoff. When the job has failed Options.MaxFailures times, the error moves it to the dead set.
//
// The context ends with the cause ErrLeaseLost when the lease is lost. It also ends while the server is unreachable,
// when the lease is over by the clocks of the process. From then on another worker may do the same work. The context
// ends with the cause ErrCancelled when the job was cancelled.
//
// When the handler's error is context.Canceled or the cause of the end of Consume's ctx, and that has ended, the job is
// returned without a failure.
//
// A job that the handler settles itself, with a method of d, is neither renewed nor acked again. The handler returns
// the error of that method: if the call was not executed and the handler returns nil, the job is acked. The result of
// the handler of a settled job only goes to OnError. The handler may go on, and its context ends only by Grace.
type Handler func(ctx context.Context, d *Delivery) error

type snooze struct{ d time.Duration }

func (s *snooze) Error() string        { return "luatomic: snoozed for " + s.d.String() }
func (s *snooze) Is(target error) bool { return target == ErrSnoozed }

// Snooze returns the error of a handler whose job is to be delivered again after d, by the server's clock, without a
// failure counted. The error matches ErrSnoozed.
func Snooze(d time.Duration) error { return &snooze{max(d, 0)} }

type discard struct{ err error }

func (d *discard) Error() string { return "luatomic: discarded: " + d.err.Error() }

// Unwrap hides a snooze and a decline, so that the error matches neither: it is a failure.
func (d *discard) Unwrap() error {
	if errors.Is(d.err, ErrSnoozed) || errors.Is(d.err, ErrDeclined) {
		return nil
	}
	return d.err
}

// Discard returns the error of a handler whose job must not be tried again. The job moves to the dead set with err as
// the reason, even if err is the error of a Snooze.
func Discard(err error) error {
	if err == nil {
		err = errNoReason
	}
	return &discard{err}
}

var errNoReason = errors.New("luatomic: no reason given; pass an error to Discard")

// MaxConcurrency bounds the handlers of one consumer.
const MaxConcurrency = 1_000_000

// ConsumeOptions are the settings of Consume. The zero value is ready to use.
type ConsumeOptions struct {
	// Concurrency is how many handlers run at the same time, at most MaxConcurrency. Default 10.
	Concurrency int
	// Backoff returns the delay before a job that has failed that many times is delivered again, by the server's clock.
	// Default: 1 s, doubled each time, at most 1 h. If Backoff panics, OnError gets the panic and the default applies.
	// Consume makes one call of Backoff at a time.
	Backoff func(failures int) time.Duration
	// Idle is the longest sleep on an empty queue, by the clock of the process. A push ends the sleep immediately. Idle
	// only bounds the delay after a lost notification, and the delay of a scheduled job while the one consumer that was
	// notified of it is busy. Default 10 s. At most Options.Lease, so that the consumer takes back the job of a dead
	// worker when its lease ends, and at most 1 s while the subscription is down.
	Idle time.Duration
	// Grace is how long handlers may continue after ctx has ended. Then their contexts are cancelled. The job of a
	// handler that returns an error after that is returned without a failure counted, and the job of one that returns
	// nil is acked. Consume waits without a bound for a handler that ignores its context. Default 10 s.
	Grace time.Duration
	// Drain ends Consume when the queue has no ready, scheduled or leased job. On a paused queue that has jobs, Drain
	// waits. It looks for the ready jobs of a paused queue after the take.
	Drain bool
	// Declined is how long a job may be declined again and again, by the server's clock, before it moves to the dead
	// set; see Decline. Default 24 h.
	Declined time.Duration
	// OnError, if set, receives the errors of failed calls and the errors of handlers, and Consume continues. The error
	// of a handler is a *JobError, which names the job and what became of it. It comes when the job is settled. A
	// Snooze is no error. A declined job is reported for the first, the tenth, the hundredth and so on of its kind and
	// reason, and when it is dead. OnError runs on goroutines of the consumer, several at a time. It must neither block
	// nor panic: a panic in it, or in Options.Observe, ends the process.
	OnError func(err error)
}

// Consumed counts what a consumer and its handlers did. Deliveries whose lease was lost are not counted. Retried jobs
// were returned: they failed, were snoozed, declined or interrupted. The jobs of a last take that had no reply are
// returned too, but not counted. Dead includes jobs of dead workers that this consumer reclaimed. Expired jobs reached
// no handler because their ExpiresAt had passed. Cancelled jobs were ended by a Cancel. A cancelled job whose handler
// returned nil counts as acked.
type Consumed struct {
	Acked, Retried, Dead, Expired, Cancelled int
}

// Consume takes jobs and runs the handler on each, until ctx ends or, with Drain, until the queue is empty. It extends
// leases while handlers run, reclaims the jobs of dead workers, and promotes due jobs by taking them. When handlers are
// fast it prefetches jobs, so that one round trip serves many: 2 ms of work, and up to 20 ms with a backlog. Finished
// jobs are acked together, at most 10 ms late.
//
// When ctx ends, running handlers have Grace to finish. Then their contexts end, and Consume waits for each handler. A
// job that is not finished is returned and ready as soon as its handler returns an error; the job of a handler that
// returns nil is acked.
//
// A handler that panics or ends its goroutine counts as failed. So does a handler whose error panics when it is read,
// as a nil pointer in it may. Consume retries failures that can pass, such as an unreachable server. It tries to ack
// finished work until the lease is lost. Meanwhile it renews the lease, and counts those jobs among the ones that it
// may hold. After the handlers have ended, it tries for at most 5 s. A call that is on its way then ends with go-redis'
// ReadTimeout, 5 s by default.
//
// The error is nil after a drain. Otherwise it is the cause of ctx's end, or a failure of a take or of a call that ends
// leases which no retry can cure: a key of the wrong type (lua.ErrWrongType), a closed client (redis.ErrClosed), a
// lease below a millisecond or too high a Concurrency (lua.ErrOutOfRange). A nil handler is refused before anything is
// sent.
//
// Cost: one Take and one Ack for each batch, one Extend in each third of a lease, and one connection for the
// subscriptions of all consumers, pollers and lock waiters of the client. An idle consumer has two goroutines and sends
// one Take in each Idle, or in each lease if that is shorter.
func (q *Queue) Consume(ctx context.Context, opts *ConsumeOptions, h Handler) (Consumed, error) {
	return consume(ctx, opts, h, nil, Source{Queue: q})
}

// consume runs a consumer. Its handlers go through the line, unless it is nil.
func consume(ctx context.Context, opts *ConsumeOptions, h Handler, l *line, from ...Source) (Consumed, error) {
	c, err := newConsumer(opts, h, from)
	if err != nil {
		return Consumed{}, err
	}
	c.line = l
	ctx, c.fail = context.WithCancelCause(ctx)
	defer c.fail(nil)
	work, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	c.presence = joinPresence(c)
	defer c.leave()
	var background sync.WaitGroup
	c.notifications.Start(work)
	background.Go(func() { c.settle(work) })
	background.Go(func() { c.storeLimits(work) })
	err = c.fetch(ctx, work)
	c.fail(err) // no job begins after that
	c.notifications.Stop()
	for _, q := range c.queues {
		background.Go(func() { q.stopWaiting(work, c.waiter) })
	}
	if c.unanswered {
		background.Go(func() { c.returnUnanswered(work) })
	}
	c.awaitHandlers(stop)
	c.closeOutcomes()
	stop(nil)
	background.Wait()
	return c.consumed(), err
}

// consumed returns the counts so far.
func (c *consumer) consumed() Consumed {
	return Consumed{
		Acked: int(c.acked.Load()), Retried: int(c.retried.Load()),
		Dead: int(c.dead.Load()), Expired: int(c.expired.Load()), Cancelled: int(c.cancelled.Load()),
	}
}

// consumer is one Consume: fetch takes jobs, handlers work on them, settle acks or returns them. The keeper of a queue
// renews the leases of its jobs.
type consumer struct {
	queues []*Queue
	lease  time.Duration // the shortest of the queues
	opts   ConsumeOptions
	h      Handler
	line   *line // the handler slots that several consumers share; nil if the consumer has its own

	name          string // among the waiters
	notifications *notify.Signal
	taker         *taker
	// an attempt of the last take got no reply, or ctx ended while it was under way
	unanswered bool
	waiter     string                    // the name since the last take, or empty while no notification can arrive
	prefetched chan *Delivery            // taken, no handler has it yet
	outcomes   chan outcome              // of handlers that have returned
	until      atomic.Pointer[time.Time] // when the consumer settles no more, once all have returned
	fail       context.CancelCauseFunc   // ends the takes: a call that settles jobs failed, and no retry can cure that
	inFlight   atomic.Int64              // jobs with a handler to come or at work, and those kept unsettled
	busy       atomic.Int64              // handlers that work on a job
	freed      chan struct{}             // a handler has returned

	started      time.Time
	progressed   atomic.Int64 // when jobs were last taken, or kept up with, ns after started
	handlerTime  atomic.Int64 // moving mean, ns
	prefetchTime atomic.Int64 // handler time to prefetch, ns

	presence *presence
	handlers sync.WaitGroup
	mu       sync.Mutex // guards running and held
	running  int        // handlers
	held     map[*Delivery]bool

	acked, retried, dead, expired, cancelled atomic.Int64
	declines                                 decline.Counts
}

// checkConsume returns an error if no job could run with these settings.
func checkConsume(opts *ConsumeOptions, h Handler) error {
	switch {
	case h == nil:
		return errors.New("no handler is given, and each job would fail; pass a Handler")
	case opts != nil && opts.Concurrency > MaxConcurrency:
		return &lua.RangeError{
			Field: "concurrency", Value: fmt.Sprint(opts.Concurrency), Max: fmt.Sprint(MaxConcurrency),
		}
	}
	return nil
}

func newConsumer(opts *ConsumeOptions, h Handler, from []Source) (*consumer, error) {
	if err := checkConsume(opts, h); err != nil {
		return nil, from[0].Queue.wrap("consume from", err)
	}
	c := &consumer{h: h, started: time.Now(), taker: newTaker(from...), held: make(map[*Delivery]bool)}
	c.lease = from[0].Queue.opts.Lease
	for _, s := range from {
		c.queues, c.lease = append(c.queues, s.Queue), min(c.lease, s.Queue.opts.Lease)
	}
	var err error
	if c.name, c.notifications, err = newSignal(c.queues...); err != nil {
		return nil, err
	}
	for _, q := range c.queues {
		c.notifications.Hint(q.keys.Cancels(), func(id string) { c.renew(q, id) })
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
	// A take by another worker sends no notification. So the consumer sleeps no longer than a lease: a lease that
	// begins during a sleep does not end during the same sleep.
	c.opts.Idle = min(idleOrDefault(c.opts.Idle), max(c.lease, time.Millisecond))
	if c.opts.Grace <= 0 {
		c.opts.Grace = 10 * time.Second
	}
	if c.opts.Declined <= 0 {
		c.opts.Declined = 24 * time.Hour
	}
	c.prefetched = make(chan *Delivery, MaxBatch+c.opts.Concurrency)
	c.freed = make(chan struct{}, 1)
	c.outcomes = make(chan outcome, MaxBatch)
	return c, nil
}

// doubling is the default back-off. A handler may have set Attempt to any number.
func doubling(failures int) time.Duration {
	return min(time.Second<<min(max(failures-1, 0), 20), time.Hour)
}

// report passes an error to OnError, unless it is only the end of ctx.
func (c *consumer) report(ctx context.Context, err error) {
	if c.opts.OnError != nil && (ctx.Err() == nil || !errors.Is(err, ctx.Err())) {
		c.opts.OnError(err)
	}
}

// MaxSources bounds the queues of one ConsumeAll.
const MaxSources = 16

// Source is a queue of a ConsumeAll.
type Source struct {
	Queue *Queue
	// Weight is how often the queue comes first, in proportion to the weights of the others. At most a million. A 0
	// counts as 1 if another queue has a weight. When no queue has a weight, the order is strict.
	Weight int
}

// ConsumeAll runs one consumer on several queues, as Queue.Consume does on one. Concurrency, Grace, Idle and the
// prefetch are for all queues together. Drain ends the consumer when all queues are empty at one moment; only the ready
// jobs of a paused queue are looked for after that. Delivery.Queue says which queue a job is from. Pause, lease,
// failures, dead set, events and counts are each queue's own. A delivery is settled on its own queue.
//
// Without weights the order is strict: a take gets a job from a queue only if each queue before it is paused or has no
// job left that is ready or due. With weights the order is drawn for each take: while all queues have jobs, each queue
// comes first in its share of the takes. If it has too few jobs, the take gets the rest from the others. No job
// overtakes one that was taken before, even if jobs are prefetched; see Queue.Consume.
//
// The queues must share a slot: one client, one prefix and one Options.Tag, as for PushAll. Different tags are a
// lua.ErrCrossSlot, more than MaxSources queues a lua.ErrTooLarge. Both errors come before anything is sent. Other
// errors are those of Queue.Consume. A failure of any queue that no retry can cure ends the consumer.
//
// Cost: one round trip for a take of all queues, atomic to other clients; one Ack for each batch and queue; two
// subscriptions for each queue, on the connection that all share. While the consumer waits, it is a waiter of each
// queue.
func ConsumeAll(ctx context.Context, opts *ConsumeOptions, h Handler, from ...Source) (Consumed, error) {
	if err := checkSources(from); err != nil {
		return Consumed{}, fmt.Errorf("luatomic: consume from %d queues: %w", len(from), err)
	}
	return consume(ctx, opts, h, nil, from...)
}

// Queue is the queue that the job is from.
func (d *Delivery) Queue() *Queue { return d.queue }

// checkSources returns an error if one consumer cannot take from these queues.
func checkSources(from []Source) error {
	switch {
	case len(from) == 0:
		return fmt.Errorf("no queue is given; pass a Source for each")
	case len(from) > MaxSources:
		return &lua.SizeError{What: "queues", N: len(from), Max: MaxSources, Unit: "items"}
	}
	seen := make(map[string]bool, len(from))
	for i, s := range from {
		if s.Queue == nil {
			return fmt.Errorf("source %d has no queue; set Source.Queue", i)
		}
		if err := checkPair(from[0].Queue, s.Queue); err != nil {
			return err
		}
		if s.Weight < 0 || s.Weight > maxWeight {
			return &lua.RangeError{
				Field: fmt.Sprintf("weight of queue %q", s.Queue.name), Value: fmt.Sprint(s.Weight),
				Min: "0", Max: fmt.Sprint(maxWeight),
			}
		}
		if seen[s.Queue.keys.Ready] {
			return fmt.Errorf("queue %q is there twice; give it a Weight", s.Queue.name)
		}
		seen[s.Queue.keys.Ready] = true
	}
	return nil
}

const maxWeight = 1_000_000
