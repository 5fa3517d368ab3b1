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
//	{queue}:l   zset    leased jobs, id scored by the end of the lease in us
//	{queue}:n   hash    id to the number of failed deliveries, x for a cancelled
//	                    job; id and a line feed to the last reason
//	{queue}:d   zset    dead jobs, id scored by the time of death in ms
//	{queue}:u   hash    k:name to the id that holds a unique name, j:id to the name
//	{queue}:ux  zset    unique name, scored by the end of its hold in ms
//	{queue}:c   hash    settings: paused, limit; dead_bytes, the bodies in d
//	{queue}:w   zset    channels of waiting consumers and pollers, scored by the
//	                    end of their wait in ms; expires
//	{queue}:i:* string  result of one push, kept for a retry; expires
//
//	{tag}{queue}:r ...  the same keys of a queue with a tag
//	{tag}{}:i:* string  result of one push to several queues of a tag; expires
//
//	lock:{name}  string  fence, holder and lease as one text; expires
//	lockq:{name} zset    waiters for the lock, scored by priority and
//	                     arrival; expires
//
//	sem:{name}   zset    the semaphore, see scripts/sem_acquire.lua; expires
//	semq:{name}  zset    waiters for a permit, like lockq; expires
//	rw:{name}, rwq:{name}  the same for a read-write lock
//
// With a tag, the locks of that tag share a slot: lock:{tag}:name. Waiters subscribe to lock:c:<process>, on a
// cluster to lock:{name}:c:<process>; observers of an election to lock:{name}:e.
//
//	rpc:{bus}:nodes     zset    node scored by the end of its lease in ms; expires
//	rpc:{bus}:about     hash    node and its description; expires
//	rpc:{bus}:m:*       zset    per method: node scored by calls in flight less
//	                            its concurrency; expires
//	rpc:{bus}:r:*       string  one request: state, attempt and node; pending: its
//	                            callers and the request; done: the reply; expires
//	rpc:{bus}:g:*       hash    one gather: c the caller, f the request, n:node p
//	                            or u while pending, d and the reply; expires
//	rpc:{bus}:s:*       hash    parts of a streaming reply by number; expires
//	rpc:{bus}:k:*       string  the node that owns a connection; expires
//
// The keys of a queue do not expire: they hold unfinished work. Each is deleted with its last job, except the
// settings in c.
package keys

import "github.com/luatomic/luatomic/lua"

// Queue names the keys of one queue.
type Queue struct {
	Ready, Scheduled, Bodies, Leases, Failures, Dead, Unique, Expiry, Control, Wake string

	receipt, channel string
}

// NewQueue names the keys of the queue, or returns why the name or the tag is invalid. Without a tag the name is the
// tag.
func NewQueue(prefix, tag, name string) (Queue, error) {
	if err := check("queue name", prefix, name); err != nil {
		return Queue{}, err
	}
	head := prefix + "{" + name + "}"
	if tag != "" {
		if err := lua.CheckName("tag", tag); err != nil {
			return Queue{}, err
		}
		head = prefix + "{" + tag + "}{" + name + "}"
	}
	head += ":"
	return Queue{
		Ready: head + "r", Scheduled: head + "s", Bodies: head + "b",
		Leases: head + "l", Failures: head + "n", Dead: head + "d",
		Unique: head + "u", Expiry: head + "ux", Control: head + "c", Wake: head + "w",
		receipt: head + "i:", channel: head + "w:",
	}, nil
}

// Receipt names the key that keeps the result of a push with that token to several
// queues of a tag.
func Receipt(prefix, tag, token string) string { return prefix + "{" + tag + "}{}:i:" + token }

// Receipt names the key that keeps the result of the push with that token.
func (q *Queue) Receipt(token string) string { return q.receipt + token }

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
	if err := lua.CheckName("tag", tag); err != nil {
		return Lock{}, err
	}
	return Lock{Record: prefix + kind + ":{" + tag + "}:" + name, Queue: prefix + kind + "q:{" + tag + "}:" + name}, nil
}

// Channel names the channel in the lock's slot that notifies a process.
func (l *Lock) Channel(process string) string { return l.Record + ":c:" + process }

// Observers names the channel that notifies the observers of an election.
func (l *Lock) Observers() string { return l.Record + ":e" }

// LockInbox returns the prefix of a process' channel, which notifies the process of any lock. The name of the process
// follows it.
func LockInbox(prefix string) string { return prefix + "lock:c:" }

// Bus names the keys and channels of one bus.
type Bus struct {
	Nodes, About string
	// Outbox is the prefix of the channels of nodes and callers.
	Outbox string
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
	return Bus{Nodes: tag + "nodes", About: tag + "about", Outbox: tag + "n:", All: tag + "all", tag: tag}, nil
}

// Method names the key that holds the nodes of a method.
func (b *Bus) Method(name string) string { return b.tag + "m:" + name }

// Record names the key of one request.
func (b *Bus) Record(id string) string { return b.tag + "r:" + id }

// Gather names the key of one request to many nodes.
func (b *Bus) Gather(id string) string { return b.tag + "g:" + id }

// Chunks names the key of the parts of a streaming reply.
func (b *Bus) Chunks(id string) string { return b.tag + "s:" + id }

// Connection names the key that holds the owner of a connection.
func (b *Bus) Connection(id string) string { return b.tag + "k:" + id }

func check(param, prefix, name string) error {
	if prefix != "" {
		if err := lua.CheckName("prefix", prefix); err != nil {
			return err
		}
	}
	return lua.CheckName(param, name)
}
