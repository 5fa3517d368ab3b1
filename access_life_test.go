package luatomic_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/limit"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/queue"
	"github.com/luatomic/luatomic/rpc"
)

type budgetKey struct{}

// budget returns the time that a step of life may take, from its context.
func budget(ctx context.Context) time.Duration { return ctx.Value(budgetKey{}).(time.Duration) }

// life uses the package as programs do: jobs, contended locks, calls. It ends where one of them is refused.
func life(ctx context.Context, client redis.UniversalClient, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, budgetKey{}, wait), 10*wait)
	defer cancel()
	for _, part := range []func(context.Context, redis.UniversalClient) error{
		lifeOfJobs, lifeOfWorkers, lifeOfDeadWorkers, lifeOfLocks, lifeOfStolenLocks, lifeOfReaders, lifeOfElections,
		lifeOfCalls, lifeOfLimits,
	} {
		if err := part(ctx, client); err != nil {
			return err
		}
	}
	return client.Ping(ctx).Err()
}

// becomes polls until done or the budget is used up.
func becomes(ctx context.Context, done func() bool) bool {
	for start := time.Now(); time.Since(start) < budget(ctx) && ctx.Err() == nil; time.Sleep(time.Millisecond) {
		if done() {
			return true
		}
	}
	return false
}

func lifeOfLimits(ctx context.Context, client redis.UniversalClient) error {
	l := limit.New(client, &limit.Options{Prefix: accessPrefix, Tag: "roles"})
	a, b := l.Rate("a", limit.Per(10, time.Second)), l.Rate("b", limit.Per(10, time.Second))
	_, one := l.Allow(ctx, 1, a)
	_, both := l.Allow(ctx, 1, a, b)
	_, peek := l.Peek(ctx, a, b)
	r, err := l.Reserve(ctx, 1, a, b)
	if err == nil {
		err = r.Settle(ctx, 2)
	}
	return errors.Join(one, both, peek, err, l.Wait(ctx, 1, a), l.SetLevel(ctx, a, 3), l.Reset(ctx, a))
}

func accessQueue(client redis.UniversalClient, name string, lease time.Duration) *queue.Queue {
	q, err := queue.New(client, name, &queue.Options{Prefix: accessPrefix, Lease: lease})
	if err != nil {
		panic(err) // the name is valid
	}
	return q
}

func lifeOfJobs(ctx context.Context, client redis.UniversalClient) error {
	q := accessQueue(client, "q", 0)
	_, pushed := q.Push(ctx, queue.Job{Body: []byte("now")}, queue.Job{Body: []byte("later"), Delay: time.Hour})
	taken, err := q.Take(ctx, 1)
	if err == nil && len(taken.Deliveries) == 1 {
		err = taken.Deliveries[0].Ack(ctx)
	}
	_, audited := q.Audit(ctx, false)
	listed, found := queue.Queues(ctx, client, &queue.Options{Prefix: accessPrefix})
	_, workers := queue.Workers(ctx, client, accessPrefix)
	_, counts := q.Counts(ctx, 1)
	if found == nil && len(listed) == 0 {
		found = errors.New("the queue is not listed")
	}
	audited = errors.Join(audited, found, workers, counts)
	locker := lock.New(client, &lock.Options{Prefix: accessPrefix, Tag: "q"})
	lease, locked := locker.Try(ctx, "guard")
	if locked != nil {
		return errors.Join(pushed, err, audited, locked)
	}
	_, guarded := accessQueue(lua.Guard(client, lease), "q", 0).Push(ctx, queue.Job{Body: []byte("guarded")})
	return errors.Join(pushed, err, audited, guarded, lease.Release(ctx))
}

// A worker registers its channel in the queue when it may subscribe to it.
func lifeOfWorkers(ctx context.Context, client redis.UniversalClient) error {
	q := accessQueue(client, "w", 0)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	did := make(chan bool, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = q.Consume(ctx, &queue.ConsumeOptions{Idle: time.Hour}, func(context.Context, *queue.Delivery) error {
			select {
			case did <- true:
			default: // a refused ack delivers it again
			}
			return nil
		})
	}()
	var err error
	if !becomes(ctx, func() bool { return client.ZCard(ctx, accessPrefix+"{w}:w").Val() == 1 }) {
		err = errors.New("the worker does not subscribe")
	}
	_, pushed := q.Push(ctx, queue.Job{Body: []byte("now")})
	if pushed == nil && err == nil && !becomes(ctx, func() bool { return len(did) == 1 }) {
		err = errors.New("the job is not done")
	}
	cancel()
	<-ended
	return errors.Join(pushed, err)
}

func lifeOfDeadWorkers(ctx context.Context, client redis.UniversalClient) error {
	q := accessQueue(client, "d", time.Millisecond)
	_, pushed := q.Push(ctx, queue.Job{Body: []byte("now")})
	_, taken := q.Take(ctx, 1)
	var reclaimed error
	becomes(ctx, func() bool {
		var r queue.Reclaimed
		r, reclaimed = q.Reclaim(ctx)
		return reclaimed != nil || r.Returned > 0
	})
	return errors.Join(pushed, taken, reclaimed)
}

