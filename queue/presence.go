package queue

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/internal/clock"
	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/lua"
)

const (
	reportEvery = 5 * time.Second
	reportLease = 3 * reportEvery
	// leftLease is the lease of a process without consumers, which leaves the list.
	leftLease = time.Millisecond
	joinDelay = 50 * time.Millisecond
	// epochFor is how long a process trusts its last reply. The list of processes expires after a day without a report.
	epochFor    = 12 * time.Hour
	maxReported = 200 // queues in one report
	maxHeld     = 100 // jobs of one consumer in a report
	// maxAbout bounds the description of a process. Each report has it, and each call of Workers reads it.
	maxAbout = MaxBatchBytes / 2
)

// presence reports the consumers of a process on one server: one report every five seconds for all of them. It runs as
// long as any of them does.
type presence struct {
	place   place
	keys    keys.Fleet
	process string
	started time.Time
	stop    context.CancelFunc
	joined  chan struct{} // a consumer has joined
	shared  bool          // with the other consumers of the place

	mu        sync.Mutex // guards consumers and what is counted but not yet reported
	consumers []*consumer
	counts    map[string]*queuescript.ReportEntry

	sending sync.Mutex // guards what follows: one report at a time
	number  int64
	epoch   string                     // of the server's list of processes, by the last reply
	known   int64                      // the number of the last report that had a reply
	told    time.Time                  // when it came
	unsent  []queuescript.ReportParams // the server has not answered the first; they come before others
	failed  bool                       // the last report failed, and the consumers know
	silent  bool                       // since the server did not answer
}

// place is where a presence reports to. Each client that cannot be compared has a place of its own.
type place struct {
	client lua.Client
	prefix string
}

var presences struct {
	sync.Mutex
	at map[place]*presence
}

// joinPresence lets the process report the consumer until it leaves.
func joinPresence(c *consumer) *presence {
	first := c.queues[0]
	at := place{first.client, first.opts.Prefix}
	if !reflect.TypeOf(at.client).Comparable() {
		return newPresence(at).join(c)
	}
	presences.Lock()
	defer presences.Unlock()
	p := presences.at[at]
	if p == nil {
		p = newPresence(at)
		if presences.at == nil {
			presences.at = make(map[place]*presence)
		}
		p.shared, presences.at[at] = true, p
	}
	return p.join(c)
}

func newPresence(at place) *presence {
	ctx, stop := context.WithCancel(context.Background())
	p := &presence{
		place: at, keys: keys.NewFleet(at.prefix), process: uuid.NewString(), started: time.Now(), stop: stop,
		joined: make(chan struct{}, 1), counts: make(map[string]*queuescript.ReportEntry),
	}
	go p.run(ctx)
	return p
}

func (p *presence) join(c *consumer) *presence {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.consumers = append(p.consumers, c)
	for _, q := range c.queues {
		p.entry(q.keys.Listed) // also of a consumer that leaves before the next report
		q.listing.named.Store(true)
	}
	select {
	case p.joined <- struct{}{}:
	default:
	}
	return p
}

// leave sends the last counts of a consumer. The leave of the last consumer ends the presence.
func (p *presence) leave(c *consumer) {
	presences.Lock()
	p.mu.Lock()
	p.consumers = slices.DeleteFunc(p.consumers, func(other *consumer) bool { return other == c })
	last := len(p.consumers) == 0
	p.mu.Unlock()
	if last {
		p.stop()
	}
	if last && p.shared {
		delete(presences.at, p.place)
	}
	presences.Unlock()
	p.sending.Lock()
	silent := p.silent
	p.sending.Unlock()
	if silent {
		return // an unreachable server must not delay a stop
	}
	ctx, cancel := context.WithDeadline(context.Background(), c.settleBy())
	defer cancel()
	p.report(ctx)
}

func (p *presence) run(ctx context.Context) {
	next := time.NewTicker(reportEvery)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.joined:
			clock.Sleep(ctx, joinDelay) // others join in the same moment
		case <-next.C:
		}
		p.report(ctx)
	}
}

// count adds what became of a job to the next report.
func (p *presence) count(queue string, processed, failed, dead, expired int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.entry(queue)
	e.Processed, e.Failed, e.Dead, e.Expired = e.Processed+processed, e.Failed+failed, e.Dead+dead, e.Expired+expired
}

// entry returns what is counted for a queue. The caller holds p.mu.
func (p *presence) entry(queue string) *queuescript.ReportEntry {
	e := p.counts[queue]
	if e == nil {
		e = &queuescript.ReportEntry{Queue: queue}
		p.counts[queue] = e
	}
	return e
}

// report sends what has happened since the last report. Before that it repeats a report that had no answer, under the
// same number.
func (p *presence) report(ctx context.Context) {
	p.sending.Lock()
	defer p.sending.Unlock()
	lost, err := p.send(ctx)
	if len(p.unsent) == 0 {
		p.unsent = p.next()
		more, failed := p.send(ctx)
		lost, err = lost || more, cmp.Or(err, failed)
	}
	p.warn(ctx, err)
	if lost && ctx.Err() == nil {
		p.sayLost(ctx)
	}
}

