package observe

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/luatomic/luatomic/internal/send"
	"github.com/luatomic/luatomic/internal/servers"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/queue"
	"github.com/luatomic/luatomic/rpc"
)

// Census reads the gauges: what is in all queues of a prefix, who consumes them, and the nodes of buses. It needs no
// other part of this package, so a process that does nothing else can report for all processes.
type Census struct {
	Client lua.Client
	// Prefix is the queue.Options.Prefix of the queues.
	Prefix string
	// Buses are the buses whose nodes are counted, by their label. They need no Run.
	Buses map[string]*rpc.Bus
}

// Read reads each gauge once and passes its values to to. With an error, it still passes on what could be read. It ends
// with ctx, even if a server hangs. Cost: three reads, two more for each queue and one for each bus. It changes
// nothing. The reads of queues and buses run at the same time. A server that does not answer holds up the queues of no
// other one; nothing more is asked of it.
func (c *Census) Read(ctx context.Context, to Recorder) error {
	to = readable{to}
	values, ended := make(handed), make(chan error, 1)
	go func() { ended <- c.read(ctx, values) }()
	for {
		select {
		case give := <-values:
			give(to)
		case err := <-ended:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// handed is the Recorder of a read for which the caller may stop waiting: a read of go-redis can last longer than its
// context. Nothing is recorded after the caller has left.
type handed chan func(Recorder)

// Record implements Recorder.
func (h handed) Record(ctx context.Context, i *Instrument, value float64, labels ...string) {
	select {
	case h <- func(to Recorder) { to.Record(ctx, i, value, labels...) }:
	case <-ctx.Done():
	}
}

// read reads the queues and the buses, which may be on other servers, at the same time.
func (c *Census) read(ctx context.Context, to Recorder) error {
	var queues, buses []error
	var both sync.WaitGroup
	both.Go(func() { queues = c.readQueues(ctx, to) })
	both.Go(func() { buses = c.readBuses(ctx, to) })
	both.Wait()
	return errors.Join(distinct(append(queues, buses...))...)
}

// distinct leaves out what says the same again, as the queues of a server that does not answer do.
func distinct(errs []error) (out []error) {
	said := make(map[string]bool)
	for _, err := range errs {
		if err != nil && !said[err.Error()] {
			said[err.Error()] = true
			out = append(out, err)
		}
	}
	return out
}

func (c *Census) readQueues(ctx context.Context, to Recorder) []error {
	queues, err := queue.Queues(ctx, c.Client, &queue.Options{Prefix: c.Prefix})
	failed := []error{err}
	workers, err := queue.Workers(ctx, c.Client, c.Prefix)
	failed = append(failed, err)
	if err == nil {
		for _, q := range queues {
			to.Record(ctx, queueWorkers, float64(q.ConsumedBy(workers)), system, q.Name(), q.Tag())
		}
	}
	return append(failed, servers.EachQueue(ctx, c.Client, queues, func(ctx context.Context, i int) error {
		return readQueue(ctx, to, queues[i])
	})...)
}

func (c *Census) readBuses(ctx context.Context, to Recorder) []error {
	names := slices.Collect(maps.Keys(c.Buses))
	errs := make([]error, len(names))
	send.Abreast(len(names), func(i int) { errs[i] = readBus(ctx, to, names[i], c.Buses[names[i]]) })
	return errs
}

func readQueue(ctx context.Context, to Recorder, q *queue.Queue) error {
	st, err := q.Stats(ctx)
	if err != nil {
		return err
	}
	name, tag := q.Name(), q.Tag()
	for state, n := range map[string]int{
		"ready": st.Ready, "scheduled": st.Scheduled, "running": st.Leased, "dead": st.Dead,
	} {
		to.Record(ctx, queueJobs, float64(n), system, name, tag, state)
	}
	age, paused := 0.0, 0.0
	if oldest, ok := st.Oldest.Get(); ok {
		age = max(st.Now.Sub(oldest).Seconds(), 0)
	}
	if st.Paused {
		paused = 1
	}
	to.Record(ctx, queueOldest, age, system, name, tag)
	to.Record(ctx, queueLapsed, float64(st.Lapsed), system, name, tag)
	to.Record(ctx, queuePaused, paused, system, name, tag)
	to.Record(ctx, queueDead, float64(st.DeadBytes), system, name, tag)
	days, err := q.Counts(ctx, 1)
	if err != nil || len(days) == 0 {
		return err
	}
	d := days[0]
	for result, n := range map[string]int{
		"processed": d.Processed, "failed": d.Failed, "dead": d.Dead, "expired": d.Expired,
	} {
		to.Record(ctx, queueDay, float64(n), system, name, tag, result)
	}
	return nil
}

func readBus(ctx context.Context, to Recorder, name string, bus *rpc.Bus) error {
	nodes, err := bus.Nodes(ctx)
	if err != nil {
		return err
	}
	var running int64
	for _, n := range nodes {
		running += n.Running
	}
	to.Record(ctx, busNodes, float64(len(nodes)), name)
	to.Record(ctx, busRunning, float64(running), name)
	return nil
}
