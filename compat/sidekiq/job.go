package sidekiq

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"
)

// Errors about a job, found before anything is sent, in addition to ErrArgs, ErrEncoding and ErrNumber.
var (
	// ErrClass reports that a job has no class.
	ErrClass = errors.New("sidekiq: job without a class")
	// ErrField reports that a further field of a job has a reserved name or a value that is not JSON.
	ErrField = errors.New("sidekiq: bad field")
	// ErrTime reports that a time is not written as the dialect's version reads it.
	ErrTime = errors.New("sidekiq: bad time")
)

// Job is one job to push. Only Class is required.
type Job struct {
	// Class is the name of the Ruby class that performs the job.
	Class string
	// Queue is the name of its queue. Default "default".
	Queue string
	// Args are the arguments, one JSON array. They are written in Ruby's form; Args makes them from Go values. Default
	// none.
	Args json.RawMessage
	// At is when the job is due. In, when it is not zero, is the same from now, by the server's clock. Without both, or
	// if the time has passed, the job goes into its queue immediately.
	At time.Time
	In time.Duration
	// JID is the job's id. Default 24 random hex digits.
	JID string
	// CreatedAt is when the job was made. Default now, by this machine's clock.
	CreatedAt time.Time
	// Fields are further fields in their order, such as retry (default true), tags or backtrace.
	Fields []Field
	// Payload, when it is set, is the finished text of the job, and Class, Queue, Args, JID, CreatedAt and Fields are
	// ignored. It is sent byte for byte, with two exceptions: enqueued_at is added if it is missing, and a job for
	// later loses enqueued_at and at. It needs class, args, queue and jid, and times in the form of the dialect's
	// version. It is refused for the same faults as Args. Write a job for later in Ruby's form (no spaces, no \u003c as
	// encoding/json has it, 2.0 and not 2.00): with any other text the reschedule of Sidekiq's web interface adds the
	// job a second time, due immediately. A job made from Class, Args and Fields has that form, and Work rewrites a
	// failed job in it.
	Payload []byte
}

// Field is a further field of a job.
type Field struct {
	Name  string
	Value json.RawMessage
}

// own are the fields that Fields cannot set.
var own = [...]string{"class", "args", "queue", "jid", "created_at", "enqueued_at", "at"}

// draft is a job in the form that the script takes.
type draft struct {
	queue string
	later later
	kind  string // of the plan; that of a job for later is known with its step
	jid   int    // where its id ends among those of the call
	text  []byte // without the last brace, unless the kind is asIs
}

// asIs is the kind of a job whose payload has enqueued_at already.
const asIs = "="

// draft checks a job and writes its payload.
func (d *Dialect) draft(job *Job, src *source) (draft, error) {
	due, err := dueTime(job.At, job.In)
	if err != nil {
		return draft{}, err
	}
	if job.Payload != nil {
		return d.finished(job.Payload, due, src)
	}
	out := draft{queue: cmp.Or(job.Queue, "default"), later: due}
	from := len(src.jids)
	if job.JID != "" {
		src.jids = append(src.jids, job.JID...)
	} else {
		src.jids = hex.AppendEncode(src.jids, src.take(12))
	}
	out.jid = len(src.jids)
	start := len(src.text)
	if src.text, err = d.write(src.text, job, out.queue, src.jids[from:], src); err != nil {
		return out, err
	}
	end := len(src.text)
	src.text = append(src.text, make([]byte, room)...)
	out.text = src.text[start:end:len(src.text)]
	return out, nil
}

// write appends a payload, without its last brace, in the order of fields of the version.
func (d *Dialect) write(to []byte, job *Job, queue string, jid []byte, src *source) (_ []byte, err error) {
	if to, err = d.appendHead(to, job, queue, src); err != nil {
		return to, err
	}
	if to, err = d.appendArgs(to, job.Args); err != nil {
		return to, err
	}
	if d.version < V6 {
		to, err = d.appendOptions(append(to, ','), job.Fields, queue)
		if err != nil {
			return to, err
		}
		to = to[:len(to)-1] // the comma
	}
	to = append(to, `,"jid":`...)
	if job.JID == "" {
		to = append(append(append(to, '"'), jid...), '"')
	} else if to = appendString(to, job.JID); !utf8.ValidString(job.JID) {
		return to, fmt.Errorf("%w: jid", ErrEncoding)
	}
	to = append(to, `,"created_at":`...)
	if job.CreatedAt.IsZero() {
		return append(to, src.now...), nil
	}
	return d.appendTime(to, job.CreatedAt), nil
}

