package sidekiq

import (
	"bytes"
	"compress/zlib"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/luatomic/luatomic/compat/sidekiq/internal/script"
)

// maxMessage is how many characters of an error's message Sidekiq keeps.
const maxMessage = 10_000

type retryIn struct {
	after time.Duration
	err   error
}

func (r *retryIn) Error() string { return r.err.Error() }
func (r *retryIn) Unwrap() error { return r.err }

// A Handler returns RetryIn to choose the delay before the next attempt, in whole seconds; Sidekiq's jitter is added.
// The attempt fails with err as the reason. After the last retry the job is not retried.
func RetryIn(after time.Duration, err error) error { return &retryIn{after, reason(err)} }

type verdict struct {
	err  error
	bury bool
}

func (v *verdict) Error() string { return v.err.Error() }
func (v *verdict) Unwrap() error { return v.err }

// A Handler returns Kill when no retry can help: the job goes to the dead set without a retry, unless its dead field is
// false.
func Kill(err error) error { return &verdict{reason(err), true} }

// A Handler returns Discard to delete the job. It counts as failed.
func Discard(err error) error { return &verdict{reason(err), false} }

// reason returns err, or errNoReason for nil.
func reason(err error) error {
	if err == nil {
		return errNoReason
	}
	return err
}

var errNoReason = errors.New("no reason given")

// panicked is the failure of a handler that panicked.
type panicked struct {
	value any
	lines []string
}

func (p *panicked) Error() string      { return fmt.Sprint("panic: ", p.value) }
func (p *panicked) ErrorClass() string { return "panic" }

// errorClass returns the text for error_class, which is an exception's class in Ruby. An error in the chain with a
// method ErrorClass chooses it; else it is the first type in the chain that has a name. An error of errors.New has
// none: in Ruby, raise "text" is a RuntimeError.
func errorClass(err error) string {
	var named interface{ ErrorClass() string }
	if errors.As(err, &named) {
		return named.ErrorClass()
	}
	for ; err != nil; err = errors.Unwrap(err) {
		switch class := strings.TrimPrefix(fmt.Sprintf("%T", err), "*"); class {
		case "errors.errorString", "errors.joinError", "fmt.wrapError", "fmt.wrapErrors", "sidekiq.verdict",
			"sidekiq.retryIn", "decline.declined":
		default:
			return class
		}
	}
	return "RuntimeError"
}

// message returns the text of an error as Sidekiq stores it.
func message(err error) string {
	text := strings.ToValidUTF8(err.Error(), string(utf8.RuneError))
	seen := 0
	for at := range text {
		if seen == maxMessage {
			return text[:at]
		}
		seen++
	}
	return text
}

// fate is where a job goes that failed or was declined.
type fate int

const (
	retried fate = iota
	buried
	dropped
	declined
)

// fateOf decides as Sidekiq does; count is the number of this failure, from 0.
func (o *WorkOptions) fateOf(j *Delivery, err error, count int, now time.Time) fate {
	last := dropped
	if j.retry.bury {
		last = buried
	}
	most := j.retry.max
	if most < 0 {
		most = o.MaxRetries
	}
	var v *verdict
	switch {
	case errors.As(err, &v) && v.bury:
		return last
	case errors.As(err, &v), !j.retry.again:
		return dropped
	case j.retry.timed && (j.version >= V8 || count < most): // to 8.0 the number of retries counts beside the time
		first := j.FailedAt
		if first.IsZero() {
			first = now
		}
		if !now.Before(first.Add(j.retry.within)) {
			return last
		}
		return retried
	case count >= most:
		return last
	}
	return retried
}

// delay is the time before the next attempt: the handler's, else Sidekiq's formula.
func (d *Dialect) delay(err error, count int) time.Duration {
	failures := int64(count) + 1
	few := min(failures-1, 1000) // its fourth power exceeds longestDelay
	seconds := few*few*few*few + 15
	var r *retryIn
	if errors.As(err, &r) && r.after >= time.Second {
		seconds = int64(r.after / time.Second)
	}
	if d.version <= V6 {
		seconds += rand.Int64N(10) * failures
	} else {
		seconds += rand.Int64N(10 * failures)
	}
	return time.Duration(min(seconds, int64(longestDelay/time.Second))) * time.Second
}

// longestDelay is in effect for ever, and still a time that Ruby and Go can print.
const longestDelay = 100 * 365 * 24 * time.Hour

