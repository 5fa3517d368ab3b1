package scriptcase

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	lockscript "github.com/luatomic/luatomic/gen/lock"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
)

// Members that are not leases have this score plus their value.
const SemBase = 1e15

// SemOf prepares a semaphore of that limit with holders, a map of tokens to the ends of their leases, and entries in
// its queue.
func SemOf(limit int, holders map[string]float64, entries ...string) func(context.Context, *redis.Client,
	string) error {
	return func(ctx context.Context, c *redis.Client, k string) error {
		used := 0.0
		members := []redis.Z{{Score: SemBase + float64(limit), Member: "limit"},
			{Score: SemBase * 2, Member: "fence"}} // of a clock that was set back since
		for token, end := range holders {
			members = append(members, redis.Z{Score: end, Member: token})
			if end > 0 {
				used += SemWeight(token)
			}
		}
		members = append(members, redis.Z{Score: SemBase + used, Member: "used"})
		err := c.ZAdd(ctx, "sem:{"+k+"}", members...).Err()
		if len(entries) > 0 {
			waiting := make([]redis.Z, len(entries))
			for i, e := range entries {
				waiting[i] = redis.Z{Score: float64(i + 1), Member: e}
			}
			err = errors.Join(err, c.ZAdd(ctx, "semq:{"+k+"}", waiting...).Err(),
				c.Expire(ctx, "semq:{"+k+"}", time.Hour).Err())
		}
		return errors.Join(err, c.Expire(ctx, "sem:{"+k+"}", time.Hour).Err())
	}
}

// SemWeight returns the weight of a permit; 0 for any other member.
func SemWeight(member string) float64 {
	_, text, ok := strings.Cut(member, ":")
	if !ok || strings.Contains(member, "\n") {
		return 0
	}
	n, _ := strconv.ParseFloat(text, 64)
	return n
}

// Standing returns an entry of a waiter.
func Standing(token string) string { return token + " 5000\nnote of " + token }

// SemCalls are the calls of semaphore scripts.
func SemCalls() []ScriptCall {
	name := func(k string) (string, string) { return "sem:{" + k + "}", "semq:{" + k + "}" }
	acquire := func(entry string) func(context.Context, lua.Client, string) (string, error) {
		return func(ctx context.Context, c lua.Client, k string) (string, error) {
			permits, queue := name(k)
			v, err := lockscript.SemAcquire(ctx, c, lockscript.SemAcquireParams{
				Permits: permits, Queue: queue, Owner: "p.me:2", Limit: 5, TTL: time.Minute, Entry: entry, Note: "mine",
				Channel: "c:" + k + ":",
			})
			return fmt.Sprint(v.Acquired, v.Limit), err
		}
	}
	release := func(ctx context.Context, c lua.Client, k string) (string, error) {
		permits, queue := name(k)
		v, err := lockscript.SemRelease(ctx, c, lockscript.SemReleaseParams{Permits: permits, Queue: queue,
			Owner: "p.me:2",
			Note:  "mine", How: lockscript.SemReleaseHowRevoke, Channel: "c:" + k + ":"})
		return fmt.Sprint(v), err
	}
	resize := func(ctx context.Context, c lua.Client, k string) (string, error) {
		permits, queue := name(k)
		_, err := lockscript.SemResize(ctx, c, lockscript.SemResizeParams{Permits: permits, Queue: queue, Size: 5,
			Channel: "c:" + k + ":"})
		return "", err
	}
	mine := map[string]float64{"p.me:2": lab.Future, "p.me:2\nmine": lab.Future, "p.old:1": lab.Past,
		"p.gone:1": -lab.Past}
	full := map[string]float64{"p.a:3": lab.Future, "p.b:2": lab.Future}
	lapsed := map[string]float64{"p.a:3": lab.Past, "p.a:3\nn": lab.Past, "p.b:2": lab.Future}
	dead := []string{Standing("p.x:1"), Standing("p.y:4")}
	return []ScriptCall{
		{&lockscript.SemAcquireScript, acquire(""), None, nil},
		{&lockscript.SemAcquireScript, acquire(""), SemOf(5, lapsed, dead...), nil},
		{&lockscript.SemAcquireScript, acquire(Standing("p.me:2")), SemOf(5, full), nil},
		{&lockscript.SemAcquireScript, acquire(Standing("p.me:2")), SemOf(5, lapsed, dead...), nil},
		{&lockscript.SemExtendScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			permits, _ := name(k)
			v, err := lockscript.SemExtend(ctx, c, lockscript.SemExtendParams{Permits: permits, Owner: "p.me:2",
				TTL:  time.Minute,
				Note: "mine"})
			return fmt.Sprint(v), err
		}, SemOf(5, mine), nil},
		{&lockscript.SemReleaseScript, release, SemOf(5, mine), nil},
		{&lockscript.SemReleaseScript, release, SemOf(5, mine, dead...), nil},
		{&lockscript.SemReleaseScript, release, None, nil},
		{&lockscript.SemResizeScript, resize, SemOf(4, full, dead...), nil},
		{&lockscript.SemInfoScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			permits, queue := name(k)
			v, err := lockscript.SemInfo(ctx, c, lockscript.SemInfoParams{Permits: permits, Queue: queue, Max: 10,
				Waiters: 10})
			return fmt.Sprint(v.Limit, v.Used, v.Fence, v.Waiting, v.Members, v.Entries), err
		}, SemOf(5, mine, dead...), nil},
	}
}