func accessLocker(client redis.UniversalClient) *lock.Locker {
	return lock.New(client, &lock.Options{Prefix: accessPrefix, Claim: time.Minute, Poll: time.Hour})
}

func lifeOfLocks(ctx context.Context, client redis.UniversalClient) error {
	first, second := accessLocker(client), accessLocker(client)
	defer first.Close()
	defer second.Close()
	lease, err := first.Try(ctx, "x")
	if err != nil {
		return err
	}
	waited := make(chan error, 2)
	wait := func() {
		// Without a subscription it polls once an hour.
		short, cancel := context.WithTimeout(ctx, budget(ctx))
		defer cancel()
		lease, err := second.Acquire(short, "x")
		if err == nil {
			err = lease.Release(ctx)
		}
		waited <- err
	}
	go wait()
	queued := func(n int) {
		becomes(ctx, func() bool {
			info, err := first.Info(ctx, "x")
			return err != nil || info.Waiting == n || len(waited) > 0
		})
	}
	queued(1)
	go wait() // behind a waiter of its own process
	queued(2)
	released := lease.Release(ctx)
	err = errors.Join(<-waited, <-waited)
	for _, listed := range first.List(ctx) {
		err = errors.Join(err, listed)
	}
	return errors.Join(released, err)
}

func lifeOfStolenLocks(ctx context.Context, client redis.UniversalClient) error {
	lease, err := accessLocker(client).Try(ctx, "s")
	if err != nil {
		return err
	}
	stolen, err := accessLocker(client).Steal(ctx, "s")
	if err != nil {
		return err
	}
	if err := lease.Extend(ctx); !errors.Is(err, lock.ErrLost) {
		return fmt.Errorf("extend: %w", err)
	}
	return stolen.Release(ctx)
}

func lifeOfReaders(ctx context.Context, client redis.UniversalClient) error {
	first, second := accessLocker(client), accessLocker(client)
	defer first.Close()
	defer second.Close()
	permit, err := first.Semaphore("p", 3).Try(ctx, 2)
	if err != nil {
		return err
	}
	reader, err := first.RW("r").RTry(ctx)
	if err != nil {
		return errors.Join(err, permit.Release(ctx))
	}
	short, cancel := context.WithTimeout(ctx, budget(ctx))
	defer cancel()
	waited := make(chan error, 2)
	wait := func(lease *lock.Lease, err error) {
		if err == nil {
			err = lease.Release(ctx)
		}
		waited <- err
	}
	go func() { wait(second.RW("r").Acquire(short)) }()
	go func() { wait(second.Semaphore("p", 3).Acquire(short, 2)) }()
	becomes(ctx, func() bool {
		r, err := first.RW("r").Info(ctx)
		p, _ := first.Semaphore("p", 3).Info(ctx)
		return err != nil || r.Waiting+p.Waiting == 2 || len(waited) > 0
	})
	return errors.Join(reader.Release(ctx), permit.Release(ctx), <-waited, <-waited)
}

// An observer is notified before the lease expires.
func lifeOfElections(ctx context.Context, client redis.UniversalClient) error {
	locker := accessLocker(client)
	defer locker.Close()
	ctx, cancel := context.WithTimeout(ctx, budget(ctx))
	defer cancel()
	leads, err := locker.Election("e").Campaign(ctx, "me")
	if err != nil {
		return err
	}
	for leader, err := range locker.Election("e").Observe(ctx) {
		switch {
		case err != nil:
			return errors.Join(err, leads.Resign(ctx))
		case leader.Fence == 0:
			return nil
		}
		if err := leads.Resign(ctx); err != nil {
			return err
		}
	}
	return errors.New("the observer was not notified of the end of the leader")
}

var accessPing = rpc.NewMethod[string, string]("ping")

func lifeOfCalls(ctx context.Context, client redis.UniversalClient) error {
	unseen := make(chan error, 100) // failures in the background
	bus, err := rpc.New(client, "b", &rpc.Options{Prefix: accessPrefix, Node: "n", OnError: func(err error) {
		select {
		case unseen <- err:
		default:
		}
	}})
	if err != nil {
		return err
	}
	err = accessPing.Serve(bus, func(_ context.Context, in string) (string, error) { return in, nil }, nil)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, budget(ctx))
	defer cancel()
	ran := make(chan error, 1)
	running, stop := context.WithCancel(ctx)
	go func() { ran <- bus.Run(running) }()
	for range 5 { // a call that a busy machine has repeated leaves its record to expire, without UNLINK
		if _, err = accessPing.Call(ctx, bus, "hi", nil); err != nil {
			break
		}
	}
	stop()
	<-ran
	for len(unseen) > 0 {
		if e := <-unseen; strings.Contains(e.Error(), "NOPERM") {
			err = errors.Join(err, e)
		}
	}
	return err
}
