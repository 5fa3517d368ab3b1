package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/internal/operate"
	"github.com/luatomic/luatomic/internal/servers"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/queue"
	"github.com/luatomic/luatomic/rpc"
)

// topView is what was read of a server at one time.
type topView struct {
	at      time.Time     // of the last read that the server answered; zero before
	ahead   time.Duration // of the server's clock, at that read
	away    error         // why it does not answer now
	history string        // that it has lost data, or was restarted
	queues  topPart[topQueue]
	running topPart[topJob]
	locks   topPart[topLock]
	nodes   topPart[topNode]
}

// topPart are the rows of one table.
type topPart[T any] struct {
	rows []T
	err  error     // why they cannot be read
	part bool      // the search ended before it had seen all
	at   time.Time // when they were read
}

type topQueue struct {
	queueRow
	oldest any
	queueRates
	idle   bool // jobs wait, and no process consumes the queue
	late   bool // a job has been ready for lateAfter
	hidden bool // it cannot be shown
}

type topJob struct {
	queue   string
	holding queue.Holding
	process string
}

type topLock struct {
	kind, name, holder string
	left               time.Duration
	waiting            int
}

type topNode struct {
	bus  string
	node rpc.Node
	rate *float64
}

// The bounds of one read. One answer is there within topWithin.
const (
	topQueues  = 100
	topLocks   = 200
	topBuses   = 20
	topScanFor = 500 * time.Millisecond
	topWithin  = 3 * time.Second
)

// topReader reads a server again and again.
type topReader struct {
	client redis.UniversalClient
	prefix string
	rates  *rates
	calls  operate.Meter
	view   topView
	buses  []string
	// processes are those that consume, as far as this user may read them.
	processes []queue.Worker
	consumed  bool // processes is what the server has now
	// scan is when the keys may be searched again.
	scan time.Time
}

func newTopReader(client redis.UniversalClient, prefix string) *topReader {
	return &topReader{client: client, prefix: prefix, rates: newRates()}
}

// every sends what it reads, until the context ends.
func (r *topReader) every(ctx context.Context, every time.Duration, views chan<- topView) {
	for {
		r.read(ctx)
		select {
		case <-ctx.Done():
			return
		case views <- r.view:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(every):
		}
	}
}

// read makes a new view. What the user may not see says so in its place; of a server that does not answer all stays.
func (r *topReader) read(ctx context.Context) {
	next := r.view
	var server time.Time
	next.away = inTime(ctx, func(ctx context.Context) (err error) {
		server, err = servers.Time(ctx, r.client, keys.NewFleet(r.prefix).Workers)
		return err
	})
	if isAway(next.away) {
		r.view.away = next.away
		return
	}
	next.at, next.ahead = time.Now(), 0
	if next.away == nil {
		next.ahead = server.Sub(next.at)
	}
	next.away = nil
	_ = inTime(ctx, func(ctx context.Context) (err error) {
		next.history, _, err = historyText(ctx, r.client, r.prefix)
		return err
	})
	next.running = readPart(ctx, r, r.readRunning)
	next.queues = readPart(ctx, r, r.readQueues)
	if now := time.Now(); now.After(r.scan) {
		next.locks = readPart(ctx, r, r.readLocks)
		next.nodes.part, next.nodes.err = r.findBuses(ctx)
		r.scan = time.Now().Add(10 * time.Since(now))
	}
	if next.nodes.err == nil {
		part := next.nodes.part
		next.nodes = readPart(ctx, r, r.readNodes)
		next.nodes.part = part || next.nodes.part
	}
	for _, err := range []error{next.queues.err, next.running.err, next.locks.err, next.nodes.err} {
		if isAway(err) {
			r.view.away = err
			return
		}
	}
	r.view = next
}

// inTime asks the server for something, for as long as one answer may take.
func inTime(ctx context.Context, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, topWithin)
	defer cancel()
	return ask(ctx)
}

