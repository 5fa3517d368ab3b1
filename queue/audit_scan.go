package queue

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/internal/servers"
)

const (
	firstPage = 10
	maxPage   = 1000
	maxScan   = 500     // fields in one scan, which is slower than a range
	pageBytes = 1 << 18 // of bodies in one reply
)

// readyIDs returns the ids in ready with the stamps of their entries. It reads the ready list from its tail to its
// head. Workers take from the head, so it skips no entry that stays.
func (a *audit) readyIDs(ctx context.Context) (map[string]string, error) {
	ids := make(map[string]string)
	for last := int64(-1); ; last -= maxPage {
		page, err := servers.Read(ctx, a.queue.client,
			redis.NewStringSliceCmd(ctx, "lrange", a.queue.keys.Ready, last-maxPage+1, last)).Result()
		if err != nil {
			return nil, err
		}
		for _, entry := range page {
			if stamp, id, _ := strings.Cut(entry, ":"); stamp != "" && strings.Trim(stamp, "0123456789") == "" {
				ids[id] = stamp // a take drops an entry without a stamp
			}
		}
		if len(page) < maxPage {
			return ids, nil
		}
	}
}

// withoutState returns the ids that are neither scheduled, leased nor dead.
func (a *audit) withoutState(ctx context.Context, ids []string) ([]string, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	k := &a.queue.keys
	var scores []*redis.FloatSliceCmd
	for _, key := range []string{k.Scheduled, k.Leases, k.Dead} {
		args := []any{"zmscore", key}
		for _, id := range ids {
			args = append(args, id)
		}
		scores = append(scores, redis.NewFloatSliceCmd(ctx, args...))
	}
	if err := servers.ReadAll(ctx, a.queue.client, scores); err != nil {
		return nil, err
	}
	var out []string
	for i, id := range ids {
		if !slices.ContainsFunc(scores, func(c *redis.FloatSliceCmd) bool { return c.Val()[i] != 0 }) {
			out = append(out, id)
		}
	}
	return out, nil
}

// withoutBody calls f for the index of each id that has no body.
func (a *audit) withoutBody(ctx context.Context, ids []string, f func(i int)) error {
	if len(ids) == 0 {
		return nil
	}
	found := make([]*redis.BoolCmd, len(ids))
	for i, id := range ids {
		found[i] = redis.NewBoolCmd(ctx, "hexists", a.queue.keys.Bodies, id)
	}
	if err := servers.ReadAll(ctx, a.queue.client, found); err != nil {
		return err
	}
	for i, c := range found {
		if !c.Val() {
			f(i)
		}
	}
	return nil
}

// scanSet calls f for the members of a sorted set, page by page.
func (a *audit) scanSet(ctx context.Context, key string, f func(members []string) error) error {
	return a.scanScores(ctx, key, func(members, _ []string) error { return f(members) })
}

// scanScores calls f for the members of a sorted set and their scores, page by page.
func (a *audit) scanScores(ctx context.Context, key string, f func(members, scores []string) error) error {
	for cursor := uint64(0); ; {
		page, next, err := a.scan(ctx, "zscan", key, cursor, "count", maxScan)
		if err != nil {
			return err
		}
		var members, scores []string
		for i := 0; i+1 < len(page); i += 2 {
			members, scores = append(members, page[i]), append(scores, page[i+1])
		}
		if err := f(members, scores); err != nil {
			return err
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// scan reads one page, always from the master: a cursor is valid only on the server that gave it.
func (a *audit) scan(ctx context.Context, args ...any) ([]string, uint64, error) {
	return servers.Read(ctx, a.queue.client, redis.NewScanCmd(ctx, nil, args...)).Result()
}

// scanHash calls f for the fields of a hash, page by page. With values each field is followed by its value.
func (a *audit) scanHash(ctx context.Context, key string, values bool, f func(page []string) error) error {
	for cursor := uint64(0); ; {
		page, next, err := a.hashPage(ctx, key, cursor, values)
		if err != nil {
			return err
		}
		if len(page) > 0 {
			if err := f(page); err != nil {
				return err
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// hashPage reads one page. If the server has no HSCAN NOVALUES, it reads the values too, in pages of bounded size.
func (a *audit) hashPage(ctx context.Context, key string, cursor uint64, values bool) ([]string, uint64, error) {
	if values {
		return a.scan(ctx, "hscan", key, cursor, "count", maxScan)
	}
	if !a.byValues {
		page, next, err := a.scan(ctx, "hscan", key, cursor, "count", maxScan, "novalues")
		var refused redis.Error
		if !errors.As(err, &refused) || !strings.HasPrefix(refused.Error(), "ERR ") {
			return page, next, err
		}
		a.byValues = true
	}
	page, next, err := a.scan(ctx, "hscan", key, cursor, "count", a.pageSize)
	size := 0
	names := page[:0]
	for i := 0; i+1 < len(page); i += 2 {
		names, size = append(names, page[i]), size+len(page[i+1])
	}
	if len(names) > 0 {
		a.pageSize = min(max(int64(pageBytes*len(names)/(size+1)), 1), maxScan)
	}
	return names, next, err
}

// noBytes stands for a counter of the dead set's size that does not exist.
const noBytes = "-"

// deadBytes reads the counter of the dead set's size as text: it may be no number.
func (a *audit) deadBytes(ctx context.Context) (string, error) {
	text, err := servers.Read(ctx, a.queue.client,
		redis.NewStringCmd(ctx, "hget", a.queue.keys.Control, "dead_bytes")).Result()
	if err == redis.Nil {
		return noBytes, nil
	}
	return text, err
}

// sumDead adds up the bodies of the dead set.
func (a *audit) sumDead(ctx context.Context) (sum int64, _ error) {
	for start := int64(0); ; start += maxPage {
		ids, err := servers.Read(ctx, a.queue.client,
			redis.NewStringSliceCmd(ctx, "zrange", a.queue.keys.Dead, start, start+maxPage-1)).Result()
		if err != nil || len(ids) == 0 {
			return sum, err
		}
		sizes := make([]*redis.IntCmd, len(ids))
		for i, id := range ids {
			sizes[i] = redis.NewIntCmd(ctx, "hstrlen", a.queue.keys.Bodies, id)
		}
		if err := servers.ReadAll(ctx, a.queue.client, sizes); err != nil {
			return 0, err
		}
		for _, n := range sizes {
			sum += n.Val()
		}
	}
}
