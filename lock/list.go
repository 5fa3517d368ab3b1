package lock

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/redis/go-redis/v9"

	lockscript "github.com/luatomic/luatomic/gen/lock"
	"github.com/luatomic/luatomic/internal/clock"
	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/internal/send"
	"github.com/luatomic/luatomic/internal/servers"
	"github.com/luatomic/luatomic/lua"
)

// List yields the locks that are held or have waiters, in no order. It ends with ctx. An error is the last that it
// yields, after the locks of all servers that answer. It scans the keys of the server, or of every master of a cluster,
// 500 at a time, and reads the locks among them in one round trip. That is cheap for the server, but slow where the
// server has many other keys. List changes nothing. It may yield a lock twice, as SCAN does with a key. It may miss a
// lock that changes hands meanwhile. It skips a key that holds something else. Keys: lock:*, lockq:*. Cost: O(n) of the
// keys of the server.
func (l *Locker) List(ctx context.Context) iter.Seq2[Info, error] {
	return list(ctx, l, listing[lockscript.InfoResult, Info]{
		prefix: "lock", redisType: "string", keysOf: keys.NewLock,
		read: func(b *lua.Batch, k keys.Lock) *lua.Future[lockscript.InfoResult] {
			return lockscript.InfoIn(b, lockscript.InfoParams{Lock: k.Record, Queue: k.Queue, Max: shownWaiters})
		},
		info: func(name, key string, r lockscript.InfoResult) (Info, bool) {
			return lockInfo(name, key, r), r.Held || r.Waiting > 0
		},
	})
}

// ListSemaphores yields the semaphores of which a permit is held or that have waiters, as List does for locks. Keys:
// sem:*, semq:*. Cost: O(n) of the keys of the server.
func (l *Locker) ListSemaphores(ctx context.Context) iter.Seq2[SemaphoreInfo, error] {
	same := func(info SemaphoreInfo) SemaphoreInfo { return info }
	return list(ctx, l, permitListing("sem", keys.NewSemaphore, same))
}

// ListRW yields the read-write locks that are held or have waiters, as List does for locks. Keys: rw:*, rwq:*. Cost:
// O(n) of the keys of the server.
func (l *Locker) ListRW(ctx context.Context) iter.Seq2[RWInfo, error] {
	return list(ctx, l, permitListing("rw", keys.NewRWLock, rwInfo))
}

// listing is what a list needs to know about one kind of lock. R is the result of its script, T is what the caller
// gets.
type listing[R, T any] struct {
	prefix, redisType string // of the record's key
	keysOf            func(prefix, tag, name string) (keys.Lock, error)
	read              func(b *lua.Batch, k keys.Lock) *lua.Future[R]
	info              func(name, key string, r R) (_ T, inUse bool)
}

func permitListing[T any](
	prefix string, keysOf func(prefix, tag, name string) (keys.Lock, error), as func(SemaphoreInfo) T,
) listing[lockscript.SemInfoResult, T] {
	return listing[lockscript.SemInfoResult, T]{
		prefix: prefix, redisType: "zset", keysOf: keysOf,
		read: func(b *lua.Batch, k keys.Lock) *lua.Future[lockscript.SemInfoResult] {
			return lockscript.SemInfoIn(b, lockscript.SemInfoParams{
				Permits: k.Record, Queue: k.Queue, Max: shownHolders, Waiters: shownWaiters,
			})
		},
		info: func(name, key string, r lockscript.SemInfoResult) (T, bool) {
			return as(permitInfo(name, key, r)), r.Used > 0 || r.Waiting > 0
		},
	}
}

func list[R, T any](ctx context.Context, l *Locker, of listing[R, T]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		if err := of.all(ctx, l, yield); err != nil && !errors.Is(err, errStop) {
			var none T
			yield(none, fmt.Errorf("luatomic: list locks: %w", err))
		}
	}
}

// all yields what is in use on all servers. It reads all of them at the same time: one that does not answer hides
// nothing of the others.
func (of listing[R, T]) all(ctx context.Context, l *Locker, yield func(T, error) bool) error {
	if l.bad != nil {
		return l.bad
	}
	// Without the check a list with a prefix or a tag that no key can have would be empty.
	if _, err := of.keysOf(l.opts.Prefix, l.opts.Tag, "any"); err != nil {
		return err
	}
	masters, err := servers.Masters(ctx, l.hub.client)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	inUse, errs := make(chan T), make([]error, len(masters))
	go func() {
		defer close(inUse)
		send.Abreast(len(masters), func(i int) { errs[i] = of.scan(ctx, l, masters[i], inUse) })
	}()
	defer func() {
		cancel(errStop)
		for range inUse { // until the scans have ended
		}
	}()
	for info := range inUse {
		if !yield(info, nil) {
			return errStop
		}
	}
	return errors.Join(errs...)
}

// errStop ends a list when the caller leaves its loop.
var errStop = errors.New("stop")

// scan finds what is in use on one server.
func (of listing[R, T]) scan(ctx context.Context, l *Locker, node servers.Node, to chan<- T) error {
	start := l.opts.Prefix + of.prefix + ":{"
	if l.opts.Tag != "" {
		start += l.opts.Tag + "}:"
	}
	var cursor uint64
	for {
		found, next, err := of.next(ctx, node, cursor, servers.Glob(start)+"*")
		if err != nil {
			return err
		}
		names := make([]string, 0, len(found))
		for _, key := range found {
			if name, ok := l.nameOf(strings.TrimPrefix(key, start)); ok {
				names = append(names, name)
			}
		}
		if err := of.readAll(ctx, l, names, to); err != nil {
			return err
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// next makes one SCAN. It returns when ctx ends, even if the client waits longer for a reply.
func (of listing[R, T]) next(
	ctx context.Context, node servers.Node, cursor uint64, pattern string,
) (found []string, next uint64, err error) {
	reply := make(chan *redis.ScanCmd, 1)
	go func() { reply <- node.ScanType(ctx, cursor, pattern, 500, of.redisType) }()
	select {
	case r := <-reply:
		return r.Result()
	case <-ctx.Done():
		return nil, 0, clock.EndOf(ctx)
	}
}

// readAll finds what is in use among the names, in one round trip.
func (of listing[R, T]) readAll(ctx context.Context, l *Locker, names []string, to chan<- T) error {
	b := lua.NewBatch(l.hub.client)
	type answer struct {
		name, key string
		future    *lua.Future[R]
	}
	var answers []answer
	for _, name := range names {
		k, err := of.keysOf(l.opts.Prefix, l.opts.Tag, name)
		if err != nil {
			continue // a key of something else
		}
		answers = append(answers, answer{name, k.Record, of.read(b, k)})
	}
	_ = b.Exec(ctx) // each future has its own error
	for _, a := range answers {
		r, err := a.future.Get()
		if isForeign(err) {
			continue // as above
		}
		if err != nil {
			return err
		}
		info, inUse := of.info(a.name, a.key, r)
		if !inUse {
			continue
		}
		select {
		case to <- info:
		case <-ctx.Done():
			return clock.EndOf(ctx)
		}
	}
	return nil
}

// nameOf returns the name in rest, which is a key without its start.
func (l *Locker) nameOf(rest string) (string, bool) {
	if l.opts.Tag != "" {
		return rest, true
	}
	name, after, ok := strings.Cut(rest, "}")
	return name, ok && after == ""
}
