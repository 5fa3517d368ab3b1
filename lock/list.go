package lock

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/internal/nodes"
	"github.com/luatomic/luatomic/lua"
)

// List yields the locks that are held or waited for, in no order, and ends with the
// first error. It scans the keys of the server, or of every master of a cluster, 500
// at a time: cheap for the server, slow on one that holds much else. A lock that
// changes hands meanwhile may come twice or not at all.
func (l *Locker) List(ctx context.Context) iter.Seq2[Info, error] {
	return listLocks(ctx, l, lockListing[gen.LockInfoResult, Info]{
		kind: "lock", redisType: "string", name: keys.NewLock,
		ask: func(b *lua.Batch, k keys.Lock) *lua.Future[gen.LockInfoResult] {
			return gen.LockInfoIn(b, gen.LockInfoParams{Lock: k.Record, Queue: k.Queue, Max: shownWaiters})
		},
		show: func(name, key string, r gen.LockInfoResult) (Info, bool) {
			return lockInfo(name, key, r), r.Held || r.Waiting > 0
		},
	})
}

// ListSemaphores yields the semaphores that have a permit out or are waited for, as
// List does the locks.
func (l *Locker) ListSemaphores(ctx context.Context) iter.Seq2[SemaphoreInfo, error] {
	return listLocks(ctx, l, permitList("sem", keys.NewSemaphore, func(info SemaphoreInfo) SemaphoreInfo { return info }))
}

// ListRW yields the read-write locks that are held or waited for, as List does the
// others.
func (l *Locker) ListRW(ctx context.Context) iter.Seq2[RWInfo, error] {
	return listLocks(ctx, l, permitList("rw", keys.NewRWLock, rwInfo))
}

func permitList[T any](kind string, name func(prefix, tag, name string) (keys.Lock, error), as func(SemaphoreInfo) T) lockListing[gen.SemInfoResult, T] {
	return lockListing[gen.SemInfoResult, T]{
		kind: kind, redisType: "zset", name: name,
		ask: func(b *lua.Batch, k keys.Lock) *lua.Future[gen.SemInfoResult] {
			return gen.SemInfoIn(b, gen.SemInfoParams{Permits: k.Record, Queue: k.Queue, Max: shownHolders, Waiters: shownWaiters})
		},
		show: func(name, key string, r gen.SemInfoResult) (T, bool) {
			return as(permitInfo(name, key, r)), r.Used > 0 || r.Waiting > 0
		},
	}
}

// lockListing is a kind of lock as a list reads it: R is what its script answers, T what
// the caller gets.
type lockListing[R, T any] struct {
	kind, redisType string // of the record
	name            func(prefix, tag, name string) (keys.Lock, error)
	ask             func(b *lua.Batch, k keys.Lock) *lua.Future[R]
	show            func(name, key string, r R) (_ T, inUse bool)
}

func listLocks[R, T any](ctx context.Context, l *Locker, of lockListing[R, T]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		start := l.opts.Prefix + of.kind + ":{"
		if l.opts.Tag != "" {
			start += l.opts.Tag + "}:"
		}
		servers, err := nodes.Masters(ctx, l.client)
		for _, node := range servers {
			if err == nil {
				err = listNode(ctx, l, node, start, of, yield)
			}
		}
		if err != nil && !errors.Is(err, errStop) {
			var none T
			yield(none, fmt.Errorf("luatomic: list locks: %w", err))
		}
	}
}

// errStop ends a list that nobody wants to read on.
var errStop = errors.New("stop")

func listNode[R, T any](ctx context.Context, l *Locker, node *redis.Client, start string, of lockListing[R, T], yield func(T, error) bool) error {
	var cursor uint64
	for {
		found, next, err := node.ScanType(ctx, cursor, nodes.Glob(start)+"*", 500, of.redisType).Result()
		if err != nil {
			return err
		}
		b := lua.NewBatch(l.client)
		var names, records []string
		var futures []*lua.Future[R]
		for _, key := range found {
			name, ok := l.nameOf(strings.TrimPrefix(key, start))
			if !ok {
				continue
			}
			k, err := of.name(l.opts.Prefix, l.opts.Tag, name)
			if err != nil {
				continue // not one of ours
			}
			names, records = append(names, name), append(records, key)
			futures = append(futures, of.ask(b, k))
		}
		_ = b.Exec(ctx) // each future has its own error
		for i, f := range futures {
			r, err := f.Get()
			if err != nil {
				return err
			}
			if info, inUse := of.show(names[i], records[i], r); inUse && !yield(info, nil) {
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
