package queue

import (
	"errors"
	"fmt"

	"github.com/luatomic/luatomic/lua"
)

// Layout is the version of the keys and formats of a queue that this package reads and writes. docs/layout.md lists
// them.
const Layout = 1

// ErrLayout reports that a later version of this package has changed the layout of the queue. The call has changed
// nothing. The scripts see the version in settings that they read anyway, so the check costs nothing.
var ErrLayout = errors.New("luatomic: the queue has a later layout")

// layoutError adds the cure to the error of a script that found a later layout.
func layoutError(err error) error {
	var refused *lua.Error
	if errors.As(err, &refused) && refused.Outcome == lua.ErrRefused && refused.Code == "LAYOUT" {
		return fmt.Errorf("%w than %d, which is all that this program knows: update luatomic: %w", ErrLayout,
			Layout, err)
	}
	return err
}
