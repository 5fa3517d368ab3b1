package operate

import (
	"context"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/internal/servers"
)

// Job is an id, with its score in the set or the stamp of its entry in the list.
type Job struct {
	ID    string
	Score int64
	Rank  int // in a list, how many entries are nearer to its tail
}

// pageSize is how many ids one command reads.
const pageSize = 1000

// Reader reads the ids under one key.
type Reader struct {
	client redis.UniversalClient
	key    string
	list   bool

	over bool
	last int64           // the rank in the list to go on from
	from float64         // the score to go on from
	seen map[string]bool // what the next page may have again
	past *Job            // the jobs of a set up to this one are passed over
}

// ReadList returns a reader of a list of entries stamp:id, from its tail to its head. A job that is pushed meanwhile
// may be read or not, and one may be read again.
func ReadList(client redis.UniversalClient, key string) *Reader {
	return &Reader{client: client, key: key, list: true, last: -1}
}

// ReadSet returns a reader of a sorted set, from the smallest score. It reads no id twice, unless its score grows
// meanwhile.
func ReadSet(client redis.UniversalClient, key string) *Reader {
	return &Reader{client: client, key: key, from: math.Inf(-1)}
}

// Skip passes over the first n entries of a list, from its tail. What was pushed meanwhile shows some of them again.
func (r *Reader) Skip(n int) { r.last = int64(-1 - n) }

// Behind has a sorted set be read on behind a job, which may have left it. Jobs of one score are in the order of their
// ids.
func (r *Reader) Behind(j Job) { r.from, r.past = float64(j.Score), &j }

// Passed is how many entries of a list were read or skipped.
func (r *Reader) Passed() int { return int(-1 - r.last) }

// Over reports whether no page is left.
func (r *Reader) Over() bool { return r.over }

// Next reads the next page, which may be empty although others follow.
func (r *Reader) Next(ctx context.Context) ([]Job, error) {
	if r.list {
		return r.before(ctx)
	}
	return r.on(ctx)
}

// before reads the entries before those of the page before. What is pushed meanwhile only shows some of them again.
func (r *Reader) before(ctx context.Context) ([]Job, error) {
	first := r.last - pageSize + 1
	entries, err := servers.Read(ctx, r.client, redis.NewStringSliceCmd(ctx, "lrange", r.key, first, r.last)).Result()
	if err != nil {
		return nil, err
	}
	before, rank := r.seen, r.Passed()
	r.seen, r.last, r.over = make(map[string]bool), first-1, len(entries) < pageSize
	var page []Job
	for i, entry := range slices.Backward(entries) {
		stamp, id, ok := strings.Cut(entry, ":")
		ms, err := strconv.ParseInt(stamp, 10, 64)
		if !ok || err != nil { // a foreign entry names no job
			continue
		}
		if r.seen[id] = true; !before[id] {
			page = append(page, Job{id, ms, rank + len(entries) - 1 - i})
		}
	}
	return page, nil
}

// on reads on from the score of the page before. The jobs of that score are read again, and passed over: the page is so
// large that others follow.
func (r *Reader) on(ctx context.Context) ([]Job, error) {
	n := pageSize + 2*len(r.seen)
	from := strconv.FormatFloat(r.from, 'f', -1, 64)
	jobs, err := servers.Read(ctx, r.client, redis.NewZSliceCmd(ctx, "zrange", r.key, from, "+inf", "byscore",
		"limit", 0, n, "withscores")).Result()
	if err != nil {
		return nil, err
	}
	r.over = len(jobs) < n
	var page []Job
	for _, z := range jobs {
		id, _ := z.Member.(string)
		switch {
		case z.Score != r.from || r.seen == nil:
			r.from, r.seen = z.Score, make(map[string]bool)
		case r.seen[id]:
			continue
		}
		r.seen[id] = true
		if r.past == nil || z.Score != float64(r.past.Score) || id > r.past.ID {
			page = append(page, Job{ID: id, Score: int64(z.Score)})
		}
	}
	return page, nil
}
