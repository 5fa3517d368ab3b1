package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/lua"
)

// sidekiqVersions are the versions by the name of the dialect.
var sidekiqVersions = map[string]sidekiq.Version{
	"sidekiq4": sidekiq.V4, "sidekiq5": sidekiq.V5, "sidekiq6": sidekiq.V6, "sidekiq7": sidekiq.V7,
	"sidekiq8": sidekiq.V8,
}

// sidekiqs are the names, oldest first.
var sidekiqs = []string{"sidekiq4", "sidekiq5", "sidekiq6", "sidekiq7", "sidekiq8"}

// checkNamespace refuses a prefix that Sidekiq cannot have: the gem
// redis-namespace puts a colon between it and the key.
func (s *session) checkNamespace() error {
	if s.prefix != "" && !strings.HasSuffix(s.prefix, ":") {
		return usagef("--prefix %s: in this dialect a prefix ends with a colon; write --prefix %s:", s.prefix, s.prefix)
	}
	return nil
}

// openSidekiq returns the dialect of that name.
func (s *session) openSidekiq(client lua.Client, name string) (*sidekiq.Dialect, error) {
	namespace := strings.TrimSuffix(s.prefix, ":")
	return sidekiq.New(client, &sidekiq.Options{Version: sidekiqVersions[name], Namespace: namespace})
}

// sidekiqForm makes a Sidekiq job of a line.
type sidekiqForm struct {
	dialect *sidekiq.Dialect
	queue   string // of the lines without one of their own
	raw     bool
	at      time.Time
	delay   time.Duration
}

func (f *sidekiqForm) parse(line []byte) (sidekiq.Job, error) {
	job := sidekiq.Job{Queue: f.queue}
	if f.raw {
		job.Payload, job.At, job.In = slices.Clone(line), f.at, f.delay
	} else if timed, err := parseSidekiq(line, &job); err != nil {
		return job, err
	} else if !timed {
		job.At, job.In = f.at, f.delay
	}
	if n := f.size(&job); n > batchRoom {
		return job, fmt.Errorf("the job has %d bytes, at most %d are possible; "+
			"store the data elsewhere and push its place", n, batchRoom)
	}
	// With a context that is over all is checked, and nothing is sent.
	over, end := context.WithCancel(context.Background())
	end()
	if _, err := f.dialect.Push(over, job); !errors.Is(err, context.Canceled) {
		return job, afterIndex(err, "job 0: ")
	}
	return job, nil
}

// parseSidekiq reads the fields in their order, which the payload keeps. timed is true where the line has a time of
// its own.
func parseSidekiq(line []byte, job *sidekiq.Job) (timed bool, err error) {
	if !json.Valid(line) || bytes.TrimSpace(line)[0] != '{' {
		var any json.RawMessage
		return false, badSidekiq(json.Unmarshal(line, &any))
	}
	var at, delay bool
	seen := map[any]bool{}
	dec := json.NewDecoder(bytes.NewReader(line))
	_, _ = dec.Token() // the brace
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return false, badSidekiq(err)
		}
		if seen[name] {
			return false, twice(name)
		}
		seen[name] = true
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return false, badSidekiq(err)
		}
		if err := sidekiqField(name.(string), value, job); err != nil {
			return false, err
		}
		at, delay = at || name == "at", delay || name == "delay"
	}
	if at && delay {
		return false, errors.New(`both "at" and "delay"; leave one of them out`)
	}
	return at || delay, nil
}

// ourFields are names that fields of a job have in other dialects and in calls of Sidekiq's classes, and what to write
// instead. Sidekiq would keep them as fields without an effect.
var ourFields = map[string]string{
	"body":       `write "class" and "args"`,
	"id":         `write "jid"`,
	"unique":     `Sidekiq has no unique jobs; leave it out`,
	"unique_ttl": `Sidekiq has no unique jobs; leave it out`,
	"perform_in": `write "delay", such as "30s"`,
	"perform_at": `write "at", in seconds since 1970`,
}

func sidekiqField(name string, value json.RawMessage, job *sidekiq.Job) error {
	into := map[string]*string{"class": &job.Class, "queue": &job.Queue, "jid": &job.JID}[name]
	switch {
	case into != nil:
		if value[0] != '"' || json.Unmarshal(value, into) != nil || *into == "" {
			return fmt.Errorf("%q is not a string, or is empty", name)
		}
	case name == "args":
		job.Args = value
	case name == "at":
		at, err := strconv.ParseFloat(string(value), 64)
		if err != nil || at < 0 || at*1000 > lastMilli {
			return errors.New(`"at" is not a number of seconds since 1970`)
		}
		job.At = time.UnixMicro(int64(math.Round(at * 1e6)))
	case name == "delay":
		in, err := parseDuration(name, value)
		job.In = in
		return err
	case ourFields[name] != "":
		return fmt.Errorf("%q is not a field of a Sidekiq job; %s", name, ourFields[name])
	case name == "created_at" || name == "enqueued_at":
		return fmt.Errorf("%q belongs to a finished payload; leave it out, or push finished payloads with --raw", name)
	default:
		job.Fields = append(job.Fields, sidekiq.Field{Name: name, Value: value})
	}
	return nil
}

func badSidekiq(err error) error {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return fmt.Errorf("broken JSON at byte %d", syntax.Offset)
	}
	return errors.New(`not a JSON object; write {"class": "...", "args": [...]}`)
}

// size is more than the payload has, with what Sidekiq adds.
func (*sidekiqForm) size(job *sidekiq.Job) int {
	n := 512 + len(job.Payload) + 2*(len(job.Class)+len(job.Queue)+len(job.JID)) + grown(job.Args)
	for _, f := range job.Fields {
		n += 2*len(f.Name) + grown(f.Value)
	}
	return n
}

// grown is the most that JSON can have in another form of it: floats without an
// exponent are longer.
func grown(text []byte) int {
	n := len(text)
	for i, b := range text {
		if (b == 'e' || b == 'E') && i > 0 && text[i-1] >= '0' && text[i-1] <= '9' {
			n += 20
		}
	}
	return n
}

// A line of blanks is no payload.
func (*sidekiqForm) blanks() bool { return false }

// sidekiqReceipt is how long a repeat of a push is recognized.
const sidekiqReceipt = time.Minute

// pushSidekiq pushes jobs once, also when a reply is lost.
func pushSidekiq(d *sidekiq.Dialect) pusher[sidekiq.Job] {
	return func(ctx context.Context, jobs []sidekiq.Job) (pushed, error) {
		r, err := d.PushOnce(ctx, uuid.NewString(), sidekiqReceipt, jobs)
		return pushed{ready: r.Ready, scheduled: r.Scheduled, now: r.Now}, err
	}
}
