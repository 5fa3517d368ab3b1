package queue

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/gen"
)

// check lets the script judge the suspects, and calls f for those that are guilty.
func (a *audit) check(ctx context.Context, suspects []gen.QueueMendSuspect, f func(id string, verdict int64)) error {
	// A scan can meet an item twice.
	slices.SortFunc(suspects, func(x, y gen.QueueMendSuspect) int {
		return strings.Compare(x.ID+"\n"+x.Name, y.ID+"\n"+y.Name)
	})
	for part := range slices.Chunk(slices.Compact(suspects), maxMend) {
		r, err := gen.QueueMend(ctx, a.queue.client, a.params(0, -1, part))
		if err != nil {
			return err
		}
		for i, verdict := range r.Verdicts {
			if verdict != 0 && i < len(part) {
				f(part[i].ID, verdict)
				a.mended(1)
			}
		}
	}
	return nil
}

func (a *audit) mended(n int) {
	if a.mend {
		a.out.Mended += n
	}
}

// listed names an id, if there is room.
func listed(ids []string, id string) []string {
	if len(ids) < maxNamed {
		ids = append(ids, id)
	}
	return ids
}

func (a *audit) params(from, to int64, suspects []gen.QueueMendSuspect) gen.QueueMendParams {
	k := &a.queue.keys
	return gen.QueueMendParams{
		Ready: k.Ready, Scheduled: k.Scheduled, Bodies: k.Bodies, Leases: k.Leases, Failures: k.Failures,
		Dead: k.Dead, Unique: k.Unique, Expiry: k.Expiry, Control: k.Control, Wake: k.Wake,
		Mend: a.mend, From: from, To: to, Suspects: suspects,
	}
}

// fields calls f for the fields of a hash, page by page; with values each field is
// followed by its value.
func (a *audit) fields(ctx context.Context, key string, values bool, f func(page []string) error) error {
	for cursor := uint64(0); ; {
		page, next, err := a.scan(ctx, key, cursor, values)
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

func (a *audit) scan(ctx context.Context, key string, cursor uint64, values bool) ([]string, uint64, error) {
	c := a.queue.client
	switch {
	case values:
		return c.HScan(ctx, key, cursor, "", maxScan).Result()
	case !a.byValues:
		page, next, err := c.HScanNoValues(ctx, key, cursor, "", maxScan).Result()
		var refused redis.Error
		if !errors.As(err, &refused) || !strings.HasPrefix(refused.Error(), "ERR ") {
			return page, next, err
		}
		a.byValues = true
	}
	page, next, err := c.HScan(ctx, key, cursor, "", a.count).Result()
	size := 0
	names := page[:0]
	for i := 0; i+1 < len(page); i += 2 {
		names, size = append(names, page[i]), size+len(page[i+1])
	}
	if len(names) > 0 {
		a.count = min(max(int64(pageBytes*len(names)/(size+1)), 1), maxScan)
	}
	return names, next, err
}

// gone calls f for the place of each id that has no body.
func (a *audit) gone(ctx context.Context, ids []string, f func(i int)) error {
	if len(ids) == 0 {
		return nil
	}
	found := make([]*redis.BoolCmd, len(ids))
	_, err := a.queue.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, id := range ids {
			found[i] = p.HExists(ctx, a.queue.keys.Bodies, id)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i, c := range found {
		if !c.Val() {
			f(i)
		}
	}
	return nil
}

// counted is dead_bytes as it stands.
func (a *audit) counted(ctx context.Context) (int64, error) {
	n, err := a.queue.client.HGet(ctx, a.queue.keys.Control, "dead_bytes").Int64()
	if err == redis.Nil {
		return 0, nil
	}
	return n, err
}

// deadSize adds up the bodies of the dead set.
func (a *audit) deadSize(ctx context.Context) (sum int64, _ error) {
	for start := int64(0); ; start += maxPage {
		ids, err := a.queue.client.ZRange(ctx, a.queue.keys.Dead, start, start+maxPage-1).Result()
		if err != nil || len(ids) == 0 {
			return sum, err
		}
		sizes := make([]*redis.IntCmd, len(ids))
		if _, err := a.queue.client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, id := range ids {
				sizes[i] = p.HStrLen(ctx, a.queue.keys.Bodies, id)
			}
			return nil
		}); err != nil {
			return 0, err
		}
		for _, n := range sizes {
			sum += n.Val()
		}
	}
}
