package sidekiq

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/luatomic/luatomic/internal/decline"
)

// Work's errors.
var (
	// ErrQueues reports that a worker has no queues, or invalid ones.
	ErrQueues = errors.New("sidekiq: bad queues")
	// ErrTakenBack is the cause of a handler's context when the lease of this process expired and its job was put back,
	// from the next heartbeat on.
	ErrTakenBack = errors.New("sidekiq: the lease of this process expired and its jobs were put back")
	// ErrStopped is the cause of a handler's context when Work ends and Grace is over. When ctx has ended, the job of a
	// handler whose error is ErrStopped, context.Canceled or the cause of ctx goes back to its queue without a failure.
	ErrStopped = errors.New("sidekiq: the worker stops")
)

// Queue is one queue of a worker.
type Queue struct {
	Name string
	// Weight is how often the queue comes first, in proportion to the others; at most a million. If no queue has a
	// weight, they are served strictly in order.
	Weight int
}

// WorkOptions are the settings of Work. Nil means the defaults.
type WorkOptions struct {
	// Queues in order. Default: one, "default".
	Queues []Queue
	// Concurrency is how many handlers run concurrently, at most 500. Default 10.
	Concurrency int
	// Lease is how long the jobs of a dead process stay assigned to it. It is renewed every third of that, and at
	// least every 10 s. Default 30 s.
	Lease time.Duration
	// Grace is how long handlers may run after ctx ends; Sidekiq calls it timeout. Then their contexts end, with
	// ErrStopped. Work waits without a bound for a handler that ignores its context. Default 25 s.
	Grace time.Duration
	// Quiet, when it is closed, does what the Busy page's Quiet does and SIGTSTP to a process of Ruby: Work takes no
	// more jobs, finishes those that it has, and goes on until ctx ends.
	Quiet <-chan struct{}
	// MaxRetries applies to jobs whose retry field is true or missing. Default 25.
	MaxRetries int
	// MaxDeaths is how many processes may die with a job before it goes to the dead set, with ErrWorkerDied. After the
	// first death the job is served next; after each further one it waits in the retry set. Default 10.
	MaxDeaths int
	// MaxDead and DeadFor bound the dead set; use the values of the Ruby processes. Default 10 000 jobs and 180 days;
	// DeadFor is at least 1 s.
	MaxDead int
	DeadFor time.Duration
	// WebUI shows this process and its jobs on Sidekiq's Busy page, with one transaction for each heartbeat. The
	// buttons of the page work: after Quiet, Work takes no more jobs; Stop ends Work with ErrStopRequested.
	WebUI bool
	// AllowFields are fields of jobs that are performed although the middleware of the field runs in Ruby only. By
	// default a job with unique_for, lock_digest, unique_digest, bid, encrypt, expiry or cattr is declined with
	// ErrMiddleware before its handler is called: docs/sidekiq-worker.md says what each allowed field leads to.
	AllowFields []string
	// Declined is how long a job may be declined again and again, by the server's clock, before it goes to the dead
	// set; see Decline. Default 24 h.
	Declined time.Duration
	// OnError, if set, gets the errors of failed calls, and the error of each failed job with that job. A declined job
	// is reported for the first, the tenth, the hundredth and so on of its queue and reason, and when it is dead. It
	// may be called from any goroutine.
	OnError func(err error, job *Delivery)
}

// Worked counts the jobs of a worker by outcome.
type Worked struct {
	// Done counts the jobs whose handlers returned no error.
	Done int
	// Retried, Dead and Dropped count the failed jobs: moved to the retry set, moved to the dead set, or deleted
	// because their retry or dead field is false or the handler returned Discard.
	Retried, Dead, Dropped int
	// Declined counts the jobs that were given back because this process cannot perform them. Dead counts those that
	// nobody could.
	Declined int
	// Returned counts the jobs whose handlers did not finish before the end: they are in their queues again.
	Returned int
	// Lost counts the jobs that another process had put back before their handlers ended, as far as this process knows:
	// a handler that returns no error before the next heartbeat counts as done. These jobs ran, and will run again.
	Lost int
	// Rescued counts the jobs of dead processes that this process put back into their queues, or set aside: see
	// MaxDeaths.
	Rescued int
}

