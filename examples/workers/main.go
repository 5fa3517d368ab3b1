// Command workers runs the jobs of several tenants, each with a queue of its own, in one pool of workers that serves
// the tenants in turn: a tenant with a long backlog does not delay the others.
package main

import (
	"cmp"
	"context"
	"flag"
	"log"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic"
)

// Work does one job of a tenant. An error retries the job.
type Work func(ctx context.Context, tenant string, d *luatomic.Delivery) error

type config struct {
	prefix  string // of the queues' names
	tenants []string
	workers int
	work    Work
}

// run consumes the queues of all tenants until ctx ends, or one of them fails. Then it finishes what has begun.
func run(ctx context.Context, client redis.UniversalClient, cfg config) error {
	work, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	places := make(chan struct{}, cfg.workers)
	var consumers sync.WaitGroup
	for _, tenant := range cfg.tenants {
		q, err := luatomic.NewQueue(client, cfg.prefix+tenant, nil)
		if err != nil {
			stop(err)
			break
		}
		consumers.Go(func() { stop(consume(work, q, tenant, places, cfg)) })
	}
	consumers.Wait()
	if ctx.Err() != nil {
		return nil // Ctrl-C is no failure
	}
	return context.Cause(work)
}

// consume runs the jobs of one tenant. One tenant alone can use all workers, hence the Concurrency.
func consume(ctx context.Context, q *luatomic.Queue, tenant string, places chan struct{}, cfg config) error {
	line := &turns{first: make(chan struct{}, 1), places: places}
	_, err := q.Consume(ctx, &luatomic.ConsumeOptions{
		Concurrency: cfg.workers,
		OnError:     func(err error) { log.Print(err) },
	}, func(job context.Context, d *luatomic.Delivery) error {
		if !line.begin(ctx, job) {
			return luatomic.Snooze(0) // the pool stops: the job is ready again, and no failure is counted
		}
		defer line.end()
		return cfg.work(job, tenant, d)
	})
	return err
}

// turns is a tenant's way into the pool. One job of each tenant waits for a place, and Go serves those that wait on a
// channel in order of arrival: so the tenants take turns.
type turns struct {
	first  chan struct{} // the job of this tenant that waits for a place
	places chan struct{} // of all tenants
}

// begin waits for a place. It is false where the pool stops first, or the job's lease is lost.
func (t *turns) begin(pool, job context.Context) bool {
	if !enter(pool, job, t.first) {
		return false
	}
	defer func() { <-t.first }()
	return enter(pool, job, t.places)
}

func (t *turns) end() { <-t.places }

func enter(pool, job context.Context, line chan struct{}) bool {
	select {
	case line <- struct{}{}:
		return true
	case <-pool.Done():
	case <-job.Done():
	}
	return false
}

func main() {
	tenants := flag.String("tenants", "acme,globex", "names, separated by commas")
	workers := flag.Int("workers", 4, "jobs at the same time")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := open(ctx, config{prefix: "work-", tenants: strings.Split(*tenants, ","), workers: *workers, work: show})
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func open(ctx context.Context, cfg config) error {
	opts, err := redis.ParseURL(cmp.Or(os.Getenv("REDIS_URL"), "redis://localhost:6379"))
	if err != nil {
		return err
	}
	client := redis.NewClient(opts)
	defer func() { _ = client.Close() }()
	return run(ctx, client, cfg)
}

// show is where a program would work.
func show(_ context.Context, tenant string, d *luatomic.Delivery) error {
	log.Printf("%s: job %s, %d bytes", tenant, d.ID, len(d.Body))
	return nil
}
