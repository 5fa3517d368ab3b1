package queue

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/lua"
)

// MaxShards bounds the shards of one queue.
const MaxShards = 256

// Shards is a queue in n parts, the queues name.0 to name.(n-1). Each has a hash tag
// of its own, so they spread over the nodes of a Redis Cluster. What is promised of a
// Queue holds within a shard; between shards there is no order and no common step.
//
// A job belongs to the shard of its unique name or, without one, of its id: so a
// unique name is held once over all shards. An id is known once within its shard: the
// same id under two unique names can be there twice. Another n sends ids and names
// elsewhere; change it when the shards are empty. Methods are safe for concurrent use.
type Shards struct {
	name   string
	queues []*Queue
	turn   atomic.Uint32 // of the shard that Take begins with
}

// NewShards returns the queue of that name in n shards, 1 to MaxShards; nil options
// mean the defaults. Nothing is sent. The error is lua.ErrBadName or
// lua.ErrOutOfRange, or says that shards have no Tag.
func NewShards(client lua.Client, name string, n int, opts *Options) (*Shards, error) {
	if n < 1 || n > MaxShards {
		return nil, fmt.Errorf("luatomic: %w", &lua.RangeError{Field: "shards", Value: fmt.Sprint(n), Min: "1", Max: fmt.Sprint(MaxShards)})
	}
	if opts != nil && opts.Tag != "" {
		return nil, fmt.Errorf("luatomic: shards of %q: the tag %q would put them all into one slot; leave QueueOptions.Tag empty", name, opts.Tag)
	}
	s := &Shards{name: name, queues: make([]*Queue, n)}
	for i := range s.queues {
		var err error
		if s.queues[i], err = New(client, fmt.Sprintf("%s.%d", name, i), opts); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Queues are the shards in order, for what Shards has no method for: SetLimit, Audit,
// Peek, a Poller. The slice is the caller's.
func (s *Shards) Queues() []*Queue { return append([]*Queue(nil), s.queues...) }

// route is the shard of a unique name or id: FNV-1a of 64 bits, whose lowest bits see
// only the lowest bits of each byte, so it is mixed once more. Jobs that are there
// depend on it: it stays as it is.
func (s *Shards) route(text string) int {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text))
	x := h.Sum64()
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	return int((x ^ x>>33) % uint64(len(s.queues)))
}

// ShardsPushed is the result of a push to shards.
type ShardsPushed struct {
	// Pushed adds up the parts that went in. IDs are those of all jobs given, in
	// order; Now is the latest of the shards' times.
	Pushed
	// Token is what PushOnce needs to repeat the call.
	Token string
	// Parts are the shards that jobs were for, in the order of shards.
	Parts []ShardPushed
}

// ShardPushed is what became of the jobs for one shard: all went in, or none.
type ShardPushed struct {
	Shard int
	// Pushed has the ids of this part. Positions of duplicates are places in the
	// call.
	Pushed
	// Err is nil when the part went in.
	Err error

	jobs   []Job
	places []int
	named  bool // a job came with an id
}

// Push adds the jobs, each to its shard, all shards at once: one round trip. It is
// all or nothing for each shard, not for the call: when the error is not nil, Parts
// say which shards failed and why, and the others have their jobs. The error names the
// queues. To add what is missing, and nothing twice, repeat with PushOnce, the Token
// of the result and the same jobs.
//
// Wrong names, more than MaxBatch jobs or about MaxBatchBytes in all (lua.ErrTooLarge)
// are found before anything is sent to any shard. Cost: as Queue.Push.
func (s *Shards) Push(ctx context.Context, jobs ...Job) (ShardsPushed, error) {
	token, err := uuid.NewV7()
	if err != nil {
		return ShardsPushed{}, fmt.Errorf("luatomic: push: %w", err)
	}
	return s.push(ctx, token.String(), jobs, true)
}

