package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/queue"
)

type workStep struct {
	Step       int     `json:"step"`
	Name       string  `json:"name"`
	Finished   int     `json:"finished"`
	A          int     `json:"consumer_a"`
	B          int     `json:"consumer_b"`
	Abandoned  int     `json:"abandoned"`
	Retaken    int     `json:"retaken"`
	Refused    bool    `json:"second_try_refused"`
	Holders    int     `json:"lock_holders"`
	FirstFence int64   `json:"first_fence"`
	LastFence  int64   `json:"last_fence"`
	MS         float64 `json:"ms"`
}

const (
	crashLease = 300 * time.Millisecond
	crashJobs  = 3
	takeJobs   = 8
	lockTTL    = 5 * time.Second
)

func (d *demo) stepWork() error {
	d.head(4, "Take and finish under a lock, while one worker crashes")
	out := workStep{Step: 4, Name: "work"}
	start := time.Now()
	var err error
	if out.Abandoned, err = d.crash(); err != nil {
		return err
	}
	if out.Refused, err = d.refusal(); err != nil {
		return err
	}
	a, b := &demoConsumer{d: d, name: "consumer A"}, &demoConsumer{d: d, name: "consumer B"}
	if err := runBoth(d.ctx, a.run, b.run); err != nil {
		return err
	}
	out.A, out.B, out.Retaken = a.done, b.done, a.retaken+b.retaken
	out.Finished = out.A + out.B
	out.MS = millis(time.Since(start))
	out.Holders, out.FirstFence, out.LastFence = d.fences.holders, d.fences.first, d.fences.last
	d.say("The lock changed hands %d times, each time with a greater fence, from %d to %d.",
		out.Holders, out.FirstFence, out.LastFence)
	d.say("A store that refuses a smaller fence than it has seen is safe from a holder that was paused past its lease.")
	d.say("Consumer A finished %d jobs, consumer B %d; the %d of the crash came back at their second attempt.", out.A,
		out.B, out.Retaken)
	for id, n := range d.finished {
		if n != 1 {
			return broken("job %q was finished %d times", id, n)
		}
	}
	if out.Finished != len(d.body) || out.Retaken != out.Abandoned {
		return broken("%d of %d jobs were finished, %d of %d abandoned ones came back", out.Finished, len(d.body),
			out.Retaken, out.Abandoned)
	}
	d.say("Each of the %d jobs was finished exactly once, with the bytes that were pushed.", out.Finished)
	return d.s.emit(out)
}

// crash takes jobs and forgets them, as a worker does whose machine dies.
func (d *demo) crash() (int, error) {
	q, err := d.newQueue(crashLease)
	if err != nil {
		return 0, err
	}
	t, err := q.Take(d.ctx, crashJobs)
	if err != nil {
		return 0, err
	}
	d.say("A worker takes %d jobs under a lease of %v and dies. They are not lost: when the lease", len(t.Deliveries),
		crashLease)
	d.say("is over, the next consumer takes them back.")
	return len(t.Deliveries), nil
}

func (d *demo) locker(note string) *lock.Locker {
	return lock.New(d.client, &lock.Options{
		Prefix: d.prefix, TTL: lockTTL, Claim: lockTTL, Note: note, Poll: 4 * time.Millisecond,
	})
}

// refusal shows what a second process gets that tries the lock.
func (d *demo) refusal() (refused bool, err error) {
	err = d.locker("consumer A").Do(d.ctx, "demo", func(ctx context.Context, lease *lock.Lease) error {
		second, err := d.locker("consumer B").Try(ctx, "demo")
		var held *lock.HeldError
		if errors.As(err, &held) {
			refused = true
			d.say("Consumer A holds the lock, fence %d. B tries too, and gets the answer in one round trip: held by "+
				"%s,",
				lease.Fence(), held.Holder)
			d.say("for %v more unless A renews it.", held.Remaining)
			return nil
		}
		if err == nil {
			return errors.Join(broken("two holders of one lock"), second.Release(ctx))
		}
		return err
	})
	return refused, err
}

// runBoth runs both functions and ends one when the other fails.
func runBoth(ctx context.Context, a, b func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for _, f := range []func(context.Context) error{a, b} {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if err := f(ctx); err != nil {
				cancel(err)
			}
		}()
	}
	wg.Wait()
	return context.Cause(ctx)
}

// fenceLog checks that each holder of the lock has a greater fence than the one
// before.
type fenceLog struct {
	mu          sync.Mutex
	holders     int
	first, last int64
}

func (f *fenceLog) add(fence int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fence <= f.last {
		return broken("fence %d came after fence %d", fence, f.last)
	}
	if f.holders++; f.holders == 1 {
		f.first = fence
	}
	f.last = fence
	return nil
}

// demoConsumer takes and finishes jobs while it holds the lock.
type demoConsumer struct {
	d       *demo
	name    string
	done    int
	retaken int
}

func (c *demoConsumer) run(ctx context.Context) error {
	locker := c.d.locker(c.name)
	for {
		var next time.Duration
		var left int
		err := locker.Do(ctx, "demo", func(ctx context.Context, lease *lock.Lease) (err error) {
			if err := c.d.fences.add(lease.Fence()); err != nil {
				return err
			}
			next, left, err = c.turn(ctx)
			return err
		})
		if err != nil || left == 0 {
			return err
		}
		// Without the lock, so that the other consumer has its turn.
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(max(next, time.Millisecond)):
		}
	}
}

// turn finishes some jobs, or takes back what the crash left. It returns how many
// are left and when there will be work again.
func (c *demoConsumer) turn(ctx context.Context) (next time.Duration, left int, err error) {
	t, err := c.d.queue.Take(ctx, takeJobs)
	if err != nil {
		return 0, 0, err
	}
	for _, got := range t.Deliveries {
		if err := c.d.inspect(got); err != nil {
			return 0, 0, err
		}
	}
	if err := c.d.queue.Ack(ctx, t.Deliveries...); err != nil {
		return 0, 0, err
	}
	c.count(t.Deliveries)
	if lapse, ok := t.NextLapse.Get(); ok && len(t.Deliveries) == 0 {
		if next = lapse.Sub(t.Now); next <= 0 {
			if _, err := c.d.queue.Reclaim(ctx); err != nil {
				return 0, 0, err
			}
		}
	}
	st, err := c.d.queue.Stats(ctx)
	return next, st.Ready + st.Scheduled + st.Leased, err
}

func (c *demoConsumer) count(ds []*queue.Delivery) {
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	for _, got := range ds {
		c.done++
		c.d.finished[got.ID]++
		if got.Attempt > 1 {
			c.retaken++
		}
	}
}

// inspect compares a delivery with what was pushed.
func (d *demo) inspect(got *queue.Delivery) error {
	body, known := d.body[got.ID]
	switch {
	case !known:
		return broken("job %q was delivered and never pushed", got.ID)
	case body != string(got.Body):
		return broken("job %q came out with another body", got.ID)
	case got.EnqueuedAt.Before(d.due[got.ID]):
		return broken("job %q was ready before it was due", got.ID)
	}
	return nil
}
