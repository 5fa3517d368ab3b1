package web

import (
	"net/http"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/compat/sidekiq"
)

// The bounds of one request.
const (
	PageSize  = 50                      // jobs on a page
	ScanJobs  = 5000                    // jobs that one page of a filtered list checks
	ScanFor   = 1500 * time.Millisecond // the longest search for locks or buses
	Timeout   = 5 * time.Second         // for the server's answers
	MaxAtOnce = 32                      // requests that wait for the server; more get 503
)

// Role is a set of rights.
type Role uint

// The rights.
const (
	// View shows counts, names, ids, times and states.
	View Role = 1 << iota
	// Texts shows texts that programs wrote for people: reasons, notes, headers.
	Texts
	// Bodies shows the body of a job on request.
	Bodies
	// Jobs requeues, cancels, reschedules, buries and deletes jobs.
	Jobs
	// Queues pauses and resumes queues and sets their limits.
	Queues
	// Locks takes locks and permits from their holders.
	Locks
)

// Sets of rights.
const (
	Nobody   Role = 0
	Viewer        = View | Texts
	Operator      = Viewer | Bodies | Jobs | Queues | Locks
)

// Has reports whether the role has all of these rights.
func (r Role) Has(rights Role) bool { return r&rights == rights }

// Options are the settings of a Handler. The zero value shows a server to this machine only, and changes nothing.
type Options struct {
	// Prefix is the Prefix of the queues, locks and buses that are shown.
	Prefix string
	// Path is where the handler is mounted, such as "/luatomic". Requests must have it: use no http.StripPrefix, and no
	// proxy that removes it. Default: the root.
	Path string
	// Write allows changes. Without it every role can only read.
	Write bool
	// WriteClient, if set, makes the changes. The other client then needs no right to write.
	WriteClient redis.UniversalClient
	// Authorize, if set, returns what a request may do. Only the URL names the object, each parameter once: "name" of a
	// queue, lock or bus, with "tag" of a queue and "kind" of a lock. They are the names themselves, also if the
	// request has them as the page writes bytes that are not UTF-8. The handler reads them from the URL too, and
	// answers 400 to a form that has one of them. Without Authorize, requests from this machine may do everything and
	// all others nothing. An Authorize can make the same test with IsLocal.
	Authorize func(*http.Request) Role
	// Hosts are the names by which the page is reached, without a port, in upper or lower case. Requests for another
	// Host are refused; an empty name matches none. Default: the names of this machine, or any name if Authorize is
	// set.
	Hosts []string
	// Redact, if set, returns the part of a body that is shown and searched.
	Redact func(queue, kind string, body []byte) []byte
	// Sidekiq are the settings of the Sidekiq that uses the same server. It is shown if it has a queue.
	Sidekiq *sidekiq.Options
	// OnAction, if set, is called after each attempted change, for an audit log. It must not block.
	OnAction func(*http.Request, Action)
	// OnError, if set, is called with each failure of the server and the number that the page shows for it.
	OnError func(id string, err error)
}

// Action is a change that a request has made, or failed to make.
type Action struct {
	// Verb is what was done, such as "requeue". Target is what it was done to, such as "queue mail" or "lock nightly";
	// "queue mail {blue}" is the queue of the tag blue.
	Verb, Target string
	// IDs are the first hundred jobs. Done is the number of things changed.
	IDs  []string
	Done int
	Err  error
}
