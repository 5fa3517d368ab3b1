// Package luatomic has race-free primitives on Redis: a queue with delayed jobs, locks with fencing tokens, and calls
// between processes. The primitives are in three packages that do not depend on each other. This package has short
// names for what most programs need:
//
//   - [github.com/luatomic/luatomic/queue]: jobs, workers, delays, and what operators do to them
//   - [github.com/luatomic/luatomic/lock]: locks, semaphores, read-write locks, elections
//   - [github.com/luatomic/luatomic/rpc]: calls, gathered calls, casts, streams
//
// # Promise
//
// Each operation is one Lua script, sent in one round trip. A script runs alone on the server, so a crash, a lost
// connection or another client cannot do harm between its steps. The header of each script says what an error half-way
// can leave behind, and whether the script may be sent again when a reply is lost. If it may not, the call returns
// lua.ErrOutcomeUnknown and does not guess.
//
// # Data
//
// All keys of one queue, lock or bus have its name, or a queue's tag, as hash tag. So they are in one slot of a Redis
// Cluster. Payloads are opaque bytes: no script decodes them. Times are by the server's clock, in milliseconds. Only
// the leases of queue jobs and the fences are in microseconds.
//
// # Not promised
//
// What Redis acknowledged and then lost in a failover is lost. A lease on a lock can end while its holder is paused:
// send the fencing token to whatever the lock protects. A job is delivered at least once, not exactly once.
//
// Nothing starts by itself: no goroutine, no logger. Loops are methods that block until their context ends.
package luatomic

import (
	"context"
	"time"

	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/queue"
)

// The nouns of a queue. Package queue documents their methods.
type (
	// Queue is a queue of jobs, ready and scheduled; see [queue.Queue].
	Queue = queue.Queue
	// QueueOptions are the settings of a Queue; see [queue.Options].
	QueueOptions = queue.Options
	// Job is one piece of work to push; see [queue.Job].
	Job = queue.Job
	// Pushed is the result of a push; see [queue.Pushed].
	Pushed = queue.Pushed
	// QueueBatch is what PushAll adds to one queue; see [queue.Batch].
	QueueBatch = queue.Batch
	// QueueSource is a queue that ConsumeAll takes from; see [queue.Source].
	QueueSource = queue.Source
	// Delivery is a job that a worker has, with the lease on it; see [queue.Delivery].
	Delivery = queue.Delivery
	// Handler does the work of one delivery; see [queue.Handler].
	Handler = queue.Handler
	// ConsumeOptions are the settings of Queue.Consume; see [queue.ConsumeOptions].
	ConsumeOptions = queue.ConsumeOptions
	// Kind is a kind of job with the type of its body; see [queue.Kind].
	Kind[T any] = queue.Kind[T]
	// Mux passes each job to the handler of its kind; see [queue.Mux].
	Mux = queue.Mux
)

// Errors of a queue.
var (
	// ErrFull reports that a push would pass the queue's limit; see [queue.ErrFull].
	ErrFull = queue.ErrFull
	// ErrLeaseLost reports that a delivery is no longer the worker's; see [queue.ErrLeaseLost].
	ErrLeaseLost = queue.ErrLeaseLost
)

// NewQueue returns the queue of that name; nil options mean the defaults. Nothing is sent. See [queue.New].
func NewQueue(client lua.Client, name string, opts *QueueOptions) (*Queue, error) {
	return queue.New(client, name, opts)
}

// NewKind returns the kind of that name, whose bodies are JSON. See [queue.NewKind].
func NewKind[T any](name string) Kind[T] { return queue.NewKind[T](name) }

// PushAll pushes to several queues of one tag, to all of them or to none, in one round trip. See [queue.PushAll].
func PushAll(ctx context.Context, batch ...QueueBatch) ([]Pushed, error) {
	return queue.PushAll(ctx, batch...)
}

// ConsumeAll runs one consumer on several queues of one tag, in strict order or by weight. See [queue.ConsumeAll].
func ConsumeAll(ctx context.Context, opts *ConsumeOptions, h Handler, from ...QueueSource) (queue.Consumed, error) {
	return queue.ConsumeAll(ctx, opts, h, from...)
}

// Snooze returns the error of a handler that wants its job again after d, without a failure counted. See
// [queue.Snooze].
func Snooze(d time.Duration) error { return queue.Snooze(d) }

// Discard returns the error of a handler whose job must not be tried again. The job goes to the dead set. See
// [queue.Discard].
func Discard(err error) error { return queue.Discard(err) }