// send sends the reports that wait, until one has no answer. A report that the server refused does not block the
// others: the next report counts what it counted.
func (p *presence) send(ctx context.Context) (lost bool, failed error) {
	for len(p.unsent) > 0 {
		sent := p.unsent[0]
		r, err := queuescript.Report(ctx, p.place.client, sent)
		failed = cmp.Or(failed, err)
		if err == nil {
			lost = lost || r.Lost
			// The clock on the wall goes on while a machine sleeps.
			p.epoch, p.known, p.told = r.Epoch, sent.Number, time.Now().Round(0)
		}
		if unanswered(err) {
			break
		}
		if err != nil && !errors.Is(err, lua.ErrBadReply) { // of a report that has run
			for _, e := range p.unsent[0].Entries {
				p.count(e.Queue, e.Processed, e.Failed, e.Dead, e.Expired)
			}
		}
		p.unsent = p.unsent[1:]
	}
	return lost, failed
}

// unanswered reports whether the server has not said what became of the call.
func unanswered(err error) bool {
	var e *lua.Error
	return errors.As(err, &e) && (e.Code == "" || e.Outcome == lua.ErrOutcomeUnknown)
}

// sayLost passes a loss to the consumers.
func (p *presence) sayLost(ctx context.Context) {
	p.mu.Lock()
	consumers := slices.Clone(p.consumers)
	p.mu.Unlock()
	for _, c := range consumers {
		c.report(ctx, c.queues[0].wrap("report the consumer of", ErrDataLost))
	}
}

// warn passes the first error of a series of failed reports to the consumers.
func (p *presence) warn(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	known := p.failed
	if p.failed, p.silent = err != nil, unanswered(err); err == nil || known {
		return
	}
	p.mu.Lock()
	consumers := slices.Clone(p.consumers)
	p.mu.Unlock()
	for _, c := range consumers {
		c.report(ctx, c.queues[0].wrap("report the consumer of", err))
	}
}

// next returns the reports of what has happened since the last ones. They name all queues of the consumers, because the
// server may have lost the list of queues. After the last consumer has left, each report
// removes the process from the list, whichever consumer makes it: consumers that leave together report in any order.
func (p *presence) next() (out []queuescript.ReportParams) {
	p.mu.Lock()
	lease := reportLease
	if len(p.consumers) == 0 {
		lease = leftLease
	}
	for _, c := range p.consumers {
		for _, q := range c.queues {
			p.entry(q.keys.Listed)
		}
	}
	entries := make([]queuescript.ReportEntry, 0, len(p.counts))
	for _, e := range p.counts {
		entries = append(entries, *e)
	}
	clear(p.counts)
	w := p.describe()
	p.mu.Unlock()
	about := encodeWorker(w)
	for first := true; first || len(entries) > 0; first = false {
		chunk := entries[:min(len(entries), maxReported)]
		entries = entries[len(chunk):]
		p.number++
		params := fleetParams(p.keys, p.process, p.number, lease, about, chunk)
		if time.Now().Round(0).Sub(p.told) < epochFor {
			params.Epoch, params.Known = p.epoch, p.known
		}
		out = append(out, params)
	}
	return out
}

// describe returns the description of the process. The caller holds p.mu.
func (p *presence) describe() Worker {
	host, _ := os.Hostname()
	w := Worker{Host: host, PID: os.Getpid(), Version: programVersion(), Started: p.started.Truncate(time.Millisecond)}
	for _, c := range p.consumers {
		for _, q := range c.queues {
			w.Consumers = append(w.Consumers, c.describe(q))
		}
	}
	return w
}

// encodeWorker returns the description as the server keeps it, with as many jobs of each consumer as fit. It leaves out
// the consumers if they do not fit even without jobs.
func encodeWorker(w Worker) []byte {
	for most := maxHeld; ; most /= 2 {
		for i := range w.Consumers {
			of := &w.Consumers[i]
			of.Holding = of.Holding[:min(len(of.Holding), most)]
		}
		text, err := json.Marshal(w)
		switch {
		case err != nil:
			return nil // a host name is text
		case len(text) <= maxAbout || w.Consumers == nil:
			return text
		case most == 0:
			w.Consumers = nil
		}
	}
}

// describe returns what the consumer has from the queue. The job that it has had for the longest time comes first.
func (c *consumer) describe(q *Queue) WorkerConsumer {
	w := WorkerConsumer{Queue: q.name, Tag: q.opts.Tag, Concurrency: c.opts.Concurrency}
	c.mu.Lock()
	for d := range c.held {
		if d.queue == q {
			w.Holding = append(w.Holding, Holding{ID: d.ID, Kind: d.Kind, Attempt: d.Attempt, Since: d.taken})
		}
	}
	c.mu.Unlock()
	slices.SortFunc(w.Holding, func(a, b Holding) int { return a.Since.Compare(b.Since) })
	w.Holds = len(w.Holding)
	return w
}

// programVersion is the version of the main module, or the revision that it was built from.
var programVersion = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && info.Main.Version == "(devel)" {
			return s.Value
		}
	}
	return info.Main.Version
})

// fleetParams returns the parameters of one report. The day is that of the process' clock, in UTC.
func fleetParams(k keys.Fleet, process string, number int64, lease time.Duration, about []byte,
	entries []queuescript.ReportEntry) queuescript.ReportParams {
	return queuescript.ReportParams{
		Queues: k.Queues, Workers: k.Workers, About: k.About, Counts: k.Counts(dayOf(time.Now())),
		Process: process, Number: number, Lease: lease, Description: about, Entries: entries,
	}
}

func dayOf(t time.Time) string { return t.UTC().Format(time.DateOnly) }
