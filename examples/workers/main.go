// Command workers runs the jobs of several tenants, each with a queue of its own, in one pool of workers that serves
// the tenants in turn: a tenant with a long backlog does not delay the others.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic"
)

// Work does one job of a tenant. An error retries the job.
type Work func(ctx context.Context, tenant string, d *luatomic.Delivery) error

type config struct {
	prefix  string // of the queues' names
	tag     string // that the queues share: one take has jobs of all of them
	tenants []string
	workers int
	work    Work
}

// run consumes the queues of all tenants until ctx ends. Then it finishes what it has begun.
func run(ctx context.Context, client redis.UniversalClient, cfg config) error {
	if cfg.workers < 1 {
		return fmt.Errorf("no job can run with %d workers; give 1 or more", cfg.workers)
	}
	sources, tenantOf := make([]luatomic.QueueSource, len(cfg.tenants)), make(map[string]string)
	for i, tenant := range cfg.tenants {
		q, err := luatomic.NewQueue(client, cfg.prefix+tenant, &luatomic.QueueOptions{Tag: cfg.tag})
		if err != nil {
			return err
		}
		tenantOf[q.Name()] = tenant
		sources[i] = luatomic.QueueSource{Queue: q, Weight: 1} // each comes first as often as the others
	}
	_, err := luatomic.ConsumeAll(ctx, &luatomic.ConsumeOptions{
		Concurrency: cfg.workers,
		OnError:     func(err error) { log.Print(err) },
	}, func(ctx context.Context, d *luatomic.Delivery) error {
		return cfg.work(ctx, tenantOf[d.Queue().Name()], d)
	}, sources...)
	if ctx.Err() != nil {
		return nil // Ctrl-C is no failure
	}
	return err
}

func main() {
	tenants := flag.String("tenants", "acme,globex", "names, separated by commas")
	workers := flag.Int("workers", 4, "jobs at the same time")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C does not wait for the server
	err := open(ctx, config{
		prefix: "work-", tag: "work", tenants: names(*tenants), workers: *workers, work: show,
	})
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

// names returns the names in a text. A blank or an empty name would be a queue that nobody pushes to.
func names(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
}

func open(ctx context.Context, cfg config) error {
	opts, err := redis.ParseURL(cmp.Or(os.Getenv("REDIS_URL"), "redis://localhost:6379"))
	if err != nil { // it repeats the URL, and so the password
		return errors.New("cannot read REDIS_URL; write redis://:PASSWORD@HOST:PORT, and %2F for / and %40 for @ in it")
	}
	if err := reach(ctx, *opts); err != nil {
		return err
	}
	client := redis.NewClient(opts)
	defer func() { _ = client.Close() }()
	return run(ctx, client, cfg)
}

// reach fails soon if no server answers: it makes one attempt of a second and a half, where the calls after it make
// many.
func reach(ctx context.Context, opts redis.Options) error {
	ctx, cancel := context.WithTimeout(ctx, 1500*time.Millisecond)
	defer cancel()
	opts.MaxRetries, opts.ContextTimeoutEnabled = -1, true
	client := redis.NewClient(&opts)
	defer func() { _ = client.Close() }()
	if err := client.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("cannot use REDIS_URL, %s: %w; start a server there, or name another", opts.Addr, err)
	}
	return nil
}

// show is where a program would work.
func show(_ context.Context, tenant string, d *luatomic.Delivery) error {
	log.Printf("%s: job %s, %d bytes", tenant, d.ID, len(d.Body))
	return nil
}
