// Package lock holds locks with fencing tokens on Redis, and what is built on the same lease: semaphores, read-write
// locks, elections, several locks at once.
//
// # The record
//
// A lock is one string, lock:{name}, and while a process waits one zset, lockq:{name}. The string is a line of text
// that one can read with GET:
//
//	fence waiting owner start length delay released note
//
//	fence     microseconds of the server's clock at the acquire, or one more than the fence before
//	          where the clock was behind
//	waiting   1 when the queue has an entry
//	owner     token made for each acquire, <process>.<number>; "-" when free
//	start     of the lease, microseconds of the server's clock; length in ms
//	delay     how long the lock stays closed after a lease that was not released, ms
//	released  the owner that released last, so that a repeated release gets its answer
//
//	free ──acquire──▶ held ──extend──▶ held ──release──▶ free
//	                   ▲ │                    │
//	                   │ └─ lease over ────▶ free (after its delay)
//	                   └──── handed over ─────┘ while a process waits
//
// Because the end of the lease is in the string and is not the key's TTL, the string outlives the lease by a minute:
// the next fence is greater than the last even if the server's clock was set back. Both keys expire, so no lock
// leaves anything behind.
//
// # Waiting
//
// Waiting sends nothing. An acquire that finds the lock held puts an entry into the queue in the same script. The
// script that frees the lock takes the first entry out, writes its owner into the string, and publishes to the one
// process that made the entry: one call for each hand-over, whatever the number of waiters. PUBSUB NUMSUB says whether
// that process is still subscribed; if not, the next entry has its turn in the same call. The process of the next
// entry is notified too, and makes an attempt when the first lease of the new holder is over. That, and the remaining
// time that each failed attempt returns, covers holders that die. Expiry events have no part in it.
//
// # Where to read on
//
// From Locker.Acquire to its Lua it is three steps: lease.go asks the hub to wait, wait.go makes attempts by the
// protocol, plain.go (a plain lock) or permit.go (a permit) calls the generated function of one script.
package lock