// Handler performs one job. A nil error finishes it. Any other error moves it to the retry set, or to the dead set
// after the last retry, as Sidekiq does. RetryIn, Kill and Discard change that. A panic counts as an error. When ctx
// ends (ErrStopped, ErrTakenBack) the job runs again, here or elsewhere.
type Handler func(ctx context.Context, job *Delivery) error

// Handlers has a handler for each class of jobs.
type Handlers map[string]Handler

// Perform calls the handler of the job's class, or of its wrapped class for a job of Active Job. A job of a class
// without a handler is declined; see Decline.
func (h Handlers) Perform(ctx context.Context, job *Delivery) error {
	if perform := h[job.Class]; perform != nil {
		return perform(ctx, job)
	}
	if perform := h[job.Wrapped]; perform != nil {
		return perform(ctx, job)
	}
	return decline.New(nameError(cmp.Or(job.Wrapped, job.Class)))
}

type nameError string

func (e nameError) Error() string      { return "uninitialized constant " + string(e) }
func (e nameError) ErrorClass() string { return "NameError" }

// Work takes jobs from the queues and runs the handler on each, until ctx ends. It is a worker process beside those of
// Ruby, but does not poll for due jobs: run a Poller too, or leave that to Ruby.
//
// A job that is taken is stored in a hash of this process until it is done, in retry, in dead, or back in its queue.
// Each step is one script that adds before it removes. When the lease of a process expires, any other process puts its
// jobs back. After an outage of the server, processes wait for the time of a Lease before they do so, because the
// leases of living processes have ended too. So does a process that finds such leases when it starts: it does not know
// whether there was an outage. So a job is performed at least once, even if the process is killed.
// Sidekiq's own workers keep their jobs only in memory. A job may itself kill its processes. From the second death on
// it waits in the retry set, longer each time by Sidekiq's formula, and after MaxDeaths it goes to the dead set. Its
// retry and dead fields do not change this.
//
// One script finishes jobs and takes the next ones, in one round trip for all that have ended. On empty queues Work
// waits in one blocking command for each queue, up to eight, which a push ends immediately. Queues after the eighth are
// polled every 2 s. Retries, the dead set and the counters are written as Sidekiq writes them, by the server's clock.
//
// When ctx ends, Work takes no more jobs and gives handlers Grace to finish. Then their contexts end, and Work waits
// for each handler: no job is in its queue again while a handler works on it here. The job of a handler that returns
// nil is done. The others are put back to be served next, once the last handler has returned. The blocking commands of
// an idle worker can last up to 2 s longer.
//
// Additional keys: luatomic:sidekiq:declined:<id>:<digest of its failures>, a STRING of the time of the first
// decline, which expires an hour after the last; luatomic:sidekiq:working:<process>, a HASH that maps the number of a
// job to the length of its queue's key, a colon, that key and the payload, and maps last to the highest number; it
// stays for a day without jobs.
// luatomic:sidekiq:processes, a ZSET of processes scored by the end of their lease in Unix ms.
// luatomic:sidekiq:rescued, a HASH that maps the id of a job to how many processes died with it; it expires three days
// after the last death and has at most some 10 000 jobs. Cost: O(1) a job, and a heartbeat of O(log n) and O(1) for
// each job in flight every third of the lease.
//
// From version 7 on, each heartbeat adds the executions since the last one to Sidekiq's metrics; a killed process loses
// those. A process whose jobs were put back is removed from the Busy page.
//
// Work retries after temporary failures, such as an unreachable server. It ends with the cause of ctx, with
// ErrStopRequested, or with a failure that a retry cannot cure: lua.ErrWrongType, ErrQueues. A nil handler is refused
// before anything is taken.
func (d *Dialect) Work(ctx context.Context, opts *WorkOptions, h Handler) (Worked, error) {
	w, err := newWorker(d, opts, h)
	if err != nil {
		return Worked{}, err
	}
	return w.run(ctx)
}

