package scriptcase

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
)

// TakeQueue are the keys of a queue in a take, and a lease of a minute.
func TakeQueue(prefix, receipt string) queuescript.TakeQueue {
	k := func(s string) string { return prefix + ":" + s }
	return queuescript.TakeQueue{
		Ready: k("r"), Scheduled: k("s"), Bodies: k("b"), Leases: k("l"), Failures: k("n"), Control: k("c"),
		Wake: k("w"), Options: k("o"), Receipt: k("i:" + receipt), Dead: k("d"), Lease: time.Minute,
	}
}

func QueueKeys(k string) (r, s, b, l, n, d string) {
	p := "{" + k + "}:"
	return p + "r", p + "s", p + "b", p + "l", p + "n", p + "d"
}

// PushKeys are the keys of the queue with that tag for a push to several.
func PushKeys(tag string) queuescript.PushManyQueue {
	return queuescript.PushManyQueue{Ready: tag + ":r", Scheduled: tag + ":s", Bodies: tag + ":b", Leases: tag + ":l",
		Finished: tag + ":f",
		Failures: tag + ":n",
		Unique:   tag + ":u", Expiry: tag + ":ux", Control: tag + ":c", Wake: tag + ":w", Options: tag + ":o"}
}

// Leased stores jobs "a" and "b" under a lease with the fence longLease; "a" holds the unique name "name".
func Leased(ctx context.Context, c *redis.Client, k string) error {
	_, _, b, l, _, _ := QueueKeys(k)
	c.HSet(ctx, b, "a", "body", "b", "body")
	c.HSet(ctx, "{"+k+"}:u", "k:name", "a", "j:a", "name")
	c.ZAdd(ctx, "{"+k+"}:ux", redis.Z{Score: lab.Future, Member: "name"})
	c.HSet(ctx, "{"+k+"}:o", "a", "0:3:0:0:")
	return c.ZAdd(ctx, l, redis.Z{Score: lab.LongLease, Member: "a"}, redis.Z{Score: lab.LongLease, Member: "b"}).Err()
}

// Buried puts jobs "a", "b" and "c" into the dead set. "a" held a free name, "b" one that another job holds.
func Buried(ctx context.Context, c *redis.Client, k string) error {
	_, _, b, _, n, d := QueueKeys(k)
	for i, id := range []string{"a", "b", "c"} {
		c.HSet(ctx, b, id, "body")
		c.HSet(ctx, n, id, "3", id+"\n", "why")
		c.ZAdd(ctx, d, redis.Z{Score: float64(lab.Past + i), Member: id})
	}
	c.HSet(ctx, "{"+k+"}:u", "j:a", "free", "j:b", "name", "k:name", "other", "j:other", "name")
	c.ZAdd(ctx, "{"+k+"}:ux", redis.Z{Score: lab.Future, Member: "name"})
	return c.HSet(ctx, "{"+k+"}:c", "dead_bytes", "12").Err()
}

// peekCalls peek at each state; each reads only the key of that state.
func peekCalls() []ScriptCall {
	var calls []ScriptCall
	states := []string{"ready", "scheduled", "leases", "dead"}
	for i := range states {
		calls = append(calls, ScriptCall{&queuescript.PeekScript,
			func(ctx context.Context, c lua.Client, k string) (string, error) {
				r, s, b, l, n, d := QueueKeys(k)
				v, err := queuescript.Peek(ctx, c, queuescript.PeekParams{Ready: r, Scheduled: s, Leases: l, Dead: d,
					Bodies: b, Failures: n, Options: "{" + k + "}:o",
					State: queuescript.PeekState(i), Max: 10, Bytes: 1000})
				return fmt.Sprintf("%+v", v), err
			}, func(ctx context.Context, c *redis.Client, k string) error {
				c.ZAdd(ctx, "{"+k+"}:s", redis.Z{Score: lab.Future, Member: "a"})
				c.ZAdd(ctx, "{"+k+"}:l", redis.Z{Score: lab.LongLease, Member: "a"})
				c.RPush(ctx, "{"+k+"}:r", "1:a")
				return Buried(ctx, c, k)
			}, slices.Delete(slices.Clone(states), i, i+1)})
	}
	return calls
}

// FourStates stores a scheduled, a ready, a dead and a leased job.
func FourStates(ctx context.Context, c *redis.Client, k string) error {
	r, s, b, l, n, d := QueueKeys(k)
	for _, id := range []string{"s", "r", "d", "l"} {
		c.HSet(ctx, b, id, "body "+id)
		c.HSet(ctx, n, id, "1", id+"\n", "why")
		c.HSet(ctx, "{"+k+"}:u", "k:u"+id, id, "j:"+id, "u"+id)
		c.ZAdd(ctx, "{"+k+"}:ux", redis.Z{Score: lab.Future, Member: "u" + id})
	}
	c.HSet(ctx, "{"+k+"}:c", "dead_bytes", "6")
	c.RPush(ctx, r, "1:r")
	c.ZAdd(ctx, s, redis.Z{Score: lab.Future, Member: "s"})
	c.ZAdd(ctx, d, redis.Z{Score: lab.Past, Member: "d"})
	return c.ZAdd(ctx, l, redis.Z{Score: lab.LongLease, Member: "l"}).Err()
}
