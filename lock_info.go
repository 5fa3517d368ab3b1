package luatomic

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/lua"
)

// LockEvent is a turn in the life of a lock, for metrics and logs.
type LockEvent struct {
	Kind LockEventKind
	Name string
	// Wait is how long an acquire took, Held how long a lease lasted.
	Wait, Held time.Duration
	// Waiting is the length of the queue, with this one, when it was joined.
	Waiting int
	// Err says why a lease was lost.
	Err error
}

// LockEventKind says what happened to a lock.
type LockEventKind uint8

// The turns in the life of a lock.
const (
	LockAcquired LockEventKind = iota + 1
	LockQueued
	LockReleased
	LockLost
)

func (k LockEventKind) String() string {
	if int(k) >= len(lockEventNames) {
		return "unknown"
	}
	return lockEventNames[k]
}

var lockEventNames = [...]string{"unknown", "acquired", "queued", "released", "lost"}

// observe tells the one who wants to know.
func (l *Locker) observe(e LockEvent) {
	if l.opts.Observe != nil {
		l.opts.Observe(e)
	}
}

// LockInfo is what is known of a lock.
type LockInfo struct {
	Name, Key string
	// Held says whether somebody holds it; the next five are of that one.
	Held  bool
	Owner string
	// Fence is that of the last holder if nobody holds the lock now.
	Fence int64
	Note  string
	// Remaining is what is left of the lease, or of the time that the lock rests.
	Remaining time.Duration
	// Waiting is the length of the queue, Waiters the notes of the first ten there.
	Waiting int
	Waiters []string
}

const shownWaiters = 10

// Info reads who holds a lock and who waits. It changes nothing. A lock that nobody
// has acquired for a minute is unknown: its LockInfo is free with no fence.
// Keys: lock:{name}, lockq:{name}. Cost: O(1).
func (l *Locker) Info(ctx context.Context, name string) (LockInfo, error) {
	k, err := keys.NewLock(l.opts.Prefix, l.opts.Tag, name)
	if err != nil {
		return LockInfo{}, fmt.Errorf("luatomic: lock: %w", err)
	}
	r, err := gen.LockInfo(ctx, l.client, gen.LockInfoParams{Lock: k.Record, Queue: k.Queue, Max: shownWaiters})
	if err != nil {
		return LockInfo{}, fmt.Errorf("luatomic: info of lock %q: %w", name, err)
	}
	return lockInfo(name, k.Record, r), nil
}

func lockInfo(name, key string, r gen.LockInfoResult) LockInfo {
	info := LockInfo{
		Name: name, Key: key, Held: r.Held, Owner: r.Owner, Fence: r.Fence, Note: r.Note,
		Remaining: r.Remaining, Waiting: int(r.Waiting),
	}
	for _, entry := range r.Entries {
		_, note, _ := strings.Cut(entry, "\n")
		info.Waiters = append(info.Waiters, note)
	}
	return info
}

// List yields the locks that are held or waited for, in no order, and ends with the
// first error. It scans the keys of the server, or of every master of a cluster, 500
// at a time: cheap for the server, slow on one that holds much else. A lock that
// changes hands meanwhile may come twice or not at all.
func (l *Locker) List(ctx context.Context) iter.Seq2[LockInfo, error] {
	return func(yield func(LockInfo, error) bool) {
		start := l.opts.Prefix + "lock:{"
		if l.opts.Tag != "" {
			start += l.opts.Tag + "}:"
		}
		nodes, err := masters(ctx, l.client)
		for _, node := range nodes {
			if err == nil {
				err = l.listNode(ctx, node, start, yield)
			}
		}
		if err != nil && !errors.Is(err, errStop) {
			yield(LockInfo{}, fmt.Errorf("luatomic: list locks: %w", err))
		}
	}
}

