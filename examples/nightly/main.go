// Command nightly runs a job once a night, in one of the processes that run this program: the leader. When the leader
// stops or dies, another process takes over, and makes up for the current night if that was not finished.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic"
)

// Job is the work of one night. It is safe to repeat: a leader that dies in the middle leaves it to the next one.
type Job func(ctx context.Context, night time.Time) error

type config struct {
	name   string        // of the election
	host   string        // this process, for people who ask who leads
	period time.Duration // 24 h: a night begins at midnight UTC
	lease  time.Duration // a dead leader is replaced after this time
	pause  time.Duration // after a failure
	job    Job
}

// run leads whenever it is elected, until ctx ends.
func run(ctx context.Context, client redis.UniversalClient, cfg config) error {
	locks := luatomic.NewLocker(client, &luatomic.LockerOptions{TTL: cfg.lease})
	defer func() { _ = locks.Close() }()
	election := locks.Election(cfg.name)
	n := &nights{client: client, config: cfg}
	for ctx.Err() == nil {
		err := election.Lead(ctx, cfg.host, func(ctx context.Context, _ *luatomic.Leadership) error {
			log.Printf("%s leads %s", cfg.host, cfg.name)
			return n.lead(ctx)
		})
		if ctx.Err() == nil {
			log.Printf("%s does not lead %s any more: %v", cfg.host, cfg.name, err)
			sleep(ctx, cfg.pause) // another process may do better
		}
	}
	return nil // Ctrl-C is no failure
}

// nights is the work of a leader.
type nights struct {
	client redis.UniversalClient
	config
}

// lead does each night's work that is not done, until ctx ends with the leadership.
func (n *nights) lead(ctx context.Context) error {
	for ctx.Err() == nil {
		night := time.Now().UTC().Truncate(n.period)
		if err := n.once(ctx, night); err != nil {
			return err
		}
		sleep(ctx, time.Until(night.Add(n.period)))
	}
	return context.Cause(ctx)
}

// once does the work of a night and records it. A late leader can do no harm here, because its record is true.
func (n *nights) once(ctx context.Context, night time.Time) error {
	key := fmt.Sprintf("%s:done:%d", n.name, night.UnixMilli())
	done, err := n.client.Exists(ctx, key).Result()
	if err != nil || done == 1 {
		return err
	}
	if err := n.job(ctx, night); err != nil {
		return err
	}
	// The work is done, whatever ends ctx now.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return n.client.Set(ctx, key, n.host, 2*n.period+time.Minute).Err()
}

// sleep returns early when ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// report is where a program would work. It ends with ctx, since another process leads from then on.
func report(ctx context.Context, night time.Time) error {
	log.Printf("the report of %s", night.Format(time.DateOnly))
	return ctx.Err()
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C does not wait for the server
	err := open(ctx)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func open(ctx context.Context) error {
	opts, err := redis.ParseURL(cmp.Or(os.Getenv("REDIS_URL"), "redis://localhost:6379"))
	if err != nil { // it repeats the URL, and so the password
		return errors.New("cannot read REDIS_URL; write redis://:PASSWORD@HOST:PORT, and %2F for / and %40 for @ in it")
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	if err := reach(ctx, *opts); err != nil {
		return err
	}
	client := redis.NewClient(opts)
	defer func() { _ = client.Close() }()
	return run(ctx, client, config{
		name: "nightly", host: fmt.Sprintf("%s-%d", host, os.Getpid()),
		period: 24 * time.Hour, lease: 10 * time.Second, pause: time.Minute, job: report,
	})
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