const (
	maxConcurrency = 500     // the limit of want in worker_take
	maxTake        = 1 << 20 // bytes of payloads at which worker_take takes no more
	maxWeight      = 1_000_000
	maxBlocked     = 8 // queues with a blocking command of their own
	blockFor       = 2 * time.Second
	pollEvery      = 500 * time.Millisecond // of queues without a blocking command
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
	orDefault(&out.MaxDeaths, 10)
	orDefault(&out.Declined, 24*time.Hour)
	orDefault(&out.MaxDead, 10_000)
	orDefault(&out.DeadFor, 180*24*time.Hour)
	out.DeadFor = max(out.DeadFor, time.Second) // the unit of the scripts
	out.Concurrency = min(out.Concurrency, maxConcurrency)
	return out
}

func orDefault[T int | time.Duration](v *T, otherwise T) {
	if *v <= 0 {
		*v = otherwise
	}
}

// checkQueues requires each queue once: the script would return a job for each time its key is named.
func checkQueues(queues []Queue) (weighted bool, err error) {
	seen := make(map[string]bool, len(queues))
	for _, q := range queues {
		switch {
		case q.Name == "":
			return false, fmt.Errorf("%w: one has no name", ErrQueues)
		case seen[q.Name]:
			return false, fmt.Errorf("%w: %q is listed twice; give it a Weight", ErrQueues, q.Name)
		case q.Weight < 0 || q.Weight > maxWeight: // a sum of larger ones may overflow
			return false, fmt.Errorf("%w: the Weight of %q is %d, not 0 to %d", ErrQueues, q.Name, q.Weight, maxWeight)
		}
		seen[q.Name] = true
		weighted = weighted || q.Weight > 0
	}
	if len(queues) > 1000 {
		return false, fmt.Errorf("%w: more than 1000", ErrQueues)
	}
	return weighted, nil
}

// identity names a process as Sidekiq does: host, process id, and 12 hex digits.
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

// queueName returns the name in the key of a queue.
func (d *Dialect) queueName(key string) string { return strings.TrimPrefix(key, d.queueKey("")) }

// counter returns the keys of stat:processed or stat:failed, and of its count for the day in UTC.
func (d *Dialect) counter(name string) (total, day string) {
	total = d.key("stat:" + name)
	return total, total + ":" + time.Now().UTC().Format(time.DateOnly)
}

// ErrStopRequested is the error of Work when the process was stopped from Sidekiq's Busy page or by
// Sidekiq::Process#stop!.
var ErrStopRequested = errors.New("sidekiq: stop was requested on Sidekiq's Busy page")

// signals is how many signals one heartbeat reads, the newest. They stay until the page's minute for them is over or
// Work ends: with a lost reply, one that was taken would be lost too, and to obey one again changes nothing.
const signals = 100

// signalled does what a signal of the Busy page asks for: TSTP, in Sidekiq 4 USR1, takes no more jobs, TERM ends Work.
// Ruby prints the backtraces of its threads on TTIN, which is ignored here.
func (w *worker) signalled(signal string) {
	switch signal {
	case "TSTP", "USR1":
		w.quiet.Store(true)
	case "TERM":
		w.quiet.Store(true)
		w.end(ErrStopRequested)
	}
}

// isQuiet reports whether the process takes no more jobs.
func (w *worker) isQuiet() bool { return w.quiet.Load() || closed(w.o.Quiet) }

// wanted returns how many jobs to take: when the process is quiet, those of a take whose reply is missing.
func (w *worker) wanted() int {
	if w.isQuiet() {
		return w.unheard
	}
	return w.free()
}
