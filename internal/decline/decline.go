// Package decline is how a consumer says that its process cannot work on a job: the error of a handler that has not
// begun, and the counts by which a consumer reports such jobs seldom instead of each time.
package decline

import (
	"errors"
	"sync"
)

// Err matches each error of New.
var Err = errors.New("luatomic: declined")

var errNoReason = errors.New("no reason given; pass an error to Decline")

type declined struct{ err error }

// New returns the error of a handler that has not begun a job because of err.
func New(err error) error {
	if err == nil {
		err = errNoReason
	}
	return &declined{err}
}

func (d *declined) Error() string        { return "declined: " + d.err.Error() }
func (d *declined) Unwrap() error        { return d.err }
func (d *declined) Is(target error) bool { return target == Err }

// maxCounts bounds the number of causes that are counted. Beyond it the counts begin again.
const maxCounts = 1000

// Counts counts declined jobs by cause. The zero value is ready to use. It is safe for concurrent use.
type Counts struct {
	mu     sync.Mutex
	counts map[string]int
}

// Add counts a job. It returns how many there are with this cause, and whether to report that: at the first, the
// tenth, the hundredth and so on.
func (c *Counts) Add(cause string) (n int, report bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, known := c.counts[cause]
	if c.counts == nil || !known && len(c.counts) >= maxCounts {
		c.counts = make(map[string]int)
	}
	c.counts[cause]++
	n = c.counts[cause]
	power := 1
	for power < n {
		power *= 10
	}
	return n, power == n
}
