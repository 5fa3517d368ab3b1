// Package keys builds the name of every key and channel. No other code in the module, no script included, builds one.
//
// The library writes the only braces, around the name that the user gave, so all keys of one object share a slot of a
// Redis Cluster. A prefix precedes everything. Queues that share a slot have their tag in braces there, and their
// names in braces behind it: a queue without a tag has no second brace there, and no name has a brace, so no two keys
// are equal.
//
//	{queue}:r   list    ready jobs, entries enqueued_at_ms:id, oldest at the head
//	{queue}:s   zset    scheduled jobs, id scored by due time in ms
//	{queue}:b   hash    id to body, of every job that is not finished
//	{queue}:l   zset    leased jobs, id scored by the end of the lease in us; a
//	                    channel of that name has the ids of those cancelled
//	{queue}:n   hash    id to the number of failed deliveries, x for a cancelled
//	                    job; id and a line feed to the last reason
//	{queue}:d   zset    dead jobs, id scored by the time of death in ms
//	{queue}:u   hash    k:name to the id that holds a unique name, j:id to the name
//	{queue}:ux  zset    unique name, scored by the end of its hold in ms
//	{queue}:c   hash    settings: paused, limit; dead_bytes, the bodies in d
//	{queue}:o   hash    id to the options of a job, of those that have some
//	{queue}:w   zset    names of waiting consumers and pollers, scored by the
//	                    end of their wait in ms; their channel is {queue}:w:name;
//	                    expires
//	{queue}:f   zset    ids of jobs that were finished within a minute, scored by that
//	                    time in ms, for a push that is sent again; expires
//	{queue}:i:* string  result of one call, kept for a retry; expires
//
//	{tag}{queue}:r ...  the same keys of a queue with a tag
//	{tag}{}:i:* string  result of one push to several queues of a tag; expires
//
//	queues:{luatomic}:names    zset  {queue} or {tag}{queue}, scored by the last
//	                                 report in ms; expires
//	queues:{luatomic}:workers  zset  process, scored by the end of its lease in ms;
//	                                 expires
//	queues:{luatomic}:about    hash  process to its description; expires
//	queues:{luatomic}:n:<day>  hash  jobs of a day by queue and outcome; expires
//
//	lock:{name}  string  fence, holder and lease as one text; expires
//	lockq:{name} list    waiters for the lock in order of arrival; expires
//
//	sem:{name}   zset    the semaphore, see scripts/lock/sem_acquire.lua; expires
//	semq:{name}  zset    waiters for a permit, scored by arrival; expires
//	rw:{name}, rwq:{name}  the same for a read-write lock
//
// With a tag, the locks of that tag share a slot: lock:{tag}:name. Waiters subscribe to lock:c:<process>, on a
// cluster to lock:{name}:c:<process>; observers of an election to lock:{name}:e.
//
//	limit:{name}      string  what is spent of a rate limit, see scripts/part/gcra.lua; expires
//	limitr:{name}:*   string  the receipt of one reservation, see scripts/limit/reserve.lua; expires
//
// With a tag, the limits of that tag share a slot: limit:{tag}:name. A name that no key can have is hashed.
//
//	rpc:{bus}:nodes     zset    node scored by the end of its lease in ms,
//	                            with its load as the fraction; expires
//	rpc:{bus}:about     hash    node and its description; expires
//	rpc:{bus}:methods   zset    method, NUL, node; expires
//	rpc:{bus}:serves    hash    node, NUL, part: its methods, a line each; expires
//	rpc:{bus}:r:*       string  one request: state, attempt and node; digest and
//	                            callers; the request or the reply; expires
//	rpc:{bus}:b:*       string  a body that is too large for a script; expires
//	rpc:{bus}:s:*       hash    parts of a streaming reply by number; expires
//	rpc:{bus}:k:*       string  the node that owns a connection; expires
//
// The keys of a queue do not expire: they hold unfinished work. Each is deleted with its last job, except the
// settings in c.
package keys

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
)