// appendHead writes all fields before the arguments. Consecutive jobs without further fields mostly share them.
func (d *Dialect) appendHead(to []byte, job *Job, queue string, src *source) (_ []byte, err error) {
	plain := len(job.Fields) == 0
	if plain && src.wrote != nil && src.wroteClass == job.Class && src.wroteQueue == queue {
		return append(to, src.wrote...), nil
	}
	switch {
	case job.Class == "":
		return to, ErrClass
	case !utf8.ValidString(job.Class) || !utf8.ValidString(queue):
		return to, fmt.Errorf("%w: class or queue", ErrEncoding)
	}
	start := len(to)
	to = append(to, '{')
	if d.version >= V6 {
		if to, err = d.appendOptions(to, job.Fields, queue); err != nil {
			return to, err
		}
	}
	to = append(to, `"class":`...)
	to = append(appendString(to, job.Class), `,"args":`...)
	if plain {
		src.wrote, src.wroteClass, src.wroteQueue = to[start:], job.Class, queue
	}
	return to, nil
}

// appendOptions writes retry, queue and the further fields, each with a comma after it.
func (d *Dialect) appendOptions(to []byte, fields []Field, queue string) ([]byte, error) {
	retry := slices.IndexFunc(fields, func(f Field) bool { return f.Name == "retry" })
	to = append(to, `"retry":`...)
	if retry < 0 {
		to = append(to, "true"...)
	} else {
		var err error
		if to, err = appendCanonical(to, fields[retry].Value, d.version, ErrField); err != nil {
			return to, err
		}
	}
	to = append(to, `,"queue":`...)
	to = append(appendString(to, queue), ',')
	for i, f := range fields {
		if i == retry {
			continue
		}
		again := slices.ContainsFunc(fields[:i], func(o Field) bool { return o.Name == f.Name })
		if f.Name == "" || !utf8.ValidString(f.Name) || slices.Contains(own[:], f.Name) || again {
			return to, fmt.Errorf("%w: field %d has no name, a reserved name, or the name of another field",
				ErrField, i)
		}
		var err error
		if to, err = appendCanonical(append(appendString(to, f.Name), ':'), f.Value, d.version, ErrField); err != nil {
			return to, err
		}
		to = append(to, ',')
	}
	return to, nil
}

func (d *Dialect) appendArgs(to []byte, args json.RawMessage) ([]byte, error) {
	if len(args) == 0 {
		return append(to, "[]"...), nil
	}
	start := len(to)
	to, err := appendCanonical(to, args, d.version, ErrArgs)
	if err == nil && to[start] != '[' {
		err = ErrArgs
	}
	return to, err
}

// source has what the jobs of one call share: random bytes, read for some hundred jobs at a time, and the name of the
// last queue.
type source struct {
	buf   [1536]byte
	left  []byte
	queue string
	now   []byte // the time of the call, as created_at has it
	text  []byte // of all payloads that are written, one after the other
	jids  []byte // of all jobs, one after the other
	head  head
	names [][]byte // the space for those of the payload that is checked

	// The last job without further fields: its bytes before the arguments, its class, its queue.
	wrote                  []byte
	wroteClass, wroteQueue string
}

// name returns a queue's name; consecutive calls for one queue share the string.
func (s *source) name(quoted []byte) string {
	if len(quoted) != len(s.queue)+2 || string(quoted[1:len(quoted)-1]) != s.queue ||
		bytes.IndexByte(quoted, '\\') >= 0 {
		s.queue = text(quoted)
	}
	return s.queue
}

func (s *source) take(n int) []byte {
	if len(s.left) < n {
		_, _ = rand.Read(s.buf[:]) // it never fails
		s.left = s.buf[:]
	}
	out := s.left[:n]
	s.left = s.left[n:]
	return out
}
