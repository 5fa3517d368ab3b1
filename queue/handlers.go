package queue

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/luatomic/luatomic/internal/decline"
	"github.com/luatomic/luatomic/lua"
)

// errStopped is the cause that ends handlers which outlast the grace period.
var errStopped = errors.New("luatomic: consumer stopped")

// errExpired is the outcome of a job that no handler gets because it has expired.
var errExpired = errors.New("luatomic: job expired")

// errExited is the error of a handler that ended its goroutine and did not return.
var errExited = errors.New("luatomic: handler ended its goroutine; return an error instead")

// startHandlers runs handlers for n more jobs, at most Concurrency in all.
func (c *consumer) startHandlers(ctx, work context.Context, n int) {
	c.mu.Lock()
	n = min(n, c.opts.Concurrency-c.running)
	c.running += n
	c.mu.Unlock()
	for range n {
		c.startHandler(ctx, work)
	}
}

// startHandler runs a goroutine that handles jobs while there are any, and a new one when a handler has ended its
// goroutine.
func (c *consumer) startHandler(ctx, work context.Context) {
	c.handlers.Go(func() {
		finished := false
		defer func() {
			if !finished {
				c.startHandler(ctx, work)
			}
		}()
		for d := c.nextJob(); d != nil; d = c.nextJob() {
			c.process(ctx, work, d)
		}
		finished = true
	})
}

// nextJob returns a prefetched job or nil. After nil the handler ends.
func (c *consumer) nextJob() *Delivery {
	select {
	case d := <-c.prefetched:
		return d
	default:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case d := <-c.prefetched: // dispatch may have counted on this handler
		return d
	default:
		c.running--
		return nil
	}
}

// process runs the handler on a job when it is the job's turn. If ctx or the lease ends before, or the job may have
// expired, it is returned untouched. For the prefetch, and only there, the wait for the turn counts as handler time.
func (c *consumer) process(ctx, work context.Context, d *Delivery) {
	o := outcome{delivery: d, err: errExited}
	c.busy.Add(1)
	defer func() { // also when the handler ends this goroutine
		c.busy.Add(-1)
		o.stopped = o.err != nil && (o.err == errStopped || context.Cause(work) == errStopped || endedWith(ctx, o.err))
		d.finish()
		c.release(o)
	}()
	begun, lease := time.Now(), d.lease.Kept()
	if ctx.Err() != nil || d.lease.Err() != nil || !c.line.begin(ctx, lease) {
		o.err = errStopped
		return
	}
	defer c.line.end()
	switch {
	case d.expired():
		o.err = errExpired
		return
	case !d.mayRun():
		o.err = errStopped
		return
	}
	start := time.Now()
	o.ran = true
	defer func() { o.run = time.Since(start) }()
	o.err = c.callHandler(lease, d)
	c.recordHandlerTime(time.Since(begun))
}

// endedWith reports whether the error of a handler says only that the consumer's ctx has ended: the handler uses ctx or
// one that ends with it, and has stopped before Grace. An end that the job causes itself stays a failure.
func endedWith(ctx context.Context, err error) bool {
	if ctx.Err() == nil || errors.Is(err, ErrTimeout) || errors.Is(err, ErrSnoozed) || errors.As(err, new(*discard)) {
		return false
	}
	return errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(ctx))
}

// release passes on the outcome and frees the handler.
func (c *consumer) release(o outcome) {
	c.outcomes <- o
	if c.keepsUp() {
		c.markProgress()
	}
	c.free()
}

// free records that one job less is in flight.
func (c *consumer) free() {
	c.inFlight.Add(-1)
	select {
	case c.freed <- struct{}{}:
	default:
	}
}

// recordHandlerTime keeps a moving mean that rises fast and falls slowly: one slow handler is enough to stop
// prefetching.
func (c *consumer) recordHandlerTime(took time.Duration) {
	mean, weight := c.handlerTime.Load(), int64(16)
	switch {
	case mean == 0:
		mean = int64(took)
	case int64(took) > mean:
		weight = 2
	}
	c.handlerTime.Store(max(mean+(int64(took)-mean)/weight, 1)) // handlers may race here; any of their means will do
}

func (c *consumer) callHandler(ctx context.Context, d *Delivery) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &lua.PanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	if d.Timeout == 0 {
		return readable(c.h(ctx, d))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, d.Timeout, ErrTimeout)
	defer cancel()
	err = readable(c.h(ctx, d))
	if err != nil && context.Cause(ctx) == ErrTimeout && !errors.Is(err, ErrTimeout) {
		err = fmt.Errorf("%w: %w", ErrTimeout, err)
	}
	return err
}

// readable returns the error, or another one which says that the error cannot be read. It calls each method of the
// error that the consumer and its callbacks may call: a nil pointer in an error panics in them, and would end the
// process there.
func readable(err error) (out error) {
	if err == nil {
		return nil
	}
	defer func() {
		if p := recover(); p != nil {
			out = fmt.Errorf("luatomic: the handler's error, a %T, cannot be read: it panicked: %v", err, p)
		}
	}()
	_, _ = errors.Is(err, errStopped), errors.As(err, new(*snooze))
	_ = err.Error()
	return err
}

// awaitHandlers waits for the handlers. After the grace period it cancels them and waits until they return.
func (c *consumer) awaitHandlers(stop context.CancelCauseFunc) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.handlers.Wait()
	}()
	grace := time.NewTimer(c.opts.Grace)
	defer grace.Stop()
	select {
	case <-done:
		return
	case <-grace.C:
		stop(errStopped)
	}
	<-done
}

// Decline returns the error of a handler that has not begun a job because its process cannot work on it, but another
// one may: a kind or a version of the body that this program does not know, a machine without the hardware. Mux
// declines jobs of unknown kinds and bodies that it cannot decode.
//
// The job is delivered again, to the process that takes it then. No failure is counted. The delay is 1 s at first, then
// as long as the job has been declined, a minute at most, by the server's clock. A job that has only been declined for
// ConsumeOptions.Declined moves to the dead set. Its body and its failures are unchanged. Its reason is err, after
// "declined since" and the first time in Unix ms. A failure, or a return after its work began, ends that row.
func Decline(err error) error { return decline.New(err) }

// firstDecline is the delay of a job that is declined for the first time, in ms.
const firstDecline = 1000

// reportsDecline counts a job that its handler declined and reports whether OnError gets it: a job that nobody serves
// is declined again and again.
func (c *consumer) reportsDecline(o *outcome, became Outcome) bool {
	if !errors.Is(o.err, ErrDeclined) {
		return false
	}
	d, report := o.delivery, false
	o.declined, report = c.declines.Add(d.queue.keys.Listed + "\n" + d.Kind + "\n" + o.err.Error())
	return report || became != OutcomeRetried
}
