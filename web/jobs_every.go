package web

import (
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/internal/nodes"
	"github.com/luatomic/luatomic/queue"
)

// everyJob reads all jobs of a state while consumers take some and promoters move others. A rank is no place to go on
// from: each job that leaves before it moves those behind it up, and one of them is passed over. The ready list is read
// from its tail, by ranks that count from there, which what is taken from its head does not move. Scheduled and dead
// jobs are read on from a score.
type everyJob struct {
	queue  *queue.Queue
	client redis.UniversalClient
	state  queue.State
	keys   keys.Queue
	means  func(at time.Time) bool // whether a job of that time is to be looked up

	from  float64         // the score to go on from
	last  int64           // the rank in the list to go on from
	step  int             // how many jobs are looked up at once
	seen  map[string]bool // what the next page may have again
	page  []timedID       // what is read and not looked up
	over  bool            // no page is left
	found int             // jobs that were looked up and are in the state
	bytes int             // of their bodies
}

// timedID is a job with its time in the list of its state.
type timedID struct {
	id string
	at time.Time
}

// idStep is how many ids one command reads.
const idStep = 1000

func (h *handler) everyJob(of *queue.Queue, state queue.State, means func(time.Time) bool) (*everyJob, error) {
	k, err := keys.NewQueue(h.opts.Prefix, of.Tag(), of.Name())
	return &everyJob{
		queue: of, client: h.writer, state: state, keys: k, means: means,
		from: math.Inf(-1), last: -1, step: changeStep, seen: make(map[string]bool),
	}, err
}

func (e *everyJob) ended() bool { return e.over && len(e.page) == 0 }

// next looks the next jobs up, at most a step and fewer where their bodies are large, and returns those that are in the
// state.
func (e *everyJob) next(ctx context.Context) ([]queue.Peeked, error) {
	if len(e.page) == 0 {
		if err := e.read(ctx); err != nil {
			return nil, err
		}
	}
	n := min(e.step, len(e.page))
	if e.bytes > 0 {
		n = min(n, max(stepBytes*e.found/e.bytes, 1))
	}
	asked := e.page[:n]
	e.page = e.page[n:]
	ids := make([]string, n)
	for i, j := range asked {
		ids[i] = j.id
	}
	all, err := e.queue.Find(ctx, ids...)
	if err != nil {
		return nil, err
	}
	var jobs []queue.Peeked
	for i, f := range all {
		if f.State != e.state { // it has left, or was cancelled or buried and has its entry in the list still
			continue
		}
		if f.At.IsZero() {
			f.At = asked[i].at
		}
		e.found, e.bytes = e.found+1, e.bytes+len(f.Body)
		jobs = append(jobs, f.Peeked)
	}
	return jobs, nil
}

// some are up to most of the next jobs that match the filter. What they leave of those that it looked up comes again.
func (e *everyJob) some(ctx context.Context, f *jobFilter, most int) (ids []string, _ error) {
	jobs, err := e.next(ctx)
	var rest []timedID
	for i := range jobs {
		switch j := &jobs[i]; {
		case !f.matches(j):
		case len(ids) < most:
			ids = append(ids, j.ID)
		default:
			rest = append(rest, timedID{j.ID, j.At})
		}
	}
	e.page = append(rest, e.page...)
	return ids, err
}

// read reads a page of ids.
func (e *everyJob) read(ctx context.Context) error {
	switch e.state {
	case queue.Ready:
		return e.readList(ctx, e.keys.Ready)
	case queue.Scheduled:
		return e.readSet(ctx, e.keys.Scheduled)
	}
	return e.readSet(ctx, e.keys.Dead)
}

// readList reads the entries before those of the page before. What is pushed meanwhile only shows some of them again.
func (e *everyJob) readList(ctx context.Context, key string) error {
	first := e.last - idStep + 1
	entries, err := nodes.Read(ctx, e.client, redis.NewStringSliceCmd(ctx, "lrange", key, first, e.last)).Result()
	if err != nil {
		return err
	}
	before := e.seen
	e.seen, e.last, e.over = make(map[string]bool), first-1, len(entries) < idStep
	for _, entry := range slices.Backward(entries) {
		stamp, id, ok := strings.Cut(entry, ":")
		ms, err := strconv.ParseInt(stamp, 10, 64)
		if !ok || err != nil || before[id] { // a foreign entry names no job
			continue
		}
		e.add(id, ms)
	}
	return nil
}

// readSet reads on from the score of the page before. The jobs of that score are read again, and passed over: the page
// is so large that others follow.
func (e *everyJob) readSet(ctx context.Context, key string) error {
	n := idStep + 2*len(e.seen)
	from := strconv.FormatFloat(e.from, 'f', -1, 64)
	jobs, err := nodes.Read(ctx, e.client, redis.NewZSliceCmd(ctx, "zrange", key, from, "+inf", "byscore",
		"limit", 0, n, "withscores")).Result()
	if err != nil {
		return err
	}
	e.over = len(jobs) < n
	for _, z := range jobs {
		id, _ := z.Member.(string)
		switch {
		case z.Score != e.from:
			e.from, e.seen = z.Score, make(map[string]bool)
		case e.seen[id]:
			continue
		}
		e.add(id, int64(z.Score))
	}
	return nil
}

func (e *everyJob) add(id string, ms int64) {
	e.seen[id] = true
	if at := time.UnixMilli(ms); e.means(at) {
		e.page = append(e.page, timedID{id, at})
	}
}
