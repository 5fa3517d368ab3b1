package scriptcase

import (
	"context"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/lua"
)

func QueueKeys(k string) (r, s, b, l, n, d string) {
	p := "{" + k + "}:"
	return p + "r", p + "s", p + "b", p + "l", p + "n", p + "d"
}

// PushKeys are the keys of the queue with that tag for a push to several.
func PushKeys(tag string) gen.QueuePushManyQueue {
	return gen.QueuePushManyQueue{Ready: tag + ":r", Scheduled: tag + ":s", Bodies: tag + ":b", Leases: tag + ":l", Failures: tag + ":n",
		Unique: tag + ":u", Expiry: tag + ":ux", Control: tag + ":c", Wake: tag + ":w"}
}

// Leased stores jobs "a" and "b" under a lease with the fence longLease; "a" holds the unique name "name".
func Leased(ctx context.Context, c *redis.Client, k string) error {
	_, _, b, l, _, _ := QueueKeys(k)
	c.HSet(ctx, b, "a", "body", "b", "body")
	c.HSet(ctx, "{"+k+"}:u", "k:name", "a", "j:a", "name")
	c.ZAdd(ctx, "{"+k+"}:ux", redis.Z{Score: lab.Future, Member: "name"})
	return c.ZAdd(ctx, l, redis.Z{Score: lab.LongLease, Member: "a"}, redis.Z{Score: lab.LongLease, Member: "b"}).Err()
}

// Buried puts jobs "a", "b" and "c" into the dead set.
func Buried(ctx context.Context, c *redis.Client, k string) error {
	_, _, b, _, n, d := QueueKeys(k)
	for i, id := range []string{"a", "b", "c"} {
		c.HSet(ctx, b, id, "body")
		c.HSet(ctx, n, id, "3", id+"\n", "why")
		c.ZAdd(ctx, d, redis.Z{Score: float64(lab.Past + i), Member: id})
	}
	return c.HSet(ctx, "{"+k+"}:c", "dead_bytes", "12").Err()
}

// PeekCalls peek at each state; each reads only the key of that state.
func PeekCalls() []ScriptCall {
	var calls []ScriptCall
	states := []string{"ready", "scheduled", "leases", "dead"}
	for i := range states {
		calls = append(calls, ScriptCall{&gen.QueuePeekScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			r, s, b, l, n, d := QueueKeys(k)
			v, err := gen.QueuePeek(ctx, c, gen.QueuePeekParams{Ready: r, Scheduled: s, Leases: l, Dead: d, Bodies: b, Failures: n,
				State: gen.QueuePeekState(i), Max: 10})
			return fmt.Sprintf("%+v", v), err
		}, func(ctx context.Context, c *redis.Client, k string) error {
			c.ZAdd(ctx, "{"+k+"}:s", redis.Z{Score: lab.Future, Member: "a"})
			c.ZAdd(ctx, "{"+k+"}:l", redis.Z{Score: lab.LongLease, Member: "a"})
			c.RPush(ctx, "{"+k+"}:r", "1:a")
			return Buried(ctx, c, k)
		}, slices.Delete(slices.Clone(states), i, i+1)})
	}
	return slices.Concat(calls, LockCalls(), SemCalls())
}
