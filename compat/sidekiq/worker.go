package sidekiq

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Work's errors.
var (
	// ErrQueues says that the queues of a worker are none, or not ones it can have.
	ErrQueues = errors.New("sidekiq: bad queues")
	// ErrTakenBack is why the context of a handler ended: the lease of this process was over, and its jobs are in their queues again.
	ErrTakenBack = errors.New("sidekiq: the jobs of this process were taken back")
	// ErrStopped is why the context of a handler ended: Work was told to end, and the job goes back to its queue.
	ErrStopped = errors.New("sidekiq: the worker stops")
)

// Queue is one queue of a worker.
type Queue struct {
	Name string
	// Weight is how often the queue comes first, against the others. When no queue has one, they are served strictly in order.
	Weight int
}

// WorkOptions are the settings of Work. Nil means the defaults.
type WorkOptions struct {
	// Queues in order. Default: one, "default".
	Queues []Queue
	// Concurrency is how many handlers run at once, 500 at most. Default 10.
	Concurrency int
	// Lease is how long the jobs of a process that died stay in its hand. It is renewed at a third of that. Default 30 s.
	Lease time.Duration
	// Grace is how long handlers may go on when ctx ends; Sidekiq calls it timeout. Then their jobs go back. Default 25 s.
	Grace time.Duration
	// MaxRetries is for jobs whose retry is true or not there. Default 25.
	MaxRetries int
	// MaxDead and DeadFor bound the dead set; keep them as the Ruby processes have them. Default 10 000 jobs and 180 days.
	MaxDead int
	DeadFor time.Duration
	// WebUI shows this process and its jobs on Sidekiq's Busy page: it keeps its part of the processes set, in two commands a beat.
	WebUI bool
	// OnError, if set, sees failed calls, and the error of each job that failed with that job. It may be called from any goroutine.
	OnError func(err error, job *Delivery)
}

// Worked counts what a worker did.
type Worked struct {
	// Done are the jobs whose handlers returned no error.
	Done int
	// Retried, Dead and Dropped are the jobs that failed, by where they went: to the retry set, to the dead set, or nowhere because
	// their retry or their dead is false or the handler said Discard.
	Retried, Dead, Dropped int
	// Returned are those that did not finish in time when Work ended: they are in their queues again.
	Returned int
	// Lost are those that were not this process's any more when they ended. They ran, and will run again.
	Lost int
	// Rescued are jobs of other processes, dead ones, put back into their queues.
	Rescued int
}

// Handler performs one job. A nil error finishes it. Any other moves it to the retry set, or to the dead set after the last retry, as
// Sidekiq does; RetryIn, Kill and Discard say otherwise. A panic counts as an error. When ctx ends (ErrStopped, ErrTakenBack) the job
// runs again, here or elsewhere.
type Handler func(ctx context.Context, job *Delivery) error

// Handlers has a handler for each class of jobs.
type Handlers map[string]Handler

// Perform is the Handler that leaves each job to the one of its class, or of its wrapped class for a job of Active Job. A class without
// a handler is an error, called NameError as in Ruby.
func (h Handlers) Perform(ctx context.Context, job *Delivery) error {
	if perform := h[job.Class]; perform != nil {
		return perform(ctx, job)
	}
	if perform := h[job.Wrapped]; perform != nil {
		return perform(ctx, job)
	}
	return nameError(job.Class)
}

type nameError string

func (e nameError) Error() string      { return "uninitialized constant " + string(e) }
func (e nameError) ErrorClass() string { return "NameError" }

