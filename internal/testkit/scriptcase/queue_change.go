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

// changeCalls change jobs and queues by hand.
func changeCalls() []ScriptCall {
	return []ScriptCall{
		{&queuescript.CancelScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			_, s, b, l, n, d := QueueKeys(k)
			return show(queuescript.Cancel(ctx, c, queuescript.CancelParams{Known: time.Minute,
				Only: "1234", Finished: "{" + k + "}:f",
				Receipt: "{" + k + "}:i:t", Options: "{" + k + "}:o", Scheduled: s, Bodies: b, Leases: l,
				Failures: n, Dead: d,
				Unique: "{" + k + "}:u", Expiry: "{" + k + "}:ux", Control: "{" + k + "}:c",
				IDs: []string{"s", "r", "d", "l", "none"}}))
		}, FourStates, nil},
		{&queuescript.BuryScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			_, s, b, l, n, d := QueueKeys(k)
			return show(queuescript.Bury(ctx, c, queuescript.BuryParams{Only: "12", Receipt: "{" + k + "}:i:t",
				Scheduled: s,
				Bodies:    b, Leases: l, Failures: n, Dead: d,
				Unique: "{" + k + "}:u", Expiry: "{" + k + "}:ux", Control: "{" + k + "}:c", Reason: "why",
				IDs: []string{"s", "r", "d", "l", "none"}}))
		}, FourStates, nil},
		{&queuescript.RescheduleScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			_, s, _, _, _, _ := QueueKeys(k)
			return show(queuescript.Reschedule(ctx, c, queuescript.RescheduleParams{Scheduled: s, Wake: "{" + k + "}:w",
				Receipt: "{" + k + "}:i:t", ID: "a", Due: lab.Future + 1}))
		}, func(ctx context.Context, c *redis.Client, k string) error {
			return c.ZAdd(ctx, "{"+k+"}:s", redis.Z{Score: lab.Future, Member: "a"}).Err()
		}, nil},
		{&queuescript.ControlScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			return show(queuescript.Control(ctx, c, queuescript.ControlParams{Control: "{" + k + "}:c",
				Wake:    "{" + k + "}:w",
				Receipt: "{" + k + "}:i:t", Pause: queuescript.ControlPauseOn, Limit: 7}))
		}, None, nil},
		{&queuescript.RequeueScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			r, _, b, _, n, d := QueueKeys(k)
			return show(queuescript.Requeue(ctx, c, queuescript.RequeueParams{Dead: d, Ready: r, Bodies: b, Failures: n,
				Control: "{" + k + "}:c", Wake: "{" + k + "}:w",
				Unique: "{" + k + "}:u", Expiry: "{" + k + "}:ux", Receipt: "{" + k + "}:i:t",
				IDs: []string{"a", "b", "none"}}))
		}, Buried, nil},
		{&queuescript.TrimScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			_, _, b, _, n, d := QueueKeys(k)
			return show(queuescript.Trim(ctx, c, queuescript.TrimParams{Known: time.Minute,
				Finished: "{" + k + "}:f",
				Unique:   "{" + k + "}:u",
				Options:  "{" + k + "}:o", Dead: d, Bodies: b, Failures: n, Control: "{" + k + "}:c",
				Keep: 1, Bytes: -1,
				Age: -1, Max: 10, Limits: queuescript.TrimLimitsStore}))
		}, Buried, nil},
		{&queuescript.MendScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			r, s, b, l, n, d := QueueKeys(k)
			return show(queuescript.Mend(ctx, c, queuescript.MendParams{Options: "{" + k + "}:o",
				Finished: "{" + k + "}:f",
				Ready:    r, Scheduled: s, Bodies: b, Leases: l, Failures: n, Dead: d,
				Unique: "{" + k + "}:u", Expiry: "{" + k + "}:ux", Control: "{" + k + "}:c", Wake: "{" + k + "}:w",
				Mend: true, From: "12", To: 8, Suspects: []queuescript.MendSuspect{{ID: "lost"}, {ID: "a"},
					{Kind: queuescript.MendKindGhost, ID: "ghost"},
					{Kind: queuescript.MendKindCount, ID: "gone"},
					{Kind: queuescript.MendKindName, ID: "gone", Name: "name"}}}))
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
		{&queuescript.StatsScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			r, s, _, l, _, d := QueueKeys(k)
			v, err := queuescript.Stats(ctx, c, queuescript.StatsParams{Ready: r, Scheduled: s, Leases: l, Dead: d,
				Control: "{" + k + "}:c"})
			return fmt.Sprint(v.Ready, v.Scheduled, v.Leased, v.Dead), err
		}, Leased, nil},
		{&queuescript.ReportScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			p := "{" + k + "}:"
			return show(queuescript.Report(ctx, c, queuescript.ReportParams{Queues: p + "names", Workers: p + "workers",
				About: p + "about", Counts: p + "n",
				Process: "me", Number: 2, Lease: time.Minute, Description: []byte("{}"), Epoch: "7", Known: 1,
				Entries: []queuescript.ReportEntry{{Queue: "{q}", Processed: 1, Failed: 2, Dead: 3, Expired: 4}}}))
		}, func(ctx context.Context, c *redis.Client, k string) error {
			c.HSet(ctx, "{"+k+"}:about", "", "8 0", "me", "1 {}", "gone", "7 {}")
			c.ZAdd(ctx, "{"+k+"}:names", redis.Z{Score: 1, Member: "{old}"})
			return c.ZAdd(ctx, "{"+k+"}:workers", redis.Z{Score: lab.Past, Member: "gone"}).Err()
		}, nil},
		{&queuescript.FindScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			_, s, b, l, n, d := QueueKeys(k)
			return show(queuescript.Find(ctx, c, queuescript.FindParams{Scheduled: s, Leases: l, Dead: d, Bodies: b,
				Failures: n,
				Options:  "{" + k + "}:o", Bytes: 1000, IDs: []string{"a", "none"}}))
		}, Buried, nil},
	}
}
