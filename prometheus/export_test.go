package prometheus

import (
	"context"

	"github.com/luatomic/luatomic/observe"
)

// WatchFunc is Watch of a census that reads so.
func WatchFunc(m *Metrics, read func(context.Context, observe.Recorder) error) error {
	return m.watch(read)
}
