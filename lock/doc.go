// Package lock has locks with fencing tokens on Redis. Semaphores, read-write locks, elections and the acquire of
// several locks at once are built on the same lease.
//
// # Use
//
//	locks := lock.New(client, nil)
//	err := locks.Do(ctx, "invoice:42", func(ctx context.Context, lease *lock.Lease) error {
//		return charge(ctx, lease.Fence()) // ctx ends when the lease is lost; the store refuses an older fence
//	})
//
// # The record
//
// A lock is one string, lock:{name}. While a process waits, there is also a list, lockq:{name}. The string is a line of
// text, which GET shows:
//
//	2 fence sign void owner delay afterlife note
//
//	2          version of the record
//	fence      microseconds of the server's clock at the acquire, or one more than the fence before
//	           where the clock was behind
//	sign       0 nobody waits; 1 the queue has an entry, or the fence is ahead of the server's clock;
//	           2 as 1, and the owner was handed the lock and has sent nothing since
//	void       tokens whose requests are refused: of acquires that were withdrawn, of owners whose lease
//	           was revoked
//	owner      token made for each acquire, <process>.<number>; "-" when free
//	delay      how long the lock stays closed after a lease that was not released, ms
//	afterlife  what is left of the key's TTL when the lease is over, ms
//
//	free ──acquire──▶ held ──extend──▶ held ──release──▶ free
//	                   ▲ │                    │
//	                   │ └─ lease over ────▶ free (after its delay)
//	                   └──── handed over ─────┘ while a process waits
//
// The holder knows the whole record of a lock that nobody waits for, so its release is one comparison and one DEL.
// Both keys expire, so no lock leaves anything behind.
//
// # Waiting
//
// A waiter sends nothing while it waits. An acquire that finds the lock held puts an entry into the queue in the same
// script. The script that frees the lock takes the first entry out of the queue, writes its owner into the string, and
// publishes a message to the process that made the entry. So a hand-over is one call, whatever the number of waiters.
// PUBSUB NUMSUB says whether that process is still subscribed. If it is not, the script goes on to the next entry in
// the same call. The script also notifies the first waiter of another process, which makes an attempt when the first
// lease of the new holder is over. That notification, and the remaining time that each failed attempt returns, cover
// holders that die. Expiry events are not used.
//
// # Where to continue
//
// Locker.Acquire reaches its Lua script in three steps. lease.go asks the hub to wait. wait.go makes attempts through
// the protocol. plain.go (a plain lock) or permit.go (a permit) calls the generated function of one script.
package lock
