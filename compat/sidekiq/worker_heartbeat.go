package sidekiq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/luatomic/luatomic/compat/sidekiq/internal/script"
	"github.com/luatomic/luatomic/lua"
)

// ErrStrayJob reports that a process's hash has an entry that no worker of this package wrote. The entry is kept.
var ErrStrayJob = errors.New("sidekiq: an entry of a working hash is no job")

// longestBeat is the longest time between two heartbeats; the Busy page shows a process for a minute after one.
const longestBeat = 10 * time.Second

// heartbeats renews the lease of the process and rescues the jobs of dead ones, until stop is closed. A heartbeat that
// has begun goes on until ctx ends.
func (w *worker) heartbeats(ctx context.Context, stop <-chan struct{}) {
	tick := time.NewTicker(max(min(w.o.Lease/3, longestBeat), time.Millisecond))
	defer tick.Stop()
	for {
		if err := w.heartbeat(ctx, stop); err != nil && !closed(stop) {
			w.report(err, nil)
		}
		select {
		case <-tick.C:
		case <-stop:
			return
		}
	}
}

func (w *worker) heartbeat(ctx context.Context, stop <-chan struct{}) error {
	last := w.lastStarted()
	r, err := script.WorkerBeat(ctx, w.d.client, script.WorkerBeatParams{
		Processes: w.d.processesKey(), Process: w.process, Lease: w.o.Lease, Max: 100,
	})
	if err != nil {
		return err
	}
	if !r.Known {
		w.takenBack(last, r.Now)
	}
	var faults []error
	for _, process := range r.Lapsed {
		if closed(stop) {
			return errors.Join(faults...)
		}
		n, err := w.requeue(ctx, process, true)
		w.rescued.Add(int64(n))
		faults = append(faults, err)
	}
	faults = append(faults, w.flushMetrics())
	if w.o.WebUI {
		faults = append(faults, w.show(ctx))
	}
	return errors.Join(faults...)
}

// requeue puts the jobs of a process back into their queues, the oldest to be served first. The process leaves the
// Busy page with the last of them. With lapsed it stops when the process is alive after all. A queue that the server
// refuses keeps no jobs of another queue from theirs.
func (w *worker) requeue(ctx context.Context, process string, lapsed bool) (n int, err error) {
	key := w.d.workingKey(process)
	entries, err := w.d.client.HGetAll(ctx, key).Result()
	if err != nil {
		return 0, fmt.Errorf("sidekiq: jobs of %s: %w", process, err)
	}
	groups, stray := w.byQueue(entries)
	if len(groups) == 0 {
		// This also removes a process without jobs from the list.
		groups = append(groups, group{queue: w.o.Queues[0].Name})
	}
	var refused []error
	for _, g := range groups {
		returned, alive, err := w.requeueGroup(ctx, process, lapsed, g)
		n += returned
		var reply *lua.Error
		switch {
		case err != nil && errors.As(err, &reply) && reply.Code != "":
			refused = append(refused, err)
		case err != nil || alive:
			return n, errors.Join(append(refused, err)...)
		}
	}
	if stray > 0 {
		refused = append(refused, fmt.Errorf("%w: %d of %s", ErrStrayJob, stray, key))
	}
	return n, errors.Join(refused...)
}

// requeueGroup puts the jobs of one queue back, some in each call.
func (w *worker) requeueGroup(ctx context.Context, process string, lapsed bool, g group) (n int, alive bool, err error) {
	for first := true; first || len(g.ids) > 0; first = false {
		size := min(len(g.ids), 1000)
		r, err := script.WorkerReturn(ctx, w.d.client, script.WorkerReturnParams{
			Processes: w.d.processesKey(), Working: w.d.workingKey(process), Queues: w.d.key("queues"),
			Queue: w.d.queueKey(g.queue), Page: w.d.key("processes"), Shown: w.d.key(process),
			Running: w.d.key(process + w.workSuffix()), Signals: w.signalsKey(process),
			Process: process, Lapsed: lapsed, Name: g.queue, Jobs: g.ids[:size],
		})
		n += int(r.Returned)
		if err != nil || r.State == script.WorkerReturnStateAlive {
			return n, err == nil, err
		}
		g.ids = g.ids[size:]
	}
	return n, false, nil
}

// group is the jobs of one queue; the last is served first.
type group struct {
	queue string
	ids   []int64
}

func (w *worker) byQueue(entries map[string]string) (groups []group, stray int) {
	at := make(map[string]int)
	for field, entry := range entries {
		if field == "last" { // the highest number that was handed out
			continue
		}
		id, queue, ok := w.d.readEntry(field, entry)
		if !ok {
			stray++
			continue
		}
		i, known := at[queue]
		if !known {
			i = len(groups)
			at[queue] = i
			groups = append(groups, group{queue: queue})
		}
		groups[i].ids = append(groups[i].ids, id)
	}
	for _, g := range groups {
		slices.SortFunc(g.ids, func(a, b int64) int { return cmp.Compare(b, a) })
	}
	return groups, stray
}

// readEntry parses the number and the queue of a hash entry.
func (d *Dialect) readEntry(field, entry string) (id int64, queue string, ok bool) {
	id, err := strconv.ParseInt(field, 10, 64)
	size, rest, found := strings.Cut(entry, ":")
	n, badSize := strconv.Atoi(size)
	if err != nil || badSize != nil || !found || n < 0 || n > len(rest) {
		return 0, "", false
	}
	queue, ours := strings.CutPrefix(rest[:n], d.queueKey(""))
	return id, queue, ours
}