// failed returns the payload of a failed job in two parts; the script writes the time of the failure between them.
// Existing fields are overwritten in place, new ones are added at the end, in the order in which Sidekiq writes them.
// All others are in Ruby's form: Sidekiq's reschedule finds a member by the text that Ruby writes.
func (j *Delivery) failed(err error, d *Dialect) (parts [][]byte, count int, fault error) {
	stamp := "failed_at"
	if j.retry.failed {
		stamp, count = "retried_at", j.Retried
	}
	queue := j.Queue
	if j.retry.queue != "" {
		queue = j.retry.queue
	}
	fields := []struct {
		name  string
		value []byte
	}{
		{"queue", appendString(nil, strings.ToValidUTF8(queue, string(utf8.RuneError)))},
		{"error_message", appendString(nil, message(err))},
		{"error_class", appendString(nil, strings.ToValidUTF8(errorClass(err), string(utf8.RuneError)))},
		{stamp, []byte("0")},
		{"retry_count", strconv.AppendInt(nil, int64(count), 10)},
		{"error_backtrace", j.backtrace(err, d)},
	}
	p := canonicalPayload(j.Payload, d.version)
	for _, f := range fields {
		if f.value == nil {
			continue
		}
		if p, fault = setField(p, f.name, f.value); fault != nil {
			return nil, 0, fault
		}
	}
	from, to, fault := place(p, stamp)
	if fault != nil {
		return nil, 0, fault
	}
	return [][]byte{p[:from], p[to:]}, count, nil
}

// backtrace returns the backtrace of a panic, if the job asks for it: the lines as JSON, compressed, in base64. To 5 it
// is the list, and the page of a job cannot be shown with anything else.
func (j *Delivery) backtrace(err error, d *Dialect) []byte {
	var p *panicked
	if j.retry.lines == 0 || !errors.As(err, &p) {
		return nil
	}
	lines := p.lines
	if j.retry.lines > 0 {
		lines = lines[:min(len(lines), j.retry.lines)]
	}
	list := []byte{'['}
	for i, line := range lines {
		if i > 0 {
			list = append(list, ',')
		}
		list = appendString(list, strings.ToValidUTF8(line, string(utf8.RuneError)))
	}
	list = append(list, ']')
	if d.version < V6 {
		return list
	}
	var packed bytes.Buffer
	z := zlib.NewWriter(&packed)
	// Writing to a buffer cannot fail.
	_, _ = z.Write(list)
	_ = z.Close()
	code := base64.StdEncoding.EncodeToString(packed.Bytes())
	if d.version < V8 {
		code = inLines(code, 60)
	}
	return appendString(nil, code)
}

// inLines breaks code into lines of width characters, each with a line end, as Ruby's Base64.encode64 does.
func inLines(code string, width int) string {
	var b strings.Builder
	for ; len(code) > width; code = code[width:] {
		b.WriteString(code[:width])
		b.WriteByte('\n')
	}
	b.WriteString(code)
	b.WriteByte('\n')
	return b.String()
}

// moveFailed moves a failed job to retry or dead, or drops it. ours is false when another process had reclaimed it.
func (w *worker) moveFailed(ctx context.Context, id int64, j *Delivery, cause error) (f fate, ours bool, err error) {
	parts, count, err := j.failed(cause, w.d)
	if err != nil {
		return 0, false, err
	}
	switch f = w.o.fateOf(j, cause, count, time.Now()); f {
	case retried:
		ours, err = w.later(ctx, id, parts, w.d.delay(cause, count))
	case buried:
		ours, err = w.bury(ctx, id, parts, w.d.stamp())
	default:
		ours, err = w.drop(ctx, id)
	}
	return f, ours, err
}

func (d *Dialect) stamp() script.RetryBuryForm {
	if d.milliseconds() {
		return script.RetryBuryFormMillis
	}
	return script.RetryBuryFormSeconds
}

func (w *worker) later(ctx context.Context, id int64, parts [][]byte, delay time.Duration) (bool, error) {
	p := script.RetryLaterParams{
		Working: w.working, To: w.d.key(string(Retry)), ID: id, Millis: w.d.milliseconds(), Delay: delay,
		Parts: parts,
	}
	p.Processed, p.ProcessedDay = w.d.counter("processed")
	p.Failed, p.FailedDay = w.d.counter("failed")
	r, err := script.RetryLater(ctx, w.d.client, p)
	return r.Moved, err
}

func (w *worker) bury(ctx context.Context, id int64, parts [][]byte, stamp script.RetryBuryForm) (bool, error) {
	p := script.RetryBuryParams{
		Working: w.working, To: w.d.key(string(Dead)), ID: id, Form: stamp, Keep: w.o.DeadFor,
		Max: int64(w.o.MaxDead), Parts: parts,
	}
	p.Processed, p.ProcessedDay = w.d.counter("processed")
	p.Failed, p.FailedDay = w.d.counter("failed")
	return script.RetryBury(ctx, w.d.client, p)
}

func (w *worker) drop(ctx context.Context, id int64) (bool, error) {
	p := script.RetryDropParams{Working: w.working, ID: id}
	p.Processed, p.ProcessedDay = w.d.counter("processed")
	p.Failed, p.FailedDay = w.d.counter("failed")
	return script.RetryDrop(ctx, w.d.client, p)
}