// PushOnce is Push under a token of the caller. A repeat with the same token and the
// same jobs, within the receipt time, goes to the same shards: those that took their
// part answer as before and add nothing, the others try again. Jobs without an id may
// stay so: their ids are made of the token and their place in the call.
func (s *Shards) PushOnce(ctx context.Context, token string, jobs ...Job) (ShardsPushed, error) {
	return s.push(ctx, token, jobs, false)
}

// push adds the jobs; first says that nobody has used the token before. The ids that
// are made of it are new then and need no look-up. Those of an old token need one: the
// receipt may be gone and the jobs there.
func (s *Shards) push(ctx context.Context, token string, jobs []Job, first bool) (ShardsPushed, error) {
	out, err := s.split(token, jobs)
	if err != nil {
		return ShardsPushed{}, fmt.Errorf("luatomic: push to shards of %q: %w", s.name, err)
	}
	var wg sync.WaitGroup
	for i := range out.Parts {
		p := &out.Parts[i]
		wg.Go(func() { p.push(ctx, s.queues[p.Shard], token, first && !p.named) })
	}
	wg.Wait()
	errs := make([]error, len(out.Parts))
	for i, p := range out.Parts {
		errs[i] = p.Err
		out.Ready, out.Scheduled = out.Ready+p.Ready, out.Scheduled+p.Scheduled
		out.Duplicates = append(out.Duplicates, p.Duplicates...)
		out.Now = later(out.Now, p.Now)
	}
	return out, errors.Join(errs...)
}

// split checks the jobs, gives ids to those without, and parts them by shard.
func (s *Shards) split(token string, jobs []Job) (ShardsPushed, error) {
	out := ShardsPushed{Token: token, Pushed: Pushed{IDs: make([]string, len(jobs))}}
	if err := lua.CheckName("token", token); err != nil {
		return out, err
	}
	if len(jobs) > MaxBatch {
		return out, &lua.SizeError{What: "jobs", N: len(jobs), Max: MaxBatch, Unit: "items"}
	}
	base := uuid.NewHash(sha256.New(), uuid.NameSpaceOID, []byte(token), 8)
	parts, size := make([]ShardPushed, len(s.queues)), 4096 // room for the keys
	for i, j := range jobs {
		named := j.ID != ""
		if !named {
			binary.BigEndian.PutUint16(base[14:], uint16(i))
			j.ID = base.String()
		}
		if err := lay(&gen.QueuePushJob{}, &j); err != nil {
			return out, fmt.Errorf("job %d: %w", i, err)
		}
		size += len(j.ID) + len(j.Body) + len(j.Unique) + 32
		home := j.Unique
		if home == "" {
			home = j.ID
		}
		p := &parts[s.route(home)]
		p.named = p.named || named
		p.jobs, p.places, p.IDs = append(p.jobs, j), append(p.places, i), append(p.IDs, j.ID)
		out.IDs[i] = j.ID
	}
	if size > MaxBatchBytes {
		return out, &lua.SizeError{What: "jobs", N: size, Max: MaxBatchBytes, Unit: "bytes"}
	}
	for i := range parts {
		if parts[i].Shard = i; len(parts[i].jobs) > 0 {
			out.Parts = append(out.Parts, parts[i])
		}
	}
	return out, nil
}

func (p *ShardPushed) push(ctx context.Context, q *Queue, token string, fresh bool) {
	ids := p.IDs
	p.Pushed, p.Err = q.push(ctx, token, p.jobs, fresh)
	p.IDs = ids
	for i, d := range p.Duplicates {
		if d.Position < len(p.places) { // else the repeat gave other jobs
			p.Duplicates[i].Position = p.places[d.Position]
		}
	}
	p.jobs, p.places = nil, nil // the result need not keep the bodies
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// each calls f for all shards at once.
func (s *Shards) each(f func(i int, q *Queue) error) error {
	errs := make([]error, len(s.queues))
	var wg sync.WaitGroup
	for i, q := range s.queues {
		wg.Go(func() { errs[i] = f(i, q) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
