package lease

import (
	"time"

	"github.com/luatomic/luatomic/lua"
)

// longest bounds the durations of a lock, so that their sum fits into a time.Duration.
const longest = 10 * 365 * 24 * time.Hour

// Setting is a duration among the options of a lock.
type Setting struct {
	Field      string
	Value, Min time.Duration
}

// CheckSettings returns a lua.ErrOutOfRange for the first setting out of range.
func CheckSettings(all ...Setting) error {
	for _, s := range all {
		if s.Value < s.Min || s.Value > longest {
			return &lua.RangeError{Field: s.Field, Value: s.Value.String(), Min: s.Min.String(), Max: longest.String()}
		}
	}
	return nil
}
