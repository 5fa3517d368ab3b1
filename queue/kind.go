package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/luatomic/luatomic/lua"
)

// ErrUnknownKind is the failure of a job whose kind the Mux of its consumer does not serve.
var ErrUnknownKind = errors.New("luatomic: no handler serves this kind of job")

// Codec encodes and decodes the bodies of a Kind. It must be safe for concurrent use.
type Codec interface {
	Marshal(v any) ([]byte, error)
	Unmarshal(data []byte, v any) error
}

type jsonCodec struct{}

func (jsonCodec) Marshal(v any) ([]byte, error)      { return json.Marshal(v) }
func (jsonCodec) Unmarshal(data []byte, v any) error { return json.Unmarshal(data, v) }

// Kind is a sort of job with the type of its body. A program declares each once, as a variable.
type Kind[T any] struct {
	name  string
	codec Codec
}

// NewKind names a kind, whose bodies are JSON. It sends nothing; a bad name is reported by Job and Push.
func NewKind[T any](name string) Kind[T] { return Kind[T]{name: name, codec: jsonCodec{}} }

// WithCodec returns the kind with another encoding of its bodies. All processes use the same.
func (k Kind[T]) WithCodec(c Codec) Kind[T] {
	k.codec = c
	return k
}

// Name is the name given to NewKind.
func (k Kind[T]) Name() string { return k.name }

// Job returns a job of this kind with the body encoded, for Push and PushAll. The caller may set its other fields. A
// name that breaks the rules for names is lua.ErrBadName.
func (k Kind[T]) Job(in T) (Job, error) {
	if err := lua.CheckName("kind", k.name); err != nil {
		return Job{}, fmt.Errorf("luatomic: job of kind %q: %w", k.name, err)
	}
	body, err := k.codec.Marshal(in)
	if err != nil {
		return Job{}, fmt.Errorf("luatomic: job of kind %q: a %T cannot be encoded: %w", k.name, in, err)
	}
	return Job{Kind: k.name, Body: body}, nil
}

// Push adds one job of this kind; see Queue.Push.
func (k Kind[T]) Push(ctx context.Context, q *Queue, in T) (Pushed, error) {
	j, err := k.Job(in)
	if err != nil {
		return Pushed{}, err
	}
	return q.Push(ctx, j)
}

// Serve lets the mux give jobs of this kind to h from now on; serving the kind again replaces h. What h returns means
// what it means for a Handler. A job whose body cannot be decoded moves to the dead set, with the reason. With a nil h
// the kind is served no longer.
func (k Kind[T]) Serve(m *Mux, h func(ctx context.Context, in T, d *Delivery) error) {
	if h == nil {
		m.serve(k.name, nil)
		return
	}
	m.serve(k.name, func(ctx context.Context, d *Delivery) error {
		var in T
		if err := k.codec.Unmarshal(d.Body, &in); err != nil {
			return Discard(fmt.Errorf("luatomic: job of kind %q: the body is not a %T: %w", k.name, in, err))
		}
		return h(ctx, in, d)
	})
}

// Mux gives each job to the handler of its kind. Its method Handle is the Handler for Consume. The zero value is ready
// to use, and safe for concurrent use.
type Mux struct {
	// Other, if set before the first job, gets the jobs whose kind is not served, those without a kind included.
	Other Handler

	mu       sync.RWMutex
	handlers map[string]Handler
}

func (m *Mux) serve(kind string, h Handler) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.handlers == nil {
		m.handlers = make(map[string]Handler)
	}
	m.handlers[kind] = h
}

// Handle runs the handler of the job's kind. Where none serves it, and Other is nil, the job fails with ErrUnknownKind:
// it is delivered again after the back-off, perhaps to a process that serves it, and dead after MaxFailures.
func (m *Mux) Handle(ctx context.Context, d *Delivery) error {
	m.mu.RLock()
	h := m.handlers[d.Kind]
	m.mu.RUnlock()
	if h == nil {
		h = m.Other
	}
	if h == nil {
		return fmt.Errorf("%w: %q; serve it with Kind.Serve, or set Mux.Other", ErrUnknownKind, d.Kind)
	}
	return h(ctx, d)
}
