//go:build !unix

package launch

import "errors"

var errUnsupported = errors.New("this system cannot stop and continue a process")

// Stop stops the process: it keeps its memory and connections, and executes nothing.
func Stop(int) error { return errUnsupported }

// Continue lets a stopped process run on.
func Continue(int) error { return errUnsupported }
