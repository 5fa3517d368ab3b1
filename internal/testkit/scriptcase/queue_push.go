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

// pushCalls push jobs to one queue, and to two.
func pushCalls() []ScriptCall {
	return []ScriptCall{
		{&queuescript.PushScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			p := PushKeys("{" + k + "}")
			v, err := queuescript.Push(ctx, c, queuescript.PushParams{Options: "{" + k + "}:o", Ready: p.Ready,
				Scheduled: p.Scheduled, Bodies: p.Bodies, Leases: p.Leases, Failures: "{" + k + "}:n",
				Unique: p.Unique, Expiry: p.Expiry, Control: p.Control, Wake: p.Wake, Receipt: "{" + k + "}:i:1",
				Finisheds: []string{p.Finished},
				Keep:      time.Minute,
				Jobs:      []queuescript.PushJob{{ID: "one", Body: []byte("1")}}})
			return fmt.Sprint(v.Ready, v.Scheduled, v.Duplicates), err
		}, func(ctx context.Context, c *redis.Client, k string) error {
			c.HSet(ctx, "{"+k+"}:b", "there", "body")
			return c.RPush(ctx, "{"+k+"}:r", "1:there").Err()
		}, []string{"scheduled", "leases", "unique", "expiry", "options"}},
		{&queuescript.PushScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			r, s, b, l, n, _ := QueueKeys(k)
			v, err := queuescript.Push(ctx, c, queuescript.PushParams{Options: "{" + k + "}:o", Ready: r, Scheduled: s,
				Bodies: b, Leases: l, Failures: n,
				Unique: "{" + k + "}:u", Expiry: "{" + k + "}:ux", Control: "{" + k + "}:c", Wake: "{" + k + "}:w",
				Receipt: "{" + k + "}:i:1", Keep: time.Minute, Finisheds: []string{"{" + k + "}:f"},
				Jobs: []queuescript.PushJob{{ID: "a", Body: []byte("A")}, {ID: "b", Due: lab.Future, Body: []byte("B"),
					Extra: "60000:4:name0:3:0:0:"}, {ID: "a"}}})
			return fmt.Sprint(v.Ready, v.Scheduled, v.Duplicates), err
		}, func(ctx context.Context, c *redis.Client, k string) error {
			// An expired holder, and a limit that is not reached.
			c.HSet(ctx, "{"+k+"}:u", "k:name", "gone", "j:gone", "name")
			c.ZAdd(ctx, "{"+k+"}:ux", redis.Z{Score: lab.Past, Member: "name"})
			return c.HSet(ctx, "{"+k+"}:c", "limit", "10").Err()
		}, nil},
		{&queuescript.PushOneScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			p := PushKeys("{" + k + "}")
			v, err := queuescript.PushOne(ctx, c, queuescript.PushOneParams{Ready: p.Ready, Bodies: p.Bodies,
				Control: p.Control, Wake: p.Wake,
				Finished: "{" + k + "}:f", ID: "one", Body: []byte("1")})
			return fmt.Sprint(v.Limited), err
		}, func(ctx context.Context, c *redis.Client, k string) error {
			c.ZAdd(ctx, "{"+k+"}:f", redis.Z{Score: lab.Past, Member: "another"})
			c.HSet(ctx, "{"+k+"}:c", "dead_bytes", "1")
			return c.ZAdd(ctx, "{"+k+"}:w", redis.Z{Score: lab.Future, Member: "waiter"}).Err()
		}, nil},
		{&queuescript.PushBareScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			p := PushKeys("{" + k + "}")
			v, err := queuescript.PushBare(ctx, c, queuescript.PushBareParams{Ready: p.Ready, Bodies: p.Bodies,
				Control: p.Control, Wake: p.Wake,
				Finished: "{" + k + "}:f", Jobs: []queuescript.PushBareJob{{ID: "one", Body: []byte("1")},
					{ID: "two", Body: []byte("2")}}})
			return fmt.Sprint(v.Limited), err
		}, func(ctx context.Context, c *redis.Client, k string) error {
			c.ZAdd(ctx, "{"+k+"}:f", redis.Z{Score: lab.Past, Member: "another"})
			c.HSet(ctx, "{"+k+"}:b", "there", "body")
			c.RPush(ctx, "{"+k+"}:r", "1:there")
			c.HSet(ctx, "{"+k+"}:c", "dead_bytes", "1")
			return c.ZAdd(ctx, "{"+k+"}:w", redis.Z{Score: lab.Future, Member: "waiter"}).Err()
		}, nil},
		{&queuescript.PushManyScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			v, err := queuescript.PushMany(ctx, c, queuescript.PushManyParams{Receipt: "{" + k + "}{}:i:1",
				Keep:   time.Minute,
				Queues: []queuescript.PushManyQueue{PushKeys("{" + k + "}"), PushKeys("{" + k + "}{second}")},
				Jobs: []queuescript.PushManyJob{{ID: "a", Body: make([]byte, 100)},
					{ID: "b", Due: lab.Future, Body: []byte("B"), Extra: "60000:4:name"}, {ID: "a"},
					{Queue: 1, ID: "a", Body: []byte("A2")},
					{Queue: 1, ID: "c", Due: lab.Future, Extra: "0:4:name0:3:0:0:"},
					{Queue: 1, ID: "d", Extra: "0:4:name"}}})
			return fmt.Sprint(v.Counts, v.Duplicates), err
		}, func(ctx context.Context, c *redis.Client, k string) error {
			for _, tag := range []string{"{" + k + "}", "{" + k + "}{second}"} {
				c.HSet(ctx, tag+":u", "k:name", "gone", "j:gone", "name")
				c.ZAdd(ctx, tag+":ux", redis.Z{Score: lab.Past, Member: "name"})
				c.HSet(ctx, tag+":c", "limit", "10")
			}
			// A large body changes the encoding of this hash permanently: an undo would show.
			c.HSet(ctx, "{"+k+"}:b", "there", "small")
			return c.RPush(ctx, "{"+k+"}{second}:r", "1:there").Err()
		}, nil},
	}
}
