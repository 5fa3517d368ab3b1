package send

import (
	"context"
	"fmt"
	"sync/atomic"
)

// BeforeResent begins the detail of an error without a reply. Behind it is the reply to the attempt before.
const BeforeResent = "the attempt before it: "

// ResentKey is the context key of a Noter.
type ResentKey struct{}

// A Noter learns that the reply it got answers a retry.
type ResentNoter interface{ NoteResent() }

// Resent is whether a reply answers a retry. The zero value knows of none.
type Resent bool

// NoteResent is called where it does.
func (n *Resent) NoteResent() { *n = true }

// FailedKey is the context key of a FailureNoter.
type FailedKey struct{}

// A FailureNoter learns why an attempt has not run the script, each time before it is repeated. A caller that does not
// wait for the last attempt has no other reason.
type FailureNoter interface{ NoteFailed(err error) }

// Failure is why the last attempt that has not run the script has not. It is for a caller that returns before its call
// does. The zero value knows of none.
type Failure struct{ last atomic.Pointer[error] }

// NoteFailed is called before each repeat.
func (f *Failure) NoteFailed(err error) { f.last.Store(&err) }

// Known reports whether there is such an attempt.
func (f *Failure) Known() bool { return f.last.Load() != nil }

// After adds what is known to the error of a caller that did not wait. It is only text: the attempt that is on its way
// may still run the script.
func (f *Failure) After(end error) error {
	why := f.last.Load()
	if why == nil {
		return end
	}
	return fmt.Errorf("%w; an attempt before that failed: %v", end, *why)
}

// WatchFailures returns a context for one call at a time, of whose failures the note learns.
func WatchFailures(ctx context.Context, f *Failure) context.Context {
	return context.WithValue(ctx, FailedKey{}, f)
}

// WatchResent returns a context for one call at a time, of which the note learns.
func WatchResent(ctx context.Context, n *Resent) context.Context {
	return context.WithValue(ctx, ResentKey{}, n)
}
