// Package sidekiq takes one side of a running Sidekiq system: Go enqueues for Ruby workers, moves due jobs beside
// Ruby's own pollers, and performs jobs that Ruby enqueued, on Sidekiq's keys and in Sidekiq's bytes.
//
// # Keys
//
//	queues          SET   names of all queues
//	queue:<name>    LIST  payloads, the newest at the head; workers take from the tail
//	schedule        ZSET  payloads, scored by the time they are due in float seconds
//	retry           ZSET  the same, for jobs that failed
//	dead            ZSET  payloads scored by the time of their death
//	processes       SET   identities of the worker processes
//	stat:processed  stat:failed  STRING  counters
//
// This package adds three keys: <set>:quarantine, a ZSET of members that no poller can parse; and two STRINGs that
// expire, luatomic:push:<token>, the receipt of a push that may be retried, and luatomic:reschedule:<random>, the
// receipt of a Reschedule or Requeue. Work has three keys for jobs in flight; see there. When Options.Namespace is set,
// it precedes every key, as with redis-namespace.
//
// # The life of a job
//
// A payload is one JSON object. Push puts it into a queue, with enqueued_at by the server's clock, or into schedule;
// one script does both, for up to 1000 jobs. When it is due, MoveDue replaces enqueued_at in its bytes and moves it to
// its queue, in one script: a crash cannot lose it, and no two pollers, Go or Ruby, move it twice. Ruby processes still
// have their own gaps; docs/sidekiq.md lists them.
//
// The keys have no hash tag, so a Redis Cluster refuses the scripts, as it refuses Sidekiq. Use one server, or one
// with replicas.
package sidekiq

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"github.com/luatomic/luatomic/compat/sidekiq/internal/script"
	"github.com/luatomic/luatomic/internal/send"
	"github.com/luatomic/luatomic/lua"
)

// Version is the major version of the Sidekiq on the other side. It decides how times are written and the order of
// the fields.
type Version int

// The versions. Up to 7, times are float seconds; in 8 they are whole milliseconds. Scores are float seconds in all
// versions.
const (
	V4 Version = 4
	V5 Version = 5
	V6 Version = 6
	V7 Version = 7
	V8 Version = 8
)

// Set is one of Sidekiq's sorted sets.
type Set string

// The sets: jobs for later, failed jobs that will be retried, and failed jobs that will not.
const (
	Schedule Set = "schedule"
	Retry    Set = "retry"
	Dead     Set = "dead"
)

// Errors found before anything is sent.
var (
	// ErrVersion reports that a version is not one of V4 to V8.
	ErrVersion = errors.New("sidekiq: unknown version")
	// ErrNamespace reports that a namespace cannot be the prefix of a key.
	ErrNamespace = errors.New("sidekiq: bad namespace")
	// ErrSet reports that a call does not work on a set. The sets are Schedule, Retry and Dead; MoveDue moves nothing
	// from Dead.
	ErrSet = errors.New("sidekiq: not a set for this call")
)

// Options are the settings of a Dialect. Nil means the defaults.
type Options struct {
	// Version of the other side. Default V7: all versions from 4 to 8 read its payloads correctly.
	Version Version
	// Namespace and a colon precede every key, as with the gem redis-namespace for Sidekiq 6 and older. Default none.
	Namespace string
	// ExactTimes writes due times exactly as given. By default up to a millisecond is added, so that no two jobs of one
	// step share a score: the web interface of Sidekiq deletes all jobs of a score and then adds all but one again, and
	// a crash in between loses them.
	ExactTimes bool
}

// Dialect is one Sidekiq system on one Redis. Its methods may be called from any goroutine.
type Dialect struct {
	client      lua.Client
	version     Version
	prefix      string // of every key: the namespace and its colon
	exact       bool
	clockOffset atomic.Int64 // server's clock minus this machine's, in us; 0 when not known
}

// New returns the dialect of the Sidekiq that uses the client's Redis and database; nil options mean the defaults.
// Nothing is sent. Errors: ErrVersion, ErrNamespace, and one for a client that is nil.
func New(client lua.Client, opts *Options) (*Dialect, error) {
	if err := send.CheckClient(client); err != nil {
		return nil, fmt.Errorf("sidekiq: %w", err)
	}
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.Version == 0 {
		o.Version = V7
	}
	if o.Version < V4 || o.Version > V8 {
		return nil, fmt.Errorf("%w: %d; use one of V4 to V8", ErrVersion, o.Version)
	}
	d := &Dialect{client: client, version: o.Version, exact: o.ExactTimes}
	if o.Namespace != "" {
		if len(o.Namespace) > 128 || !utf8.ValidString(o.Namespace) || strings.ContainsAny(o.Namespace, " \t\r\n\x00") {
			return nil, fmt.Errorf("%w: 1 to 128 bytes of UTF-8 without spaces were expected", ErrNamespace)
		}
		d.prefix = o.Namespace + ":"
	}
	return d, nil
}

// Version returns the dialect's version.
func (d *Dialect) Version() Version { return d.version }

// key returns a key with its prefix.
func (d *Dialect) key(name string) string { return d.prefix + name }

// queueKey returns the key of a queue's list.
func (d *Dialect) queueKey(queue string) string { return d.prefix + "queue:" + queue }

// milliseconds reports whether times in payloads are integers.
func (d *Dialect) milliseconds() bool { return d.version >= V8 }

// check reports whether the set is one that Sidekiq has.
func (s Set) check() error {
	if s != Schedule && s != Retry && s != Dead {
		return fmt.Errorf("%w: %q", ErrSet, string(s))
	}
	return nil
}

// Scripts are all scripts of this package, for lua.Preload.
func Scripts() []*lua.Script {
	return []*lua.Script{
		&script.DeclineScript, &script.DeleteScript, &script.DueScript, &script.MoveScript,
		&script.PushOnceScript, &script.PushScript, &script.QuarantineScript, &script.RescheduleScript,
		&script.RetryBuryScript, &script.RetryDropScript, &script.RetryLaterScript, &script.StatsScript,
		&script.WorkerAsideScript, &script.WorkerBeatScript, &script.WorkerReturnScript,
		&script.WorkerTakeScript,
	}
}