// readPart reads the rows of one table. Those of a server that is away are missing where there are several: the one
// that has the list of queues has answered.
func readPart[T any](ctx context.Context, r *topReader,
	read func(context.Context) ([]T, bool, error)) (p topPart[T]) {
	p.at = time.Now()
	p.rows, p.part, p.err = read(ctx)
	p.part, p.err = r.partly(ctx, p.part, p.err)
	return p
}

func (r *topReader) partly(ctx context.Context, part bool, err error) (bool, error) {
	if isAway(err) {
		if all, _ := servers.Masters(ctx, r.client); len(all) > 1 {
			return true, nil
		}
	}
	return part, err
}

func (r *topReader) readQueues(ctx context.Context) (out []topQueue, part bool, err error) {
	var queues []*queue.Queue
	err = inTime(ctx, func(ctx context.Context) (err error) {
		queues, err = queue.Queues(ctx, r.client, &queue.Options{Prefix: r.prefix})
		return err
	})
	if part = len(queues) > topQueues; part {
		queues = queues[:topQueues]
	}
	out = make([]topQueue, len(queues))
	errs := servers.EachQueue(ctx, r.client, queues, func(ctx context.Context, i int) error {
		return inTime(ctx, func(ctx context.Context) (err error) {
			out[i], err = r.readQueue(ctx, queues[i])
			return err
		})
	})
	var hidden hiddenQueues
	var away error
	for i, of := range errs {
		out[i].Queue, out[i].Tag, out[i].hidden = label(queues[i].Name()), label(queues[i].Tag()), of != nil
		if ofOneQueue(of) {
			hidden.add(of)
		} else {
			away = cmp.Or(away, of)
		}
	}
	if hidden.n == len(out) { // not one queue, but the user
		away = errors.Join(away, hidden.err())
	}
	err = errors.Join(err, away)
	slices.SortStableFunc(out, func(a, b topQueue) int {
		return cmp.Or(cmp.Compare(b.alarm(), a.alarm()), cmp.Compare(b.Ready+b.Leased, a.Ready+a.Leased))
	})
	return out, part, err
}

// lateAfter is how long a job is ready before top marks its queue.
const lateAfter = 5 * time.Minute

// alarm is above 0 for a queue that needs a person: those come first.
func (q topQueue) alarm() int {
	switch {
	case q.Lapsed > 0:
		return 3
	case q.idle:
		return 2
	case q.late:
		return 1
	}
	return 0
}

func (r *topReader) readQueue(ctx context.Context, q *queue.Queue) (out topQueue, err error) {
	st, err := q.Stats(ctx)
	if err != nil {
		return out, err
	}
	out.Ready, out.Scheduled, out.Leased, out.Dead, out.Paused = st.Ready, st.Scheduled, st.Leased, st.Dead, st.Paused
	out.Lapsed, out.idle = st.Lapsed, r.consumed && waiting(st) && q.ConsumedBy(r.processes) == 0
	oldest := st.Oldest.Or(st.Now)
	out.late = st.Now.Sub(oldest) >= lateAfter
	out.oldest = strings.TrimSuffix(ago(st.Oldest.Or(time.Time{}), st.Now), " ago")
	out.queueRates, err = r.rates.of(ctx, q, st)
	return out, err
}

