package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic"
)

// countedOurs are operations as a program makes them, with all commands that they send.
func countedOurs() []counted {
	all := []counted{
		{name: "luatomic: acquire + release", open: countPair(oursPair)},
		{name: "luatomic: hand-over to a waiter", open: countHandOver},
		{name: "luatomic: call + reply", open: countCall("echo")},
		{name: "luatomic: call of no node", open: countCall("none")},
	}
	for _, n := range []int{1, batched, 100} {
		all = append(all, counted{name: fmt.Sprintf("luatomic: push %d B", payload) + of(n), open: countPush(n)})
	}
	for _, n := range []int{1, batched} {
		all = append(all,
			counted{name: "luatomic: take" + of(n), open: countTake(n)},
			counted{name: "luatomic: ack" + of(n), open: countTaken(n, ackAll)},
			counted{name: "luatomic: nack" + of(n), open: countTaken(n, nackAll)},
			counted{name: "luatomic: promote" + of(n), open: countPromote(n)})
	}
	return all
}

// of is the end of the name of a call of n jobs.
func of(n int) string {
	if n == 1 {
		return ""
	}
	return fmt.Sprint(times, n)
}

// countPair takes one lock after the other. The first pair has made the client's connection and loaded the scripts.
func countPair(open func(redis.UniversalClient) pair) func(*scene) (operation, error) {
	return func(s *scene) (operation, error) {
		p := open(s.c)
		return operation{run: func(tag string) error { return p(s.ctx, tag) }}, nil
	}
}

func countPush(n int) func(*scene) (operation, error) {
	return func(s *scene) (operation, error) {
		q, err := luatomic.NewQueue(s.c, "counted", nil)
		batch := jobs(n, 0)
		return operation{run: func(string) error {
			_, err := q.Push(s.ctx, batch...)
			return err
		}}, err
	}
}

func countTake(n int) func(*scene) (operation, error) {
	return func(s *scene) (operation, error) {
		q, err := luatomic.NewQueue(s.c, "counted", &luatomic.QueueOptions{Lease: time.Hour})
		return operation{
			prepare: func(string) error { return fill(s.ctx, q, n, 0) },
			run: func(string) error {
				_, err := takeAll(s.ctx, q, n)
				return err
			}}, err
	}
}

func takeAll(ctx context.Context, q *luatomic.Queue, n int) ([]*luatomic.Delivery, error) {
	taken, err := q.Take(ctx, n)
	if err == nil && len(taken.Deliveries) != n {
		err = fmt.Errorf("%d of %d jobs taken", len(taken.Deliveries), n)
	}
	return taken.Deliveries, err
}

func ackAll(ctx context.Context, q *luatomic.Queue, ds []*luatomic.Delivery) error {
	return q.Ack(ctx, ds...)
}

func nackAll(ctx context.Context, q *luatomic.Queue, ds []*luatomic.Delivery) error {
	return q.Nack(ctx, time.Hour, "no", ds...)
}

// countTaken ends deliveries. Those of all calls are out when the first call is made.
func countTaken(n int, end func(context.Context, *luatomic.Queue, []*luatomic.Delivery) error) func(*scene) (operation,
	error) {
	return func(s *scene) (operation, error) {
		q, err := luatomic.NewQueue(s.c, "counted", &luatomic.QueueOptions{Lease: time.Hour})
		out := make(map[string][]*luatomic.Delivery)
		return operation{
			prepare: func(tag string) error {
				err := fill(s.ctx, q, n, 0)
				if err == nil {
					out[tag], err = takeAll(s.ctx, q, n)
				}
				return err
			},
			run: func(tag string) error { return end(s.ctx, q, out[tag]) },
		}, err
	}
}

// countPromote moves the due jobs of a queue for each call.
func countPromote(n int) func(*scene) (operation, error) {
	return func(s *scene) (operation, error) {
		queues := make(map[string]*luatomic.Queue)
		return operation{
			prepare: func(tag string) error {
				q, err := luatomic.NewQueue(s.c, tag, nil)
				if err == nil {
					err = fill(s.ctx, q, n, time.Hour)
				}
				if err != nil {
					return err
				}
				queues[tag] = q
				b := &bench{ctx: s.ctx, space: tag}
				return makeDue(b, s.c, b.key("s"))
			},
			run: func(tag string) error {
				p, err := queues[tag].Promote(s.ctx)
				if err == nil && p.Moved != n {
					err = fmt.Errorf("%d of %d jobs moved", p.Moved, n)
				}
				return err
			}}, nil
	}
}

// countHandOver counts from a release to the waiter that holds the lock. The waiters of all calls wait before.
func countHandOver(s *scene) (operation, error) {
	holder := luatomic.NewLocker(s.c, &luatomic.LockerOptions{TTL: time.Hour})
	waiter := luatomic.NewLocker(s.client(1), &luatomic.LockerOptions{TTL: time.Hour})
	s.closers = append([]func(){func() { _, _ = holder.Close(), waiter.Close() }}, s.closers...)
	held, got := make(map[string]*luatomic.Lease), make(map[string]chan error)
	return operation{
		prepare: func(tag string) (err error) {
			if held[tag], err = holder.Acquire(s.ctx, tag); err != nil {
				return err
			}
			done := make(chan error, 1)
			got[tag] = done
			go func() {
				_, err := waiter.Acquire(s.ctx, tag)
				done <- err
			}()
			for {
				info, err := holder.Info(s.ctx, tag)
				if err != nil || info.Waiting > 0 {
					return err
				}
				time.Sleep(time.Millisecond)
			}
		},
		run: func(tag string) error { return errors.Join(held[tag].Release(s.ctx), <-got[tag]) },
	}, nil
}

// countCall has a node and a caller in this process, each with its own connections.
func countCall(method string) func(*scene) (operation, error) {
	return func(s *scene) (operation, error) {
		ctx, cancel := context.WithCancel(s.ctx)
		b := &bench{ctx: ctx, url: s.counter.url, space: "counted", lease: time.Hour} // no heartbeat in the count
		s.closers = append(s.closers, func() { b.end(); cancel() })
		caller, err := oursCall(b, 1)
		if err == nil && method == "none" {
			caller, err = oursNobody(b)
		}
		return operation{run: func(string) error { return caller(ctx, make([]byte, 32)) }}, err
	}
}
