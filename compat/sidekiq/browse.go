package sidekiq

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/compat/sidekiq/internal/script"
	"github.com/luatomic/luatomic/internal/send"
	"github.com/luatomic/luatomic/lua"
)

// Entry is a job as a queue or a set has it. Fields that its payload does not have are empty. If the payload cannot be
// read, only Payload and Score are set.
type Entry struct {
	JID, Class string
	// Wrapped is the class inside an Active Job wrapper.
	Wrapped string
	// Queue is the queue that the payload names: a job in a set goes there.
	Queue string
	// Failures is how often it has failed. Reason is the class and the message of its last error.
	Failures int
	Reason   string
	// At is when a job in a queue was enqueued. For a job in a set it is when the job is due, or died if the set is
	// Dead.
	At time.Time
	// Score is the job's score in a set, for Ref; 0 in a queue.
	Score   float64
	Payload []byte
}

// QueueEntries skips offset jobs of a queue and reads the next n, in the order in which they will be performed. Workers
// take jobs between two calls, so a job may be missed; ScanQueue misses none. Keys: queue:<name>. Cost: O(offset + n),
// one round trip. Errors: lua.ErrOutOfRange.
func (d *Dialect) QueueEntries(ctx context.Context, queue string, offset, n int) ([]Entry, error) {
	if err := checkPage(offset, n); err != nil {
		return nil, err
	}
	payloads, err := d.client.LRange(ctx, d.queueKey(queue), int64(-offset-n), int64(-offset-1)).Result()
	if err != nil {
		return nil, fmt.Errorf("sidekiq: entries of queue %q: %w", queue, err)
	}
	slices.Reverse(payloads)
	out := make([]Entry, len(payloads))
	for i, payload := range payloads {
		out[i] = d.newEntry([]byte(payload))
	}
	return out, nil
}

// SetEntries skips offset jobs of a set and reads the next n, earliest first. Jobs leave the set between two calls, so
// a job may be missed; ScanSet misses none. Keys: the set. Cost: O(log size + offset + n), one round trip. Errors:
// ErrSet, lua.ErrOutOfRange.
func (d *Dialect) SetEntries(ctx context.Context, set Set, offset, n int) ([]Entry, error) {
	if err := errors.Join(set.check(), checkPage(offset, n)); err != nil {
		return nil, err
	}
	some, err := d.client.ZRangeArgsWithScores(ctx, redis.ZRangeArgs{
		Key: d.key(string(set)), Start: offset, Stop: offset + n - 1,
	}).Result()
	if err != nil {
		return nil, fmt.Errorf("sidekiq: entries of %s: %w", set, err)
	}
	out := make([]Entry, len(some))
	for i, z := range some {
		member, _ := z.Member.(string)
		out[i] = d.newEntry([]byte(member))
		out[i].Score = z.Score
		out[i].At, _ = secondsTime(z.Score)
	}
	return out, nil
}

func checkPage(offset, n int) error {
	switch {
	case offset < 0:
		return fmt.Errorf("sidekiq: %w", &lua.RangeError{Field: "offset", Value: fmt.Sprint(offset), Min: "0"})
	case n < 1:
		return fmt.Errorf("sidekiq: %w", &lua.RangeError{Field: "n", Value: fmt.Sprint(n), Min: "1"})
	}
	return nil
}

func (d *Dialect) newEntry(payload []byte) Entry {
	e := Entry{Payload: payload}
	var class, message string
	j, err := d.readJob("", payload)
	if err != nil {
		return e
	}
	_ = members(payload, func(m member) {
		switch value := payload[m.value:m.end]; string(m.name) {
		case "queue":
			e.Queue = stringOf(value)
		case "error_class":
			class = stringOf(value)
		case "error_message":
			message = stringOf(value)
		}
	})
	e.JID, e.Class, e.Wrapped, e.Failures, e.At = j.JID, j.Class, j.Wrapped, j.Retried, j.EnqueuedAt
	e.Reason = class
	if message != "" {
		e.Reason += ": " + message
	}
	return e
}