// Work takes jobs of the queues and runs the handler on each, until ctx ends. It is a worker process beside those of Ruby, without their
// poller: run a Poller too, somewhere, or leave that to Ruby.
//
// What it takes is in a hash of this process from that moment on, until it is done, or is in retry or in dead, or is back in its queue: each
// step is one script that adds first and removes then. When the lease of a process is over, any other puts back what its hash holds. So a
// job is performed at least once, also when the process is killed. Sidekiq's own workers have what they took in memory alone.
//
// One script finishes jobs and takes the next ones, in one round trip for all that are ready. On empty queues Work waits in one blocking
// command a queue, up to eight, which see a push at once; the queues after the eighth are looked at every 2 s. Retries, the dead set and
// the counters are written as Sidekiq writes them, by the server's clock.
//
// When ctx ends nothing more is taken, handlers get Grace to finish, and the jobs of those that do not are put back to be served next;
// such a handler's outcome counts no more. The blocking commands of an idle worker stay up to 2 s after it.
//
// Keys of its own: luatomic:sidekiq:working:<process>, a HASH of the number of a job to the length of its queue's key, a colon, that key and
// the payload; and luatomic:sidekiq:processes, a ZSET of processes scored by the ends of their leases in Unix ms. Cost: O(1) a job, and a
// beat of O(log n) at a third of the lease.
//
// Work goes on through failures that pass, such as a server that is away. It ends with the cause of ctx, or with a failure that no
// repeat can cure: lua.ErrWrongType, ErrQueues.
func (d *Dialect) Work(ctx context.Context, opts *WorkOptions, h Handler) (Worked, error) {
	w, err := newWorker(d, opts, h)
	if err != nil {
		return Worked{}, err
	}
	return w.run(ctx)
}

const (
	maxConcurrency = 500 // want of worker_take
	maxBlocked     = 8   // queues that are waited for by a blocking command of their own
	blockFor       = 2 * time.Second
)

func (o *WorkOptions) withDefaults() WorkOptions {
	var out WorkOptions
	if o != nil {
		out = *o
	}
	if len(out.Queues) == 0 {
		out.Queues = []Queue{{Name: "default"}}
	}
	orDefault(&out.Concurrency, 10)
	orDefault(&out.Lease, 30*time.Second)
	orDefault(&out.Grace, 25*time.Second)
	orDefault(&out.MaxRetries, 25)
	orDefault(&out.MaxDead, 10_000)
	orDefault(&out.DeadFor, 180*24*time.Hour)
	out.Concurrency = min(out.Concurrency, maxConcurrency)
	return out
}

func orDefault[T int | time.Duration](v *T, otherwise T) {
	if *v <= 0 {
		*v = otherwise
	}
}

// checkQueues wants each queue once: a script would hand out its jobs as often as its key is named.
func checkQueues(queues []Queue) (weighted bool, err error) {
	seen := make(map[string]bool, len(queues))
	for _, q := range queues {
		switch {
		case q.Name == "":
			return false, fmt.Errorf("%w: one has no name", ErrQueues)
		case seen[q.Name]:
			return false, fmt.Errorf("%w: %q stands there twice; give it a Weight", ErrQueues, q.Name)
		case q.Weight < 0:
			return false, fmt.Errorf("%w: the Weight of %q is below 0", ErrQueues, q.Name)
		}
		seen[q.Name] = true
		weighted = weighted || q.Weight > 0
	}
	if len(queues) > 1000 {
		return false, fmt.Errorf("%w: more than 1000", ErrQueues)
	}
	return weighted, nil
}

// identity names a process as Sidekiq does: its host, its number, and 12 hex digits.
func identity() string {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	nonce := make([]byte, 6)
	_, _ = rand.Read(nonce) // never fails
	return host + ":" + strconv.Itoa(os.Getpid()) + ":" + hex.EncodeToString(nonce)
}

func (d *Dialect) workingKey(process string) string {
	return d.key("luatomic:sidekiq:working:" + process)
}

func (d *Dialect) processesKey() string { return d.key("luatomic:sidekiq:processes") }

// queueName is the name in the key of a queue.
func (d *Dialect) queueName(key string) string { return strings.TrimPrefix(key, d.queueKey("")) }

// A counter of Sidekiq, stat:processed or stat:failed, and the one of the day in UTC.
func (d *Dialect) counter(name string) (total, day string) {
	total = d.key("stat:" + name)
	return total, total + ":" + time.Now().UTC().Format(time.DateOnly)
}