// Queue names the keys of one queue.
type Queue struct {
	Ready, Scheduled, Bodies, Leases, Failures, Dead, Unique, Expiry, Control, Wake, Options, Finished string

	// Listed is how the queue is named in the list of queues.
	Listed string

	receipt, channel string
}

// NewQueue names the keys of the queue, or returns why the name or the tag is invalid. Without a tag the name is the
// tag.
func NewQueue(prefix, tag, name string) (Queue, error) {
	if err := check("queue name", prefix, name); err != nil {
		return Queue{}, err
	}
	listed := "{" + name + "}"
	if tag != "" {
		if err := CheckName("tag", tag); err != nil {
			return Queue{}, err
		}
		listed = "{" + tag + "}{" + name + "}"
	}
	head := prefix + listed + ":"
	return Queue{
		Listed: listed,
		Ready:  head + "r", Scheduled: head + "s", Bodies: head + "b",
		Leases: head + "l", Failures: head + "n", Dead: head + "d",
		Unique: head + "u", Expiry: head + "ux", Control: head + "c", Wake: head + "w",
		Options: head + "o", Finished: head + "f",
		receipt: head + "i:", channel: head + "w:",
	}, nil
}

// Fleet names the keys under which processes report the queues that they use.
type Fleet struct {
	Queues, Workers, About string

	counts string
}

// NewFleet names the keys of all processes with that prefix.
func NewFleet(prefix string) Fleet {
	head := prefix + "queues:{luatomic}:"
	return Fleet{Queues: head + "names", Workers: head + "workers", About: head + "about", counts: head + "n:"}
}

// Counts names the key of a day's counts; the day is as 2006-01-02.
func (f *Fleet) Counts(day string) string { return f.counts + day }

// Receipt names the key that keeps the result of a push with that token to several
// queues of a tag.
func Receipt(prefix, tag, token string) string { return prefix + "{" + tag + "}{}:i:" + token }

// Receipt names the key that keeps the result of the push with that token.
func (q *Queue) Receipt(token string) string { return q.receipt + token }

// Cancels names the channel that notifies the consumers of a cancelled job that one of them has.
func (q *Queue) Cancels() string { return q.Leases }

// Channel names the channel that notifies a waiter of work.
func (q *Queue) Channel(waiter string) string { return q.channel + waiter }

// Lock names the keys of one lock.
type Lock struct {
	Record, Queue string
}

// NewLock names the keys of the lock. With a tag its slot is that of the tag.
func NewLock(prefix, tag, name string) (Lock, error) {
	return newLock("lock", prefix, tag, name)
}

// NewSemaphore names the keys of the semaphore, as NewLock does.
func NewSemaphore(prefix, tag, name string) (Lock, error) {
	return newLock("sem", prefix, tag, name)
}

// NewRWLock names the keys of the read-write lock, as NewLock does.
func NewRWLock(prefix, tag, name string) (Lock, error) {
	return newLock("rw", prefix, tag, name)
}

func newLock(kind, prefix, tag, name string) (Lock, error) {
	if err := check("lock name", prefix, name); err != nil {
		return Lock{}, err
	}
	if tag == "" {
		return Lock{Record: prefix + kind + ":{" + name + "}", Queue: prefix + kind + "q:{" + name + "}"}, nil
	}
	if err := CheckName("tag", tag); err != nil {
		return Lock{}, err
	}
	return Lock{Record: prefix + kind + ":{" + tag + "}:" + name, Queue: prefix + kind + "q:{" + tag + "}:" + name}, nil
}

// LockOf names the keys of the lock, semaphore or read-write lock with that record, and says whether it is a plain
// lock.
func LockOf(prefix, record string) (_ Lock, plain bool, err error) {
	kind, rest, ok := strings.Cut(strings.TrimPrefix(record, prefix), ":{")
	if !ok || !strings.HasPrefix(record, prefix) || kind != "lock" && kind != "sem" && kind != "rw" {
		return Lock{}, false, fmt.Errorf("%w: %q is the record of no lock", ErrBadName, record)
	}
	return Lock{Record: record, Queue: prefix + kind + "q:{" + rest}, kind == "lock", nil
}

