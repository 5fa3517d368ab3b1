package limit

import (
	"errors"
	"fmt"
	"slices"
	"time"

	limitscript "github.com/luatomic/luatomic/gen/limit"
)

var (
	// ErrWouldWait says that a reservation would have to wait longer than its caller allows: Options.MaxWait, MaxDebt
	// or the deadline of the context. Nothing was spent. It is returned as a *WaitError.
	ErrWouldWait = errors.New("luatomic: the limit has a longer wait")
	// ErrSettled says that a reservation was settled before, or that its time to be settled is over.
	ErrSettled = errors.New("luatomic: reservation settled")
	// ErrNotALimit says that the key of a limit holds something else.
	ErrNotALimit = errors.New("luatomic: not a limit")
)

// WaitError has the wait that was refused. It matches ErrWouldWait.
type WaitError struct {
	// By is the name of the limit with that wait.
	By string
	// Wait is how long the call would have waited; the longest Duration for a limit that is blocked.
	Wait time.Duration
	// Max is how long it was allowed to.
	Max time.Duration
}

// Error names the limit and both times.
func (e *WaitError) Error() string {
	if e.Wait == Forever {
		return fmt.Sprintf("%v: %q is blocked", ErrWouldWait, e.By)
	}
	return fmt.Sprintf("%v: %q has room in %v, the call may wait %v", ErrWouldWait, e.By, e.Wait, e.Max)
}

// Is matches ErrWouldWait.
func (e *WaitError) Is(target error) bool { return target == ErrWouldWait }

// layouts are the errors of scripts that found another text than a record.
var layouts = []error{
	limitscript.ErrAllowLayout, limitscript.ErrAllowAllLayout, limitscript.ErrPeekLayout,
	limitscript.ErrReserveLayout, limitscript.ErrSettleLayout,
}

// recordError returns err with what was not possible, as an ErrNotALimit if a script found another text under the key.
func recordError(what string, err error, limits []*Limit) error {
	if err == nil {
		return nil
	}
	if slices.ContainsFunc(layouts, func(layout error) bool { return errors.Is(err, layout) }) {
		err = fmt.Errorf("%w: key %q or one beside it; Reset the limit when no other program uses the key: %w",
			ErrNotALimit, limits[0].keys.Record, err)
	}
	return fmt.Errorf("luatomic: %s %s: %w", what, names(limits), err)
}
