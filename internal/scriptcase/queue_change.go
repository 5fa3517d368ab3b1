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

// changeCalls change jobs and queues by hand.
func changeCalls() []ScriptCall {
	return []ScriptCall{
		{&gen.QueueCancelScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			_, s, b, l, n, d := QueueKeys(k)
			return show(gen.QueueCancel(ctx, c, gen.QueueCancelParams{Only: "1234", Finished: "{" + k + "}:f",
				Receipt: "{" + k + "}:i:t", Options: "{" + k + "}:o", Scheduled: s, Bodies: b, Leases: l,
				Failures: n, Dead: d,
				Unique: "{" + k + "}:u", Expiry: "{" + k + "}:ux", Control: "{" + k + "}:c",
				IDs: []string{"s", "r", "d", "l", "none"}}))
		}, FourStates, nil},
		{&gen.QueueBuryScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			_, s, b, l, n, d := QueueKeys(k)
			return show(gen.QueueBury(ctx, c, gen.QueueBuryParams{Only: "12", Receipt: "{" + k + "}:i:t", Scheduled: s,
				Bodies: b, Leases: l, Failures: n, Dead: d,
				Unique: "{" + k + "}:u", Expiry: "{" + k + "}:ux", Control: "{" + k + "}:c", Reason: "why",
				IDs: []string{"s", "r", "d", "l", "none"}}))
		}, FourStates, nil},
		{&gen.QueueRescheduleScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			_, s, _, _, _, _ := QueueKeys(k)
			return show(gen.QueueReschedule(ctx, c, gen.QueueRescheduleParams{Scheduled: s, Wake: "{" + k + "}:w",
				Receipt: "{" + k + "}:i:t", ID: "a", Due: lab.Future + 1}))
		}, func(ctx context.Context, c *redis.Client, k string) error {
			return c.ZAdd(ctx, "{"+k+"}:s", redis.Z{Score: lab.Future, Member: "a"}).Err()
		}, nil},
		{&gen.QueueControlScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			return show(gen.QueueControl(ctx, c, gen.QueueControlParams{Control: "{" + k + "}:c", Wake: "{" + k + "}:w",
				Receipt: "{" + k + "}:i:t", Pause: gen.QueueControlPauseOn, Limit: 7}))
		}, None, nil},
		{&gen.QueueRequeueScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			r, _, b, _, n, d := QueueKeys(k)
			return show(gen.QueueRequeue(ctx, c, gen.QueueRequeueParams{Dead: d, Ready: r, Bodies: b, Failures: n,
				Control: "{" + k + "}:c", Wake: "{" + k + "}:w",
				Unique: "{" + k + "}:u", Expiry: "{" + k + "}:ux", Receipt: "{" + k + "}:i:t",
				IDs: []string{"a", "b", "none"}}))
		}, Buried, nil},
		{&gen.QueueTrimScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			_, _, b, _, n, d := QueueKeys(k)
			return show(gen.QueueTrim(ctx, c, gen.QueueTrimParams{Finished: "{" + k + "}:f", Unique: "{" + k + "}:u",
				Options: "{" + k + "}:o", Dead: d, Bodies: b, Failures: n, Control: "{" + k + "}:c", Keep: 1, Bytes: -1,
				Age: -1, Max: 10, Limits: gen.QueueTrimLimitsStore}))
		}, Buried, nil},
		{&gen.QueueMendScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			r, s, b, l, n, d := QueueKeys(k)
			return show(gen.QueueMend(ctx, c, gen.QueueMendParams{Options: "{" + k + "}:o", Finished: "{" + k + "}:f",
				Ready: r, Scheduled: s, Bodies: b, Leases: l, Failures: n, Dead: d,
				Unique: "{" + k + "}:u", Expiry: "{" + k + "}:ux", Control: "{" + k + "}:c", Wake: "{" + k + "}:w",
				Mend: true, From: "12", To: 8, Suspects: []gen.QueueMendSuspect{{ID: "lost"}, {ID: "a"},
					{Kind: gen.QueueMendKindGhost, ID: "ghost"},
					{Kind: gen.QueueMendKindCount, ID: "gone"},
					{Kind: gen.QueueMendKindName, ID: "gone", Name: "name"}}}))
		}, func(ctx context.Context, c *redis.Client, k string) error {
			_, s, b, _, n, _ := QueueKeys(k)
			c.HSet(ctx, b, "lost", "body")
			c.ZAdd(ctx, s, redis.Z{Score: lab.Future, Member: "ghost"})
			c.HSet(ctx, n, "gone", "2")
			c.HSet(ctx, "{"+k+"}:u", "k:name", "gone", "j:gone", "name")
			c.ZAdd(ctx, "{"+k+"}:ux", redis.Z{Score: lab.Future, Member: "name"})
			return Buried(ctx, c, k)
		}, nil},
	}
}

// reportCalls count and find jobs, and report a process.
func reportCalls() []ScriptCall {
	return []ScriptCall{
		{&gen.QueueStatsScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			r, s, _, l, _, d := QueueKeys(k)
			v, err := gen.QueueStats(ctx, c, gen.QueueStatsParams{Ready: r, Scheduled: s, Leases: l, Dead: d,
				Control: "{" + k + "}:c"})
			return fmt.Sprint(v.Ready, v.Scheduled, v.Leased, v.Dead), err
		}, Leased, nil},
		{&gen.QueueReportScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			p := "{" + k + "}:"
			return show(gen.QueueReport(ctx, c, gen.QueueReportParams{Queues: p + "names", Workers: p + "workers",
				About: p + "about", Counts: p + "n",
				Process: "me", Number: 2, Lease: time.Minute, Description: []byte("{}"), Epoch: "7", Known: 1,
				Entries: []gen.QueueReportEntry{{Queue: "{q}", Processed: 1, Failed: 2, Dead: 3, Expired: 4}}}))
		}, func(ctx context.Context, c *redis.Client, k string) error {
			c.HSet(ctx, "{"+k+"}:about", "", "8 0", "me", "1 {}", "gone", "7 {}")
			c.ZAdd(ctx, "{"+k+"}:names", redis.Z{Score: 1, Member: "{old}"})
			return c.ZAdd(ctx, "{"+k+"}:workers", redis.Z{Score: lab.Past, Member: "gone"}).Err()
		}, nil},
		{&gen.QueueFindScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			_, s, b, l, n, d := QueueKeys(k)
			return show(gen.QueueFind(ctx, c, gen.QueueFindParams{Scheduled: s, Leases: l, Dead: d, Bodies: b,
				Failures: n,
				Options:  "{" + k + "}:o", Bytes: 1000, IDs: []string{"a", "none"}}))
		}, Buried, nil},
	}
}
