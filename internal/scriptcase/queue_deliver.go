package scriptcase

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/lua"
)

// deliveryCalls lead a job from its due time to its end.
func deliveryCalls() []ScriptCall {
	return []ScriptCall{
		{&gen.QueueTakeScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			v, err := gen.QueueTake(ctx, c, gen.QueueTakeParams{Queues: []gen.QueueTakeQueue{
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
		{&gen.QueueAckScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			_, _, b, l, n, _ := QueueKeys(k)
			return show(gen.QueueAck(ctx, c, gen.QueueAckParams{Finished: "{" + k + "}:f", Options: "{" + k + "}:o",
				Leases: l, Bodies: b, Failures: n, Unique: "{" + k + "}:u", Expiry: "{" + k + "}:ux",
				Jobs: []gen.QueueAckJob{{ID: "a", Fence: lab.LongLease}}}))
		}, Leased, nil},
		{&gen.QueueNackScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			r, s, b, l, n, d := QueueKeys(k)
			return show(gen.QueueNack(ctx, c, gen.QueueNackParams{Options: "{" + k + "}:o", Finished: "{" + k + "}:f",
				Leases: l, Ready: r, Scheduled: s, Bodies: b, Failures: n, Dead: d,
				Unique: "{" + k + "}:u", Expiry: "{" + k + "}:ux", Control: "{" + k + "}:c", Wake: "{" + k + "}:w",
				Receipt: "{" + k + "}:i:t",
				Jobs: []gen.QueueNackJob{{ID: "a", Fence: lab.LongLease, Delay: -1, Counted: true, Reason: "no"},
					{ID: "b", Fence: lab.LongLease, Patience: 3_600_000, Reason: "declined"}}}))
		}, Leased, nil},
		{&gen.QueueExtendScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			_, _, _, l, _, _ := QueueKeys(k)
			v, err := gen.QueueExtend(ctx, c, gen.QueueExtendParams{Failures: "{" + k + "}:n", Leases: l,
				Receipt: "{" + k + "}:i:2", Lease: time.Minute,
				Jobs: []gen.QueueExtendJob{{ID: "a", Fence: lab.LongLease}}})
			return fmt.Sprint(v.Verdicts), err
		}, Leased, nil},
		{&gen.QueueReclaimScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			r, _, b, l, n, d := QueueKeys(k)
			v, err := gen.QueueReclaim(ctx, c, gen.QueueReclaimParams{Options: "{" + k + "}:o",
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
		{&gen.DelayedPromoteScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			r, s, _, _, _, _ := QueueKeys(k)
			v, err := gen.DelayedPromote(ctx, c, gen.DelayedPromoteParams{Scheduled: s, Ready: r, Wake: "{" + k + "}:w",
				Max: 10, Waiter: "me", Wait: time.Minute})
			return fmt.Sprint(v.Moved), err
		}, func(ctx context.Context, c *redis.Client, k string) error {
			_, s, _, _, _, _ := QueueKeys(k)
			return c.ZAdd(ctx, s, redis.Z{Score: lab.Past, Member: "a"}).Err()
		}, nil},
	}
}
