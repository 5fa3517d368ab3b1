package luatomic

import "github.com/luatomic/luatomic/queue"

// The nouns of delayed jobs. Job.At and Job.Delay schedule a job, Take and a Poller promote it.
type (
	// Poller promotes the due jobs of some queues; see [queue.Poller].
	Poller = queue.Poller
	// PollerOptions are the settings of a Poller; see [queue.PollerOptions].
	PollerOptions = queue.PollerOptions
	// Promoted is the result of Queue.Promote; see [queue.Promoted].
	Promoted = queue.Promoted
)

// NewPoller returns a poller of the queues; nil options mean the defaults. A queue that is consumed needs no poller.
// See [queue.NewPoller].
func NewPoller(opts *PollerOptions, queues ...*Queue) *Poller {
	return queue.NewPoller(opts, queues...)
}
