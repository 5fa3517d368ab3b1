package send

import (
	"context"
	"fmt"
	"sync/atomic"
)

// BeforeResent begins the detail of an error without a reply. The reply to the previous attempt follows it.
const BeforeResent = "the attempt before it: "

// ResentKey is the context key of a ResentNoter.
type ResentKey struct{}

// A ResentNoter notes that a reply answers a retry.
type ResentNoter interface{ NoteResent() }

// Resent says whether a reply answers a retry. The zero value says no.
type Resent bool

// NoteResent is called when a reply answers a retry.
func (n *Resent) NoteResent() { *n = true }

// FailedKey is the context key of a FailureNoter.
type FailedKey struct{}

// A FailureNoter notes before each retry why the last attempt did not run the script. A caller that returns before
// the last attempt ends has no other reason to report.
type FailureNoter interface{ NoteFailed(err error) }

// Failure keeps why the last failed attempt did not run the script. It is for a caller that returns before its call
// does. The zero value has no reason.
type Failure struct{ last atomic.Pointer[error] }

// NoteFailed is called before each retry.
func (f *Failure) NoteFailed(err error) { f.last.Store(&err) }

// Known reports whether an attempt has failed.
func (f *Failure) Known() bool { return f.last.Load() != nil }

// After adds the reason to the error of a caller that did not wait. It adds text, not a wrapped error: the attempt
// under way may still run the script.
func (f *Failure) After(end error) error {
	why := f.last.Load()
	if why == nil {
		return end
	}
	return fmt.Errorf("%w; an attempt before that failed: %v", end, *why)
}

// WatchFailures returns a context for one call at a time. The call records its failed attempts in f.
func WatchFailures(ctx context.Context, f *Failure) context.Context {
	return context.WithValue(ctx, FailedKey{}, f)
}

// WatchResent returns a context for one call at a time. The call sets n if its reply answers a retry.
func WatchResent(ctx context.Context, n *Resent) context.Context {
	return context.WithValue(ctx, ResentKey{}, n)
}
