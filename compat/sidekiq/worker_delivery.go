package sidekiq

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// Delivery is one job that a worker has taken.
type Delivery struct {
	// JID is the job's id, 24 hex digits in Ruby.
	JID string
	// Class is the Ruby class; Wrapped is the class inside an Active Job wrapper.
	Class, Wrapped string
	// Queue is the queue it was taken from.
	Queue string
	// Args is the JSON array of the arguments, as it is written in the payload.
	Args json.RawMessage
	// Retried is how often the job was performed before: 0 the first time.
	Retried int
	// CreatedAt, EnqueuedAt and FailedAt are zero when the payload has no such time. FailedAt is the first failure.
	CreatedAt, EnqueuedAt, FailedAt time.Time
	// Payload is the whole job, byte for byte. Do not modify it.
	Payload []byte

	version    Version
	retry      retryRule
	middleware []string // fields whose middleware runs in Ruby only
}

// retryRule is the payload's rule for failures.
type retryRule struct {
	again   bool          // a failed job is retried
	max     int           // number of retries; below 0 for the worker's MaxRetries
	timed   bool          // the job has a retry_for
	within  time.Duration // with timed: the time after the first failure in which the job is retried
	bury    bool          // after its retries the job goes to the dead set
	queue   string        // of the retries, if it is another one
	failed  bool          // the job has a retry_count
	lines   int           // of the backtrace to keep; below 0 for all
	home    string        // the queue that the payload names
	nothing string        // why the job cannot be performed, if it cannot
}

// ErrScan is the cause of an error of Delivery.Scan.
var ErrScan = errors.New("sidekiq: arguments do not fit")

// Scan decodes the arguments one by one, as encoding/json does. The number must match.
func (j *Delivery) Scan(args ...any) error {
	var raw []json.RawMessage
	if err := json.Unmarshal(j.Args, &raw); err != nil {
		return fmt.Errorf("%w: the job's args are not an array", ErrScan)
	}
	if len(raw) != len(args) {
		return fmt.Errorf("%w: given %d, expected %d", ErrScan, len(raw), len(args))
	}
	for i := range raw {
		if err := json.Unmarshal(raw[i], args[i]); err != nil {
			return fmt.Errorf("%w: argument %d does not decode into %T", ErrScan, i+1, args[i])
		}
	}
	return nil
}

// readJob parses a payload. It fails where Ruby's parser does.
func (d *Dialect) readJob(queue string, payload []byte) (*Delivery, error) {
	j := &Delivery{Queue: queue, Payload: payload, version: d.version,
		retry: retryRule{again: true, max: -1, bury: true}}
	if err := members(payload, j.read); err != nil {
		return nil, err
	}
	switch {
	case j.Class == "":
		j.retry.nothing = "the job has no class"
	case len(j.Args) == 0 || j.Args[0] != '[':
		j.retry.nothing = "the job's args are no array"
	}
	return j, nil
}

func (j *Delivery) read(m member) {
	value := j.Payload[m.value:m.end]
	switch string(m.name) {
	case "jid":
		j.JID = stringOf(value)
	case "class":
		j.Class = stringOf(value)
	case "wrapped":
		j.Wrapped = stringOf(value)
	case "args":
		j.Args = value
	case "created_at":
		j.CreatedAt, _ = timeField(value, j.version)
	case "enqueued_at":
		j.EnqueuedAt, _ = timeField(value, j.version)
	case "failed_at":
		j.FailedAt, _ = timeField(value, j.version)
	default:
		j.readRule(string(m.name), value)
		j.readMiddleware(string(m.name), value)
	}
}

// readMiddleware notes a field that needs its middleware. Of two fields of one name the last counts, as in Ruby.
func (j *Delivery) readMiddleware(name string, value []byte) {
	j.middleware = slices.DeleteFunc(j.middleware, func(known string) bool { return known == name })
	if needsMiddleware(name, value) {
		j.middleware = append(j.middleware, name)
	}
}

// maxCount bounds a payload's counts, so that no sum with one overflows.
const maxCount = 1<<31 - 2

func (j *Delivery) readRule(name string, value []byte) {
	r := &j.retry
	switch name {
	case "retry_count":
		r.failed = truthy(value)
		j.Retried = 0
		if r.failed {
			count, _ := integer(value)
			j.Retried = min(max(count, -1), maxCount) + 1
		}
	case "retry":
		r.again = truthy(value) || string(value) == "null"
		r.max = -1
		if n, ok := integer(value); ok {
			r.max = max(n, 0)
		}
	case "retry_for":
		n, err := strconv.ParseFloat(string(value), 64) // Ruby's clients write an integer
		r.timed = err == nil
		r.within = min(time.Duration(min(max(n, 0), maxCount))*time.Second, longestDelay)
	case "queue":
		r.home = stringOf(value)
	case "retry_queue":
		r.queue = stringOf(value)
	case "dead":
		r.bury = string(value) != "false"
	case "backtrace":
		r.lines = 0
		if n, ok := integer(value); ok {
			r.lines = max(n, 0)
		} else if string(value) == "true" {
			r.lines = -1
		}
	}
}

// truthy reports whether Ruby takes the value for true: all but false and nil.
func truthy(value []byte) bool { return string(value) != "false" && string(value) != "null" }

func integer(value []byte) (int, bool) {
	var n int
	if err := json.Unmarshal(value, &n); err != nil || bytes.Equal(value, []byte("null")) {
		return 0, false
	}
	return n, true
}

// stringOf decodes a string; any other value is empty.
func stringOf(value []byte) string {
	var s string
	_ = json.Unmarshal(value, &s)
	return s
}