// Requeue moves one job of any set to its queue now, as Sidekiq's pages do. Its bytes stay the same, except
// enqueued_at. ok is false when the set does not have it. First the job gets the server's time as its score, and then a
// script moves it if it is still there. A crash in between leaves the job in its set, due now, and a poller that moves
// it first does no harm. Its retry_count stays, so the next failure counts as one more.
//
// Keys: the set, queues, queue:<name> of the job, luatomic:reschedule:<random>. Cost: that of Find and two round trips.
// Errors: ErrSet, ErrJID, ErrPayload for a job without a queue, ErrQueueRefused if its queue cannot be written to; then
// the job stays.
func (d *Dialect) Requeue(ctx context.Context, ref Ref) (ok bool, err error) {
	found, ok, err := d.Find(ctx, ref)
	if err != nil || !ok {
		return false, err
	}
	batch, bad := d.batch(ref.Set, [][]byte{found.Payload})
	if len(bad) > 0 {
		return false, fmt.Errorf("sidekiq: requeue from %s: %w", ref.Set, bad[0].Err)
	}
	due, err := d.rescheduleTo(ctx, ref.Set, found.Payload, "+0")
	if err != nil || !due.Found {
		return false, wrapRequeue(ref.Set, err)
	}
	r, err := script.Move(ctx, d.client, batch)
	if err == nil && r.Failed > 0 {
		err = fmt.Errorf("%w: %q; the job stays in the set: %s", ErrQueueRefused, batch.Queues[0], r.Reason)
	}
	return err == nil, wrapRequeue(ref.Set, err)
}

func wrapRequeue(set Set, err error) error {
	if err != nil {
		err = fmt.Errorf("sidekiq: requeue from %s: %w", set, err)
	}
	return err
}

// ScanQueue yields the jobs of a queue, the newest first. It yields each job that is in the queue during the whole
// scan. A concurrent push can make it yield a job twice; a take by a worker does not disturb it. Only if others remove
// jobs from the middle, as Drop does, it may miss a job behind them. It ends after an error. Keys: queue:<name>. Cost:
// O(size), in steps of 200 jobs, O(size) each at worst.
func (d *Dialect) ScanQueue(ctx context.Context, queue string) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for from := int64(0); ; from += scanned {
			payloads, err := d.client.LRange(ctx, d.queueKey(queue), from, from+scanned-1).Result()
			if err != nil {
				yield(Entry{}, fmt.Errorf("sidekiq: entries of queue %q: %w", queue, err))
				return
			}
			for _, payload := range payloads {
				if !yield(d.newEntry([]byte(payload)), nil) {
					return
				}
			}
			if len(payloads) < scanned {
				return
			}
		}
	}
}

// scanned is how many jobs of a queue one step of a scan reads.
const scanned = 200

// ScanSet yields the jobs of a set in no order. It yields each job that is in the set during the whole scan, even if
// others are added or removed meanwhile, and can yield it twice. It ends after an error. Keys: the set. Cost: O(size),
// in steps of some hundred members. Errors: ErrSet.
func (d *Dialect) ScanSet(ctx context.Context, set Set) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		if err := set.check(); err != nil {
			yield(Entry{}, err)
			return
		}
		for found, err := range d.scan(ctx, set, "*") {
			if err != nil {
				yield(Entry{}, fmt.Errorf("sidekiq: entries of %s: %w", set, err))
				return
			}
			e := d.newEntry(found.Payload)
			e.Score, e.At = found.Score, found.At
			if !yield(e, nil) {
				return
			}
		}
	}
}

// Drop removes a job from a queue before a worker takes it, as Sidekiq's page of that queue does. ok is false when the
// queue does not have the job, or no longer. Keys: queue:<name>. For the cost and the effect of concurrent changes, see
// ScanQueue. When the reply is lost the error is that of the connection; a retry is safe. Errors: ErrJID.
func (d *Dialect) Drop(ctx context.Context, queue, jid string) (ok bool, err error) {
	ref := Ref{Set: Schedule, JID: jid}
	if err := ref.check(); err != nil {
		return false, err
	}
	for e, err := range d.ScanQueue(ctx, queue) {
		if err != nil {
			return false, err
		}
		if e.JID != jid {
			continue
		}
		n, err := send.Once(ctx, d.client, "LREM", d.queueKey(queue), 1, e.Payload).Int64()
		if err != nil {
			return false, fmt.Errorf("sidekiq: drop from queue %q: %w", queue, err)
		}
		return n == 1, nil
	}
	return false, nil
}
