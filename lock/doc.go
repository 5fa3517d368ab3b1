// Package lock holds locks with fencing tokens on Redis, and what is built on the same lease: semaphores, read-write
// locks, elections, several locks at once.
//
// # The record
//
// A lock is one string, lock:{name}, and while somebody waits one zset, lockq:{name}. The string is a line of text that
// one can read with GET:
//
//	fence waiting owner start length delay released note
//
//	fence     microseconds of the server's clock when the owner came, or one more than the fence before where the clock
//	          was behind
//	waiting   1 when somebody is in the queue
//	owner     token made for each acquire, <process>.<number>; "-" when free
//	start     of the lease, microseconds; length in ms
//	delay     how long the lock stays closed after a lease that was not released, ms
//	released  owner that released last, so that a repeated release gets its answer
//
//	free ──acquire──▶ held ──extend──▶ held ──release──▶ free
//	                   ▲ │                    │
//	                   │ └─ lease over ────▶ free (after its delay)
//	                   └──── handed over ─────┘ while somebody waits
//
// Because the end of the lease is in the string and is not the key's TTL, the string outlives the lease by a minute: the
// next fence is greater than the last even if the server's clock was set back. Both keys expire, so no lock leaves
// anything behind.
//
// # Waiting
//
// Waiting is without polling. A waiter puts an entry into the queue in the same script that found the lock held. The
// script that frees the lock pops the first entry, writes its owner into the string, and publishes to the one process that
// made the entry: one call for each hand-over, however many wait. PUBSUB NUMSUB says whether that process is still
// subscribed; if not, the next entry has its turn in the same call. The process that is next is notified too, and polls
// when the first lease of the new holder is over; that, and the remaining time that every failed attempt returns, covers
// holders that die. Expiry events have no part in it.
package lock
