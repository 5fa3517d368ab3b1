package sidekiq

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// later is the time of a job for later, in us: of the clock, or from now. The zero value is now.
type later struct {
	is, fromNow bool
	micros      int64
}

// dueTime returns when a job is due.
func dueTime(at time.Time, in time.Duration) (later, error) {
	switch {
	case in > 0:
		return later{true, true, in.Round(time.Microsecond).Microseconds()}, nil
	case at.IsZero() || in < 0:
		return later{}, nil
	case at.Year() < 1970 || at.Year() > 9999:
		return later{}, fmt.Errorf("%w: a year from 1970 to 9999 was expected", ErrTime)
	}
	return later{true, false, at.UnixMicro()}, nil
}

// spread is the range of microseconds over which the jobs of one time are spread. A step has no more jobs.
const spread = MaxBatch

// schedule writes the kinds of those jobs of a step that are for later; see Options.ExactTimes.
func (d *Dialect) schedule(step []draft) {
	var clock, delays slots
	offset := rand.Int64N(spread) // keeps the jobs of several calls for one time apart, mostly
	for i := range step {
		w := &step[i]
		switch {
		case !w.later.is:
		case d.exact:
			w.kind = w.later.kind("")
		case w.later.fromNow:
			w.later.micros = delays.take(w.later.micros, offset)
			// The half keeps it apart from each time of the clock: a score has a quarter of a microsecond.
			w.kind = w.later.kind("5")
		default:
			w.later.micros = clock.take(w.later.micros, offset)
			w.kind = w.later.kind("")
		}
	}
}

// kind is the plan's entry for a job for later, with a further digit of its time.
func (l later) kind(digit string) string {
	if l.fromNow {
		return fmt.Sprintf("+%d.%06d%s", l.micros/1e6, l.micros%1e6, digit)
	}
	return string(appendSeconds(nil, time.UnixMicro(l.micros)))
}

// slots are the microseconds that are taken, each with one behind it that is taken or the next free one.
type slots map[int64]int64

// take takes a microsecond within the spread from first on that no other job has, if it can the one at the offset.
func (s *slots) take(first, offset int64) int64 {
	if *s == nil {
		*s = make(slots)
	}
	at := s.free(first + offset)
	if at >= first+spread {
		at = s.free(first)
	}
	(*s)[at] = at + 1
	return at
}

// free returns the first that is free, and shortens the way to it for the next call.
func (s slots) free(from int64) int64 {
	free := from
	for next, taken := s[free]; taken; next, taken = s[free] {
		free = next
	}
	for from < free {
		from, s[from] = s[from], free
	}
	return free
}
