package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/queue"
	"github.com/luatomic/luatomic/rpc"
)

type holdStep struct {
	Step   int    `json:"step"`
	Name   string `json:"name"`
	Redis  string `json:"redis"`
	Prefix string `json:"prefix"`
}

// hold keeps something to look at until an interrupt: jobs in each state, a consumer, locks with waiters, a bus.
func (d *demo) hold() error {
	d.head(7, "Something to look at")
	scene := &demoScene{d: d}
	ctx, stop := context.WithCancel(d.ctx)
	defer scene.work.Wait()
	defer stop()
	if err := errors.Join(scene.queues(ctx), scene.locks(ctx), scene.bus(ctx)); err != nil {
		return err
	}
	d.say("Jobs in each state, locks that are held and waited for, and calls. In another terminal:")
	d.say("luatomic web --redis %s --prefix %s --write", redacted(d.address), d.prefix)
	d.say("Ctrl-C ends both.")
	if err := d.s.emit(holdStep{7, "hold", redacted(d.address), d.prefix}); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// demoScene is what a demo that holds keeps going.
type demoScene struct {
	d    *demo
	work sync.WaitGroup
}

var errDemoMail = errors.New("smtp: 421 try again later")

func (sc *demoScene) queues(ctx context.Context) error {
	mail, err := queue.New(sc.d.client, "mail", &queue.Options{Prefix: sc.d.prefix, MaxFailures: 1})
	if err != nil {
		return err
	}
	reports, err := queue.New(sc.d.client, "reports", &queue.Options{Prefix: sc.d.prefix})
	if err != nil {
		return err
	}
	var jobs []queue.Job
	for i := range 40 {
		kind := "welcome"
		if i%3 == 0 {
			kind = "bounce"
		}
		jobs = append(jobs, queue.Job{ID: fmt.Sprintf("%s-%d", kind, i), Kind: kind,
			Headers: map[string]string{"tenant": "acme"},
			Body:    fmt.Appendf(nil, `{"to":"user%d@example.com"}`, i)})
	}
	later := queue.Job{ID: "newsletter", Kind: "newsletter", Delay: 3 * time.Hour}
	if _, err := mail.Push(ctx, append(jobs, later)...); err != nil {
		return err
	}
	if _, err := reports.Push(ctx, queue.Job{ID: "yearly", Kind: "pdf"},
		queue.Job{ID: "daily", Kind: "pdf"}); err != nil {
		return err
	}
	sc.consume(ctx, mail, func(ctx context.Context, job *queue.Delivery) error {
		if job.Kind == "bounce" {
			return errDemoMail
		}
		return pause(ctx, 2*time.Second)
	})
	sc.consume(ctx, reports, func(ctx context.Context, _ *queue.Delivery) error { return pause(ctx, time.Hour) })
	return nil
}

func (sc *demoScene) consume(ctx context.Context, q *queue.Queue, h queue.Handler) {
	sc.work.Go(func() {
		// its end is the interrupt
		_, _ = q.Consume(ctx, &queue.ConsumeOptions{Concurrency: 1, Grace: time.Millisecond}, h)
	})
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func (sc *demoScene) locks(ctx context.Context) error {
	first := lock.New(sc.d.client, &lock.Options{Prefix: sc.d.prefix, Note: "host-a, pid 4711", TTL: 10 * time.Second})
	second := lock.New(sc.d.client, &lock.Options{Prefix: sc.d.prefix, Note: "host-b, pid 815", TTL: 10 * time.Second})
	held := make(chan struct{})
	wait := func(ctx context.Context, _ *lock.Lease) error {
		<-ctx.Done()
		return nil
	}
	sc.work.Go(func() {
		defer func() { _ = first.Close() }()
		_ = first.Do(ctx, "nightly", func(ctx context.Context, l *lock.Lease) error {
			close(held)
			return wait(ctx, l)
		})
	})
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-held:
	}
	sc.work.Go(func() {
		defer func() { _ = second.Close() }()
		_ = second.Do(ctx, "nightly", wait)
	})
	sc.work.Go(func() { _ = second.Semaphore("partner-api", 3).Do(ctx, 2, wait) })
	sc.work.Go(func() { _ = first.RW("catalogue").RDo(ctx, wait) })
	return nil
}

func (sc *demoScene) bus(ctx context.Context) error {
	method := rpc.NewMethod[int, int]("stock.get")
	var caller *rpc.Bus
	for _, node := range []string{"shop-1", "shop-2"} {
		bus, err := rpc.New(sc.d.client, "orders", &rpc.Options{Prefix: sc.d.prefix, Node: node})
		if err != nil {
			return err
		}
		err = method.Serve(bus, func(ctx context.Context, n int) (int, error) {
			if n%10 == 0 {
				return 0, &rpc.RemoteError{Code: "no_stock", Message: "none left"}
			}
			return n, pause(ctx, 20*time.Millisecond)
		}, &rpc.ServeOptions{Description: "how many are left", Version: "1.4.0"})
		if err != nil {
			return err
		}
		sc.work.Go(func() { _ = bus.Run(ctx) })
		caller = bus
	}
	sc.work.Go(func() {
		for n := 0; pause(ctx, 200*time.Millisecond) == nil; n++ {
			_, _ = method.Call(ctx, caller, n, nil) // one in ten fails, for the page to show
		}
	})
	return nil
}
