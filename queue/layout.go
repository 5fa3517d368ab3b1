package queue

import (
	"errors"
	"fmt"

	"github.com/luatomic/luatomic/lua"
)

// Layout is the version of the keys and formats of a queue that this package reads and writes. docs/layout.md has them.
const Layout = 1

// ErrLayout reports that a later version of this package has changed the layout of the queue. Nothing has changed. The
// scripts find it out from settings that they read in any case, so the check costs nothing.
var ErrLayout = errors.New("luatomic: the queue has a later layout")

// layoutError adds the cure to the refusal of a script that met a later layout.
func layoutError(err error) error {
	var refused *lua.Error
	if errors.As(err, &refused) && refused.Outcome == lua.ErrRefused && refused.Code == "LAYOUT" {
		return fmt.Errorf("%w than %d, which is all that this program knows: update luatomic: %w", ErrLayout,
			Layout, err)
	}
	return err
}
