package scriptcase

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
)

// deliveryCalls lead a job from its due time to its end.
func deliveryCalls() []ScriptCall {
	return []ScriptCall{
		{&queuescript.TakeScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			v, err := queuescript.Take(ctx, c, queuescript.TakeParams{Queues: []queuescript.TakeQueue{
				TakeQueue("{"+k+"}", "t"), TakeQueue("{"+k+"}{second}", "t")}, Max: 1, Bytes: 1000, Waiter: "me",
				Wait: time.Minute})
			return fmt.Sprint(len(v.Jobs)), err
		}, func(ctx context.Context, c *redis.Client, k string) error {
			r, s, b, _, n, _ := QueueKeys(k)
			for i := range 20 {
				id := fmt.Sprint("j", i)
				if err := c.HSet(ctx, b, id, "body").Err(); err != nil {
					return err
				}
				if err := c.RPush(ctx, r, "1:"+id).Err(); err != nil {
					return err
				}
			}
			c.HSet(ctx, n, "j0", "3")
			c.HSet(ctx, "{"+k+"}:o", "j0", "0:3:0:0:")
			c.HSet(ctx, b, "due", "body")
			return c.ZAdd(ctx, s, redis.Z{Score: lab.Past, Member: "due"}).Err()
		}, nil},
		{&queuescript.AckScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			_, _, b, l, n, _ := QueueKeys(k)
			return show(queuescript.Ack(ctx, c, queuescript.AckParams{Known: time.Minute,
				Finished: "{" + k + "}:f",
				Options:  "{" + k + "}:o",
				Leases:   l, Bodies: b, Failures: n, Unique: "{" + k + "}:u", Expiry: "{" + k + "}:ux",
				Jobs: []queuescript.AckJob{{ID: "a", Fence: lab.LongLease}}}))
		}, Leased, nil},
		{&queuescript.NackScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			r, s, b, l, n, d := QueueKeys(k)
			return show(queuescript.Nack(ctx, c, queuescript.NackParams{Known: time.Minute,
				Options:  "{" + k + "}:o",
				Finished: "{" + k + "}:f",
				Leases:   l, Ready: r, Scheduled: s, Bodies: b, Failures: n, Dead: d,
				Unique: "{" + k + "}:u", Expiry: "{" + k + "}:ux", Control: "{" + k + "}:c", Wake: "{" + k + "}:w",
				Receipt: "{" + k + "}:i:t",
				Jobs: []queuescript.NackJob{{ID: "a", Fence: lab.LongLease, Delay: -1, Counted: true, Reason: "no"},
					{ID: "b", Fence: lab.LongLease, Patience: 3_600_000, Reason: "declined"}}}))
		}, Leased, nil},
		{&queuescript.ExtendScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			_, _, _, l, _, _ := QueueKeys(k)
			v, err := queuescript.Extend(ctx, c, queuescript.ExtendParams{Failures: "{" + k + "}:n", Leases: l,
				Receipt: "{" + k + "}:i:2", Lease: time.Minute,
				Jobs: []queuescript.ExtendJob{{ID: "a", Fence: lab.LongLease}}})
			return fmt.Sprint(v.Verdicts), err
		}, Leased, nil},
		{&queuescript.ReclaimScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			r, _, b, l, n, d := QueueKeys(k)
			v, err := queuescript.Reclaim(ctx, c, queuescript.ReclaimParams{Known: time.Minute,
				Options:  "{" + k + "}:o",
				Finished: "{" + k + "}:f", Leases: l, Ready: r, Bodies: b, Failures: n, Dead: d,
				Unique: "{" + k + "}:u", Expiry: "{" + k + "}:ux", Control: "{" + k + "}:c", Wake: "{" + k + "}:w",
				Scheduled: "{" + k + "}:s", Backoff: time.Second, Max: 10, MaxFailures: 1})
			return fmt.Sprint(v.Returned, v.Deaths), err
		}, func(ctx context.Context, c *redis.Client, k string) error {
			_, _, b, l, _, _ := QueueKeys(k)
			if err := c.HSet(ctx, b, "a", "body").Err(); err != nil {
				return err
			}
			return c.ZAdd(ctx, l, redis.Z{Score: lab.Past, Member: "a"}).Err()
		}, nil},
		{&queuescript.PromoteScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			r, s, _, _, _, _ := QueueKeys(k)
			v, err := queuescript.Promote(ctx, c, queuescript.PromoteParams{Scheduled: s, Ready: r,
				Wake: "{" + k + "}:w",
				Max:  10, Waiter: "me", Wait: time.Minute})
			return fmt.Sprint(v.Moved), err
		}, func(ctx context.Context, c *redis.Client, k string) error {
			_, s, _, _, _, _ := QueueKeys(k)
			return c.ZAdd(ctx, s, redis.Z{Score: lab.Past, Member: "a"}).Err()
		}, nil},
	}
}
