package queue

import (
	"context"
	"fmt"
	"sync"

	"github.com/luatomic/luatomic/internal/exact"
	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/lua"
)

// Kind is a kind of job with the type of its body. A program declares each kind once, as a variable.
type Kind[T any] struct {
	name  string
	codec lua.Codec
}

// NewKind returns the kind of that name, whose bodies are JSON. It sends nothing. Job and Push report a bad name, and
// refuse a value with a string that is not UTF-8, which encoding/json would change: bytes belong into a []byte.
func NewKind[T any](name string) Kind[T] { return Kind[T]{name: name, codec: exact.Codec{}} }

// WithCodec returns the kind with another encoding of its bodies. All processes must use the same encoding.
func (k Kind[T]) WithCodec(c lua.Codec) Kind[T] {
	k.codec = c
	return k
}

// Name is the name given to NewKind.
func (k Kind[T]) Name() string { return k.name }

// Job returns a job of this kind with the body encoded, for Push and PushAll. The caller may set its other fields. A
// bad name is a lua.ErrBadName.
func (k Kind[T]) Job(in T) (Job, error) {
	if err := keys.CheckName("kind", k.name); err != nil {
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

// Serve makes the mux pass jobs of this kind to h from now on. Another Serve of the kind replaces h, and a nil h ends
// its service. The error of h means what the error of a Handler means. A job whose body cannot be decoded is declined,
// because a process of another version may decode it; see Decline.
func (k Kind[T]) Serve(m *Mux, h func(ctx context.Context, in T, d *Delivery) error) {
	if h == nil {
		m.serve(k.name, nil)
		return
	}
	m.serve(k.name, func(ctx context.Context, d *Delivery) error {
		var in T
		if err := k.codec.Unmarshal(d.Body, &in); err != nil {
			return Decline(fmt.Errorf("luatomic: job of kind %q: the body is not a %T: %w", k.name, in, err))
		}
		return h(ctx, in, d)
	})
}

// Mux passes each job to the handler of its kind. Its method Handle is the Handler for Consume. The zero value is ready
// to use. A Mux is safe for concurrent use.
type Mux struct {
	// Other, if set before the first job, gets the jobs whose kind is not served, and those without a kind.
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

// Handle runs the handler of the job's kind. If no handler serves the kind and Other is nil, the job is declined with
// ErrUnknownKind, so that a process that serves the kind can work on it; see Decline.
func (m *Mux) Handle(ctx context.Context, d *Delivery) error {
	m.mu.RLock()
	h := m.handlers[d.Kind]
	m.mu.RUnlock()
	if h == nil {
		h = m.Other
	}
	if h == nil {
		return Decline(fmt.Errorf("%w: %q; serve it with Kind.Serve, or set Mux.Other", ErrUnknownKind, d.Kind))
	}
	return h(ctx, d)
}