// readRunning lists the jobs that processes have, those they have had longest first.
func (r *topReader) readRunning(ctx context.Context) (out []topJob, _ bool, err error) {
	var workers []queue.Worker
	err = inTime(ctx, func(ctx context.Context) (err error) {
		workers, err = queue.Workers(ctx, r.client, r.prefix)
		return err
	})
	r.processes, r.consumed = workers, err == nil
	for _, w := range workers {
		for _, c := range w.Consumers {
			for _, h := range c.Holding {
				out = append(out, topJob{tagged(label(c.Queue), label(c.Tag)), h, fmt.Sprintf("%s %d", w.Host, w.PID)})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b topJob) int { return a.holding.Since.Compare(b.holding.Since) })
	return out, false, err
}

func (r *topReader) readLocks(ctx context.Context) (out []topLock, part bool, err error) {
	locker := lock.New(r.client, &lock.Options{Prefix: r.prefix})
	defer func() { _ = locker.Close() }()
	within, cancel := context.WithTimeout(ctx, topScanFor)
	defer cancel()
	add := func(l topLock) bool {
		if part = len(out) >= topLocks; !part {
			out = append(out, l)
		}
		return !part
	}
	err = errors.Join(
		eachOf(locker.List(within), func(i lock.Info) bool {
			holder := i.Note
			if !i.Held {
				holder = "free"
			}
			return add(topLock{"lock", i.Name, holder, i.Remaining, i.Waiting})
		}),
		eachOf(locker.ListRW(within), func(i lock.RWInfo) bool {
			return add(ofHolders("rw", i.Name, i.Holders, i.Waiting))
		}),
		eachOf(locker.ListSemaphores(within), func(i lock.SemaphoreInfo) bool {
			return add(ofHolders("semaphore", i.Name, i.Holders, i.Waiting))
		}))
	if err != nil && within.Err() != nil {
		part, err = true, nil
	}
	slices.SortFunc(out, func(a, b topLock) int {
		return cmp.Or(cmp.Compare(b.waiting, a.waiting), cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name))
	})
	return slices.Compact(out), part, err
}

// ofHolders is a lock with several holders, by the one who has it shortest.
func ofHolders(kind, name string, holders []lock.Permit, waiting int) topLock {
	out := topLock{kind: kind, name: name, waiting: waiting, holder: "free"}
	for i, h := range holders {
		if i == 0 || h.Remaining < out.left {
			out.holder, out.left = h.Note, h.Remaining
		}
	}
	if more := len(holders) - 1; more > 0 {
		out.holder = fmt.Sprintf("%s and %d more", out.holder, more)
	}
	return out
}

// eachOf calls f for what a list yields, until it has enough.
func eachOf[T any](list iter.Seq2[T, error], f func(T) bool) error {
	for v, err := range list {
		if err != nil {
			return err
		}
		if !f(v) {
			return nil
		}
	}
	return nil
}

func (r *topReader) findBuses(ctx context.Context) (part bool, err error) {
	within, cancel := context.WithTimeout(ctx, topScanFor)
	defer cancel()
	names, err := servers.Buses(within, r.client, r.prefix)
	if err != nil && within.Err() != nil {
		part, err = true, nil
	}
	if part {
		names = append(names, r.buses...) // those that were found before
		slices.Sort(names)
		names = slices.Compact(names)
	}
	r.buses = names[:min(len(names), topBuses)]
	return r.partly(ctx, part || len(names) > topBuses, err)
}

func (r *topReader) readNodes(ctx context.Context) (out []topNode, _ bool, err error) {
	live := make([][]rpc.Node, len(r.buses))
	errs := servers.EachBus(ctx, r.client, r.buses, func(ctx context.Context, i int) error {
		bus, err := rpc.New(r.client, r.buses[i], &rpc.Options{Prefix: r.prefix})
		if err != nil {
			return nil // another program wrote it
		}
		return inTime(ctx, func(ctx context.Context) (err error) {
			live[i], err = bus.Nodes(ctx)
			return err
		})
	})
	for i, name := range r.buses {
		for _, n := range live[i] {
			out = append(out, topNode{name, n, known(r.calls.Rate(name+"\n"+n.Node, n.Handled, time.Now()))})
		}
	}
	slices.SortFunc(out, func(a, b topNode) int {
		return cmp.Or(cmp.Compare(b.node.Running, a.node.Running), cmp.Compare(a.bus, b.bus),
			cmp.Compare(a.node.Node, b.node.Node))
	})
	return out, false, errors.Join(errs...)
}
