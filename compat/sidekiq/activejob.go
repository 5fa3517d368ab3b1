package sidekiq

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/luatomic/luatomic/internal/exact"
)

// ErrActiveJob reports that a job is not one of Active Job: its one argument is not the object of Active Job's wrapper.
var ErrActiveJob = errors.New("sidekiq: not a job of Active Job")

// wrapper is the class under which Active Job puts its jobs into Sidekiq, and that all versions of Rails know.
const wrapper = "ActiveJob::QueueAdapters::SidekiqAdapter::JobWrapper"

// ActiveJob is a job of Rails' Active Job: the object that is the one argument of Sidekiq's wrapper.
type ActiveJob struct {
	// Class is the name of the class that performs the job.
	Class string
	// Queue is the queue's name. Default "default".
	Queue string
	// Arguments are the job's arguments as Active Job serializes them. Args makes them from Go values, including
	// GlobalID, Symbol, RubyTime and Keywords. Default none.
	Arguments json.RawMessage
	// ID is Active Job's id of the job. Default a new uuid.
	ID string
	// Locale and Timezone are in effect while Ruby performs the job. Default "en" and the time zone of the application.
	Locale, Timezone string
	// Executions is how often Active Job itself has retried the job (retry_on); retries of Sidekiq are in
	// Delivery.Retried.
	Executions int
	// EnqueuedAt is when it was enqueued. Default now, by this machine's clock.
	EnqueuedAt time.Time
}

// activeJob is the form of the object in the payload.
type activeJob struct {
	Class      string          `json:"job_class"`
	ID         string          `json:"job_id"`
	ProviderID any             `json:"provider_job_id"`
	Queue      string          `json:"queue_name"`
	Priority   any             `json:"priority"`
	Arguments  json.RawMessage `json:"arguments"`
	Executions int             `json:"executions"`
	Exceptions struct{}        `json:"exception_executions"`
	Locale     string          `json:"locale"`
	Timezone   *string         `json:"timezone"`
	EnqueuedAt string          `json:"enqueued_at"`
}

// Job returns the Sidekiq job that carries this job: Ruby performs it as if perform_later had enqueued it. Errors:
// ErrClass, ErrArgs, ErrEncoding.
func (a ActiveJob) Job() (Job, error) {
	form := activeJob{
		Class: a.Class, ID: a.ID, Queue: cmp.Or(a.Queue, "default"), Arguments: a.Arguments, Executions: a.Executions,
		Locale: cmp.Or(a.Locale, "en"),
	}
	switch {
	case a.Class == "":
		return Job{}, ErrClass
	case len(a.Arguments) == 0:
		form.Arguments = json.RawMessage("[]")
	case a.Arguments[0] != '[':
		return Job{}, ErrArgs
	}
	if form.ID == "" {
		id, err := uuid.NewRandom()
		if err != nil {
			return Job{}, fmt.Errorf("sidekiq: id of a job: %w", err)
		}
		form.ID = id.String()
	}
	if a.Timezone != "" {
		form.Timezone = &a.Timezone
	}
	at := a.EnqueuedAt
	if at.IsZero() {
		at = time.Now()
	}
	form.EnqueuedAt = at.UTC().Format(rubyTime)
	args, err := json.Marshal([]activeJob{form})
	if err != nil {
		return Job{}, fmt.Errorf("%w: %w", ErrArgs, err)
	}
	if !exact.JSON(form, args) {
		return Job{}, ErrEncoding
	}
	wrapped := Field{Name: "wrapped", Value: appendString(nil, a.Class)}
	return Job{Class: wrapper, Queue: form.Queue, Args: args, Fields: []Field{wrapped}}, nil
}

// ActiveJob reads the job that a wrapper of Active Job carries. Handlers.Perform finds its handler by Delivery.Wrapped.
// The error is ErrActiveJob for any other job.
func (j *Delivery) ActiveJob() (ActiveJob, error) {
	var forms []activeJob
	if err := json.Unmarshal(j.Args, &forms); err != nil || len(forms) != 1 || forms[0].Class == "" {
		return ActiveJob{}, fmt.Errorf("%w: its class is %q", ErrActiveJob, j.Class)
	}
	f := &forms[0]
	a := ActiveJob{
		Class: f.Class, Queue: f.Queue, Arguments: f.Arguments, ID: f.ID, Locale: f.Locale, Executions: f.Executions,
	}
	if f.Timezone != nil {
		a.Timezone = *f.Timezone
	}
	a.EnqueuedAt, _ = time.Parse(time.RFC3339Nano, f.EnqueuedAt) // zero where it has none, as in old versions
	return a, nil
}

// Scan decodes the arguments one by one, as encoding/json does, from a plain form of what Active Job serializes. A
// GlobalID is its text, which names a record and is not resolved. A symbol or a module is its name, a time is RFC 3339,
// a duration its seconds, a BigDecimal its digits. A hash loses Active Job's own keys. The number must match; keyword
// arguments are one last hash. The error is ErrScan, including for an object of a serializer of the application.
func (a *ActiveJob) Scan(args ...any) error {
	var raw []json.RawMessage
	if err := json.Unmarshal(a.Arguments, &raw); err != nil {
		return fmt.Errorf("%w: the job's arguments are not an array", ErrScan)
	}
	if len(raw) != len(args) {
		return fmt.Errorf("%w: given %d, expected %d", ErrScan, len(raw), len(args))
	}
	for i := range raw {
		value, err := plainValue(raw[i])
		if err != nil {
			return fmt.Errorf("%w: argument %d: %w", ErrScan, i+1, err)
		}
		if err := json.Unmarshal(value, args[i]); err != nil {
			return fmt.Errorf("%w: argument %d does not decode into %T", ErrScan, i+1, args[i])
		}
	}
	return nil
}

// plainSerializers are Active Job's own whose value alone says what it is.
var plainSerializers = []string{
	"SymbolSerializer", "ModuleSerializer", "TimeSerializer", "DateTimeSerializer", "TimeWithZoneSerializer",
	"DateSerializer", "DurationSerializer", "BigDecimalSerializer",
}

// plainValue returns a value without the forms of Active Job. Payloads are nested at most 100 levels deep.
func plainValue(raw json.RawMessage) (json.RawMessage, error) {
	switch raw[0] {
	case '[':
		var all []json.RawMessage
		if err := json.Unmarshal(raw, &all); err != nil {
			return nil, err
		}
		for i := range all {
			var err error
			if all[i], err = plainValue(all[i]); err != nil {
				return nil, err
			}
		}
		return json.Marshal(all)
	case '{':
		return plainObject(raw)
	}
	return raw, nil
}

func plainObject(raw json.RawMessage) (json.RawMessage, error) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(raw, &object); err != nil {
		return nil, err
	}
	if gid := object["_aj_globalid"]; gid != nil {
		return gid, nil
	}
	if serializer := object["_aj_serialized"]; serializer != nil {
		name := strings.TrimPrefix(stringOf(serializer), "ActiveJob::Serializers::")
		if !slices.Contains(plainSerializers, name) {
			return nil, fmt.Errorf("an object of the serializer %q", name)
		}
		return object["value"], nil
	}
	maps.DeleteFunc(object, func(name string, _ json.RawMessage) bool { return strings.HasPrefix(name, "_aj_") })
	for name, value := range object {
		var err error
		if object[name], err = plainValue(value); err != nil {
			return nil, err
		}
	}
	return json.Marshal(object)
}
