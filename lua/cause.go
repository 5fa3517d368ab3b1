package lua

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// endOf returns why ctx has ended, with its cause.
func endOf(ctx context.Context) error {
	if errors.Is(context.Cause(ctx), ctx.Err()) {
		return ctx.Err()
	}
	return fmt.Errorf("%w: %w", ctx.Err(), causeOf(ctx))
}

// causeOf returns the cause of the end of ctx as part of the error of a call.
func causeOf(ctx context.Context) error { return elsewhere{context.Cause(ctx)} }

// elsewhere wraps an error that says nothing about the outcome of this call: it may be the error of another call, which
// ended the context of a group of calls. It matches what the error matches, except the four outcomes and *Error.
type elsewhere struct{ err error }

func (e elsewhere) Error() string { return e.err.Error() }

func (e elsewhere) Is(target error) bool {
	outcomes := []error{ErrNotExecuted, ErrOutcomeUnknown, ErrExecutedInPart, ErrRefused}
	return !slices.Contains(outcomes, target) && errors.Is(e.err, target)
}

// As finds everything except an *Error.
func (e elsewhere) As(target any) bool {
	if _, outcome := target.(**Error); outcome {
		return false
	}
	return errors.As(e.err, target)
}
