package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/luatomic/luatomic"
	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/queue"
)

// queue has a job pushed, taken and finished, as far as the roles do that. The push is the script alone: Queue.Push
// names the queue in the list of queues, where it would stay for 90 days.
func (p *probeUse) queue(ctx context.Context) (string, error) {
	q, err := queue.New(p.client, p.name, &queue.Options{Prefix: p.prefix, Receipt: time.Minute})
	if err != nil {
		return "", err
	}
	k, err := keys.NewQueue(p.prefix, "", p.name)
	if err != nil {
		return "", err
	}
	start := time.Now()
	if !p.does(luatomic.RoleProducer) {
		_, err := q.Take(ctx, 1)
		return "taken from, without a job, in " + took(start), err
	}
	err = p.push(ctx, &k)
	switch {
	case errors.Is(err, lua.ErrNotExecuted):
		return "", err // there is no job
	case err == nil && !p.does(luatomic.RoleConsumer):
		return "pushed, and deleted, in " + took(start), p.clear(ctx, &k)
	case err == nil:
		err = finishOne(ctx, q)
	}
	if err != nil {
		return "", errors.Join(err, p.clear(ctx, &k))
	}
	return "pushed, taken and finished in " + took(start), nil
}

func (p *probeUse) push(ctx context.Context, k *keys.Queue) error {
	_, err := queuescript.PushOne(ctx, p.client, queuescript.PushOneParams{
		Ready: k.Ready, Bodies: k.Bodies, Control: k.Control, Wake: k.Wake, Finished: k.Finished,
		ID: p.name, Body: []byte("doctor"),
	})
	if err != nil {
		return fmt.Errorf("push: %w", err)
	}
	return nil
}

func finishOne(ctx context.Context, q *queue.Queue) error {
	taken, err := q.Take(ctx, 1)
	if err != nil {
		return err
	}
	if len(taken.Deliveries) != 1 {
		return fmt.Errorf("jobs taken: %d, not the one that was pushed", len(taken.Deliveries))
	}
	return taken.Deliveries[0].Ack(ctx)
}

// clear deletes what a push may have left, also after Ctrl-C: unlike the keys of locks and calls, those of a queue do
// not expire. Every user that may push may delete: a push that is refused half-way takes back what it wrote.
func (p *probeUse) clear(ctx context.Context, k *keys.Queue) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), useWithin)
	defer cancel()
	err := p.client.Del(ctx, k.Ready, k.Bodies, k.Leases, k.Failures, k.Dead, k.Finished).Err()
	if err != nil {
		return fmt.Errorf("its job may stay in queue %q, and cannot be deleted: %w; delete the keys %s and %s",
			p.name, err, k.Ready, k.Bodies)
	}
	return nil
}