// Channel names the channel in the lock's slot that notifies a process.
func (l *Lock) Channel(process string) string { return l.Record + ":c:" + process }

// Observers names the channel that notifies the observers of an election.
func (l *Lock) Observers() string { return l.Record + ":e" }

// LockInbox returns the prefix of a process' channel, which notifies the process of any lock. The name of the process
// follows it.
func LockInbox(prefix string) string { return prefix + "lock:c:" }

// Limit names the keys of one rate limit.
type Limit struct {
	Record string

	receipt string
}

// NewLimit names the keys of the limit. With a tag its slot is that of the tag. A name that is too long for a key or
// has a brace or a control character in it is hashed, since it may be what a client of the program sent.
func NewLimit(prefix, tag, name string) (Limit, error) {
	if name != "" && (strings.HasPrefix(name, hashed) || CheckName("limit name", name) != nil) {
		sum := sha256.Sum256([]byte(name))
		name = hashed + base64.RawURLEncoding.EncodeToString(sum[:])
	}
	if err := check("limit name", prefix, name); err != nil {
		return Limit{}, err
	}
	if tag == "" {
		return Limit{Record: prefix + "limit:{" + name + "}", receipt: prefix + "limitr:{" + name + "}:"}, nil
	}
	if err := CheckName("tag", tag); err != nil {
		return Limit{}, err
	}
	return Limit{Record: prefix + "limit:{" + tag + "}:" + name, receipt: prefix + "limitr:{" + tag + "}:"}, nil
}

// hashed begins the hash of a name. Names that begin so are hashed, too, so that none is the hash of another.
const hashed = "#"

// Receipt names the key that keeps the reservation with that token.
func (l *Limit) Receipt(token string) string { return l.receipt + token }

// Bus names the keys and channels of one bus.
type Bus struct {
	Nodes, About, Methods, Serves string
	// Outbox is the prefix of the channels of nodes and callers.
	Outbox string
	// Records is the prefix of the keys of requests.
	Records string
	// All is the channel of all nodes and callers.
	All string

	tag string
}

// NewBus names the keys and channels of the bus.
func NewBus(prefix, name string) (Bus, error) {
	if err := check("bus name", prefix, name); err != nil {
		return Bus{}, err
	}
	tag := prefix + "rpc:{" + name + "}:"
	return Bus{
		Nodes: tag + "nodes", About: tag + "about", Methods: tag + "methods", Serves: tag + "serves",
		Outbox: tag + "n:", Records: tag + "r:", All: tag + "all", tag: tag,
	}, nil
}

// AnyBus is the pattern, behind the prefix, of the keys of the nodes of all buses, for SCAN.
const AnyBus = "rpc:{*}:nodes"

// BusOf is the name of the bus whose nodes have that key.
func BusOf(prefix, key string) (name string, ok bool) {
	rest, begins := strings.CutPrefix(key, prefix+"rpc:{")
	name, ends := strings.CutSuffix(rest, "}:nodes")
	return name, begins && ends && CheckName("bus name", name) == nil
}

// Record names the key of one request.
func (b *Bus) Record(id string) string { return b.Records + id }

// Body names the key of a body that travels by itself.
func (b *Bus) Body(id string) string { return b.tag + "b:" + id }

// Chunks names the key of the parts of a streaming reply.
func (b *Bus) Chunks(id string) string { return b.tag + "s:" + id }

// Connection names the key that holds the owner of a connection.
func (b *Bus) Connection(id string) string { return b.tag + "k:" + id }

func check(param, prefix, name string) error {
	if prefix != "" {
		if err := CheckName("prefix", prefix); err != nil {
			return err
		}
	}
	return CheckName(param, name)
}