// masters are the servers that hold the keys.
func masters(ctx context.Context, client lua.Client) ([]*redis.Client, error) {
	var mu sync.Mutex
	var nodes []*redis.Client
	add := func(_ context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		nodes = append(nodes, node)
		return nil
	}
	switch c := client.(type) {
	case *redis.Client:
		return []*redis.Client{c}, nil
	case *redis.ClusterClient:
		err := c.ForEachMaster(ctx, add)
		return nodes, err
	case *redis.Ring:
		err := c.ForEachShard(ctx, add)
		return nodes, err
	}
	return nil, fmt.Errorf("%T has no servers to scan; use a Client, ClusterClient or Ring", client)
}

// errStop ends a list that nobody wants to read on.
var errStop = errors.New("stop")

func (l *Locker) listNode(ctx context.Context, node *redis.Client, start string, yield func(LockInfo, error) bool) error {
	var cursor uint64
	for {
		found, next, err := node.ScanType(ctx, cursor, globEscape(start)+"*", 500, "string").Result()
		if err != nil {
			return err
		}
		b := lua.NewBatch(l.client)
		var names, records []string
		var futures []*lua.Future[gen.LockInfoResult]
		for _, key := range found {
			name, ok := l.nameOf(strings.TrimPrefix(key, start))
			if !ok {
				continue
			}
			k, err := keys.NewLock(l.opts.Prefix, l.opts.Tag, name)
			if err != nil {
				continue // not one of ours
			}
			names, records = append(names, name), append(records, key)
			futures = append(futures, gen.LockInfoIn(b, gen.LockInfoParams{Lock: k.Record, Queue: k.Queue, Max: shownWaiters}))
		}
		_ = b.Exec(ctx) // each future has its own error
		for i, f := range futures {
			r, err := f.Get()
			if err != nil {
				return err
			}
			if (r.Held || r.Waiting > 0) && !yield(lockInfo(names[i], records[i], r), nil) {
				return errStop
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// nameOf takes the name out of the rest of a key.
func (l *Locker) nameOf(rest string) (string, bool) {
	if l.opts.Tag != "" {
		return rest, true
	}
	name, after, ok := strings.Cut(rest, "}")
	return name, ok && after == ""
}

// globEscape makes a pattern that matches only s.
func globEscape(s string) string {
	return strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`, `\`, `\\`, `^`, `\^`).Replace(s)
}

// ForceRelease takes the lock away from whoever holds it and hands it to the next
// one who waits. The old holder's context ends at once, with ErrRevoked, if it keeps
// the lease; else it learns of it at its next call. It reports whether somebody held
// the lock. A fence other than 0 names the holder that is meant, so that a repeat
// does not hit its successor. Keys: lock:{name}, lockq:{name}.
func (l *Locker) ForceRelease(ctx context.Context, name string, fence int64) (bool, error) {
	lease, err := l.newLease(name)
	if err != nil {
		return false, err
	}
	r, err := lease.force(ctx, "-", fence)
	return r.Done, err
}

// Steal takes the lock away from whoever holds it, past all who wait, in one
// round trip; the old holder is told as by ForceRelease.
// Keys: lock:{name}, lockq:{name}.
func (l *Locker) Steal(ctx context.Context, name string) (*Lease, error) {
	lease, err := l.newLease(name)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	r, err := lease.force(ctx, lease.owner, 0)
	if err == nil {
		err = l.replicate(ctx, lease)
	}
	if err != nil {
		return nil, errors.Join(err, lease.undo(ctx, ""))
	}
	lease.fence = r.Fence
	return lease.taken(start, 0)
}

func (l *Lease) force(ctx context.Context, owner string, fence int64) (gen.LockForceResult, error) {
	o := &l.locker.opts
	r, err := gen.LockForce(ctx, l.locker.client, gen.LockForceParams{
		Lock: l.keys.Record, Queue: l.keys.Queue, Fence: fence, Owner: owner, TTL: o.TTL, Delay: o.LockDelay,
		Inbox: keys.LockInbox(o.Prefix), Note: o.Note,
	})
	if err != nil {
		return r, fmt.Errorf("luatomic: take lock %q away: %w", l.name, err)
	}
	return r, nil
}
