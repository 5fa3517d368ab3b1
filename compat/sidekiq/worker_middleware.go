package sidekiq

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/luatomic/luatomic/internal/decline"
)

// ErrMiddleware reports a job that was not performed because it has a field of a middleware that runs in Ruby only.
// See WorkOptions.AllowFields.
var ErrMiddleware = errors.New("sidekiq: the job needs a middleware that runs in Ruby only")

// middlewareFields are the fields whose server middleware has an effect that a job performed without it lacks: a lock
// that it deletes, a batch that it counts, arguments that it decrypts, a time after which it drops the job,
// attributes that it sets.
var middlewareFields = []string{
	"unique_for", "lock_digest", "unique_digest", "bid", "encrypt", "expiry", "cattr",
}

// needsMiddleware reports whether the field says that a job needs its middleware. Sidekiq numbers the attributes of
// further classes: cattr_1, cattr_2.
func needsMiddleware(name string, value []byte) bool {
	known := slices.Contains(middlewareFields, name) || strings.HasPrefix(name, "cattr_")
	return known && truthy(value)
}

// refuse returns an error for a job that has such a field which is not allowed.
func (o *WorkOptions) refuse(j *Delivery) error {
	for _, name := range j.middleware {
		if !slices.Contains(o.AllowFields, name) {
			return decline.New(middlewareError(name))
		}
	}
	return nil
}

type middlewareError string

func (e middlewareError) Error() string {
	return fmt.Sprintf("%v: it has the field %s; serve its queue from Ruby, or allow the field (AllowFields)",
		ErrMiddleware, string(e))
}

// Is matches ErrMiddleware.
func (e middlewareError) Is(target error) bool { return target == ErrMiddleware }

// ErrorClass is the text for error_class.
func (e middlewareError) ErrorClass() string { return "MiddlewareMissing" }

// Field returns the value of a field as the payload has it, such as cattr, locale or a trace id; nil when the job does
// not have it.
func (j *Delivery) Field(name string) json.RawMessage {
	value, _, err := field(j.Payload, name)
	if err != nil {
		return nil
	}
	return value
}
