package luatomic_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/lua"
)

// scriptCall is one call of a script on prepared data, for the tests that put
// every script under the same fault.
type scriptCall struct {
	script *lua.Script
	// run calls the script and says what it answered.
	run func(ctx context.Context, c lua.Client, k string) (string, error)
	// prepare makes the data that the call finds; k is the test's tag.
	prepare func(ctx context.Context, c *redis.Client, k string) error
	// unread are keys that this call declares and has no need to look at.
	unread []string
}

func queueKeys(k string) (r, s, b, l, n, d string) {
	p := "{" + k + "}:"
	return p + "r", p + "s", p + "b", p + "l", p + "n", p + "d"
}

// pushKeys are the keys of the queue with that tag for a push to several.
func pushKeys(tag string) gen.QueuePushManyQueue {
	return gen.QueuePushManyQueue{Ready: tag + ":r", Scheduled: tag + ":s", Bodies: tag + ":b", Leases: tag + ":l", Failures: tag + ":n",
		Unique: tag + ":u", Expiry: tag + ":ux", Control: tag + ":c", Wake: tag + ":w"}
}

// leased puts jobs "a" and "b" under a lease with the fence longLease; "a" holds
// the unique name "name".
func leased(ctx context.Context, c *redis.Client, k string) error {
	_, _, b, l, _, _ := queueKeys(k)
	c.HSet(ctx, b, "a", "body", "b", "body")
	c.HSet(ctx, "{"+k+"}:u", "k:name", "a", "j:a", "name")
	c.ZAdd(ctx, "{"+k+"}:ux", redis.Z{Score: future, Member: "name"})
	return c.ZAdd(ctx, l, redis.Z{Score: longLease, Member: "a"}, redis.Z{Score: longLease, Member: "b"}).Err()
}

// buried puts jobs "a", "b" and "c" into the dead set.
func buried(ctx context.Context, c *redis.Client, k string) error {
	_, _, b, _, n, d := queueKeys(k)
	for i, id := range []string{"a", "b", "c"} {
		c.HSet(ctx, b, id, "body")
		c.HSet(ctx, n, id, "3", id+"\n", "why")
		c.ZAdd(ctx, d, redis.Z{Score: float64(past + i), Member: id})
	}
	return c.HSet(ctx, "{"+k+"}:c", "dead_bytes", "12").Err()
}

func none(context.Context, *redis.Client, string) error { return nil }

func scriptCalls() []scriptCall {
	show := func(v any, err error) (string, error) { return fmt.Sprintf("%+v", v), err }
	return append(append(peekCalls(), rpcCalls()...), []scriptCall{
		{&gen.QueuePushScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			p := pushKeys("{" + k + "}")
			v, err := gen.QueuePush(ctx, c, gen.QueuePushParams{Ready: p.Ready, Scheduled: p.Scheduled, Bodies: p.Bodies, Leases: p.Leases, Failures: "{" + k + "}:n",
				Unique: p.Unique, Expiry: p.Expiry, Control: p.Control, Wake: p.Wake, Receipt: "{" + k + "}:i:1", Keep: time.Minute,
				Jobs: []gen.QueuePushJob{{ID: "one", Body: []byte("1")}}})
			return fmt.Sprint(v.Ready, v.Scheduled, v.Duplicates), err
		}, func(ctx context.Context, c *redis.Client, k string) error {
			c.HSet(ctx, "{"+k+"}:b", "there", "body")
			return c.RPush(ctx, "{"+k+"}:r", "1:there").Err()
		}, []string{"scheduled", "leases", "unique", "expiry"}},
		{&gen.QueuePushScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			r, s, b, l, n, _ := queueKeys(k)
			v, err := gen.QueuePush(ctx, c, gen.QueuePushParams{Ready: r, Scheduled: s, Bodies: b, Leases: l, Failures: n,
				Unique: "{" + k + "}:u", Expiry: "{" + k + "}:ux", Control: "{" + k + "}:c", Wake: "{" + k + "}:w", Receipt: "{" + k + "}:i:1", Keep: time.Minute,
				Jobs: []gen.QueuePushJob{{ID: "a", Body: []byte("A")}, {ID: "b", Due: future, Body: []byte("B"), Hold: "60000:name"}, {ID: "a"}}})
			return fmt.Sprint(v.Ready, v.Scheduled, v.Duplicates), err
		}, func(ctx context.Context, c *redis.Client, k string) error {
			// A holder whose time is over, and a limit that leaves room.
			c.HSet(ctx, "{"+k+"}:u", "k:name", "gone", "j:gone", "name")
			c.ZAdd(ctx, "{"+k+"}:ux", redis.Z{Score: past, Member: "name"})
			return c.HSet(ctx, "{"+k+"}:c", "limit", "10").Err()
		}, nil},
		{&gen.QueuePushManyScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			v, err := gen.QueuePushMany(ctx, c, gen.QueuePushManyParams{Receipt: "{" + k + "}{}:i:1", Keep: time.Minute,
				Queues: []gen.QueuePushManyQueue{pushKeys("{" + k + "}"), pushKeys("{" + k + "}{second}")},
				Jobs: []gen.QueuePushManyJob{{ID: "a", Body: make([]byte, 100)}, {ID: "b", Due: future, Body: []byte("B"), Hold: "60000:name"}, {ID: "a"},
					{Queue: 1, ID: "a", Body: []byte("A2")}, {Queue: 1, ID: "c", Due: future, Hold: "0:name"}, {Queue: 1, ID: "d", Hold: "0:name"}}})
			return fmt.Sprint(v.Counts, v.Duplicates), err
		}, func(ctx context.Context, c *redis.Client, k string) error {
			for _, tag := range []string{"{" + k + "}", "{" + k + "}{second}"} {
				c.HSet(ctx, tag+":u", "k:name", "gone", "j:gone", "name")
				c.ZAdd(ctx, tag+":ux", redis.Z{Score: past, Member: "name"})
				c.HSet(ctx, tag+":c", "limit", "10")
			}
			// A large body changes the form of this hash for good: an undo would show.
			c.HSet(ctx, "{"+k+"}:b", "there", "small")
			return c.RPush(ctx, "{"+k+"}{second}:r", "1:there").Err()
		}, nil},
		{&gen.QueueTakeScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			r, s, b, l, n, _ := queueKeys(k)
			v, err := gen.QueueTake(ctx, c, gen.QueueTakeParams{Ready: r, Scheduled: s, Bodies: b, Leases: l, Failures: n, Control: "{" + k + "}:c", Wake: "{" + k + "}:w",
				Lease: time.Minute, Max: 1, Bytes: 1000, Waiter: "me", Wait: time.Minute})
			return fmt.Sprint(len(v.Jobs)), err
		}, func(ctx context.Context, c *redis.Client, k string) error {
			r, s, b, _, n, _ := queueKeys(k)
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
			c.HSet(ctx, b, "due", "body")
			return c.ZAdd(ctx, s, redis.Z{Score: past, Member: "due"}).Err()
		}, nil},
		{&gen.QueueAckScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			_, _, b, l, n, _ := queueKeys(k)
			return show(gen.QueueAck(ctx, c, gen.QueueAckParams{Leases: l, Bodies: b, Failures: n, Unique: "{" + k + "}:u", Expiry: "{" + k + "}:ux", Jobs: []gen.QueueAckJob{{ID: "a", Fence: longLease}}}))
		}, leased, nil},
		{&gen.QueueNackScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			r, s, b, l, n, d := queueKeys(k)
			return show(gen.QueueNack(ctx, c, gen.QueueNackParams{Leases: l, Ready: r, Scheduled: s, Bodies: b, Failures: n, Dead: d,
				Unique: "{" + k + "}:u", Expiry: "{" + k + "}:ux", Control: "{" + k + "}:c", Wake: "{" + k + "}:w",
				Jobs: []gen.QueueNackJob{{ID: "a", Fence: longLease, Delay: -1, Counted: true, Reason: "no"}, {ID: "b", Fence: longLease}}}))
		}, leased, nil},
		{&gen.QueueExtendScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			_, _, _, l, _, _ := queueKeys(k)
			v, err := gen.QueueExtend(ctx, c, gen.QueueExtendParams{Leases: l, Lease: time.Minute, Jobs: []gen.QueueExtendJob{{ID: "a", Fence: longLease}}})
			return fmt.Sprint(v.Verdicts), err
		}, leased, nil},
		{&gen.QueueReclaimScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			r, _, b, l, n, d := queueKeys(k)
			v, err := gen.QueueReclaim(ctx, c, gen.QueueReclaimParams{Leases: l, Ready: r, Bodies: b, Failures: n, Dead: d,
				Unique: "{" + k + "}:u", Expiry: "{" + k + "}:ux", Control: "{" + k + "}:c", Wake: "{" + k + "}:w", Max: 10, MaxFailures: 1})
			return fmt.Sprint(v.Returned, v.Buried), err
		}, func(ctx context.Context, c *redis.Client, k string) error {
			_, _, b, l, _, _ := queueKeys(k)
			if err := c.HSet(ctx, b, "a", "body").Err(); err != nil {
				return err
			}
			return c.ZAdd(ctx, l, redis.Z{Score: past, Member: "a"}).Err()
		}, nil},
		{&gen.QueueStatsScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			r, s, _, l, _, d := queueKeys(k)
			v, err := gen.QueueStats(ctx, c, gen.QueueStatsParams{Ready: r, Scheduled: s, Leases: l, Dead: d, Control: "{" + k + "}:c"})
			return fmt.Sprint(v.Ready, v.Scheduled, v.Leased, v.Dead), err
		}, leased, nil},
		{&gen.DelayedPromoteScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			r, s, _, _, _, _ := queueKeys(k)
			v, err := gen.DelayedPromote(ctx, c, gen.DelayedPromoteParams{Scheduled: s, Ready: r, Wake: "{" + k + "}:w", Max: 10, Waiter: "me", Wait: time.Minute})
			return fmt.Sprint(v.Moved), err
		}, func(ctx context.Context, c *redis.Client, k string) error {
			_, s, _, _, _, _ := queueKeys(k)
			return c.ZAdd(ctx, s, redis.Z{Score: past, Member: "a"}).Err()
		}, nil},
		{&gen.QueueCancelScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			_, s, b, l, n, d := queueKeys(k)
			return show(gen.QueueCancel(ctx, c, gen.QueueCancelParams{Scheduled: s, Bodies: b, Leases: l, Failures: n, Dead: d,
				Unique: "{" + k + "}:u", Expiry: "{" + k + "}:ux", Control: "{" + k + "}:c", IDs: []string{"s", "r", "d", "l", "none"}}))
		}, func(ctx context.Context, c *redis.Client, k string) error {
			r, s, b, l, n, d := queueKeys(k)
			for _, id := range []string{"s", "r", "d", "l"} {
				c.HSet(ctx, b, id, "body "+id)
				c.HSet(ctx, n, id, "1", id+"\n", "why")
				c.HSet(ctx, "{"+k+"}:u", "k:u"+id, id, "j:"+id, "u"+id)
				c.ZAdd(ctx, "{"+k+"}:ux", redis.Z{Score: future, Member: "u" + id})
			}
			c.HSet(ctx, "{"+k+"}:c", "dead_bytes", "6")
			c.RPush(ctx, r, "1:r")
			c.ZAdd(ctx, s, redis.Z{Score: future, Member: "s"})
			c.ZAdd(ctx, d, redis.Z{Score: past, Member: "d"})
			return c.ZAdd(ctx, l, redis.Z{Score: longLease, Member: "l"}).Err()
		}, nil},
		{&gen.QueueRescheduleScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			_, s, _, _, _, _ := queueKeys(k)
			return show(gen.QueueReschedule(ctx, c, gen.QueueRescheduleParams{Scheduled: s, Wake: "{" + k + "}:w", ID: "a", Due: future + 1}))
		}, func(ctx context.Context, c *redis.Client, k string) error {
			return c.ZAdd(ctx, "{"+k+"}:s", redis.Z{Score: future, Member: "a"}).Err()
		}, nil},
		{&gen.QueueControlScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			return show(gen.QueueControl(ctx, c, gen.QueueControlParams{Control: "{" + k + "}:c", Wake: "{" + k + "}:w", Pause: gen.QueueControlPauseOn, Limit: 7}))
		}, none, nil},
		{&gen.QueueRequeueScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			r, _, b, _, n, d := queueKeys(k)
			return show(gen.QueueRequeue(ctx, c, gen.QueueRequeueParams{Dead: d, Ready: r, Bodies: b, Failures: n, Control: "{" + k + "}:c", Wake: "{" + k + "}:w", IDs: []string{"a", "b", "none"}}))
		}, buried, nil},
		{&gen.QueueTrimScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			_, _, b, _, n, d := queueKeys(k)
			return show(gen.QueueTrim(ctx, c, gen.QueueTrimParams{Dead: d, Bodies: b, Failures: n, Control: "{" + k + "}:c", Keep: 1, Bytes: -1, Age: -1, Max: 10}))
		}, buried, nil},
		{&gen.QueueMendScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			r, s, b, l, n, d := queueKeys(k)
			return show(gen.QueueMend(ctx, c, gen.QueueMendParams{Ready: r, Scheduled: s, Bodies: b, Leases: l, Failures: n, Dead: d,
				Unique: "{" + k + "}:u", Expiry: "{" + k + "}:ux", Control: "{" + k + "}:c", Wake: "{" + k + "}:w",
				Mend: true, From: 12, To: 8, Suspects: []gen.QueueMendSuspect{{ID: "lost"}, {ID: "a"}, {Kind: gen.QueueMendKindGhost, ID: "ghost"},
					{Kind: gen.QueueMendKindCount, ID: "gone"}, {Kind: gen.QueueMendKindName, ID: "gone", Name: "name"}}}))
		}, func(ctx context.Context, c *redis.Client, k string) error {
			_, s, b, _, n, _ := queueKeys(k)
			c.HSet(ctx, b, "lost", "body")
			c.ZAdd(ctx, s, redis.Z{Score: future, Member: "ghost"})
			c.HSet(ctx, n, "gone", "2")
			c.HSet(ctx, "{"+k+"}:u", "k:name", "gone", "j:gone", "name")
			c.ZAdd(ctx, "{"+k+"}:ux", redis.Z{Score: future, Member: "name"})
			return buried(ctx, c, k)
		}, nil},
	}...)
}

// peekCalls look at each state; each reads only the key of that state.
func peekCalls() []scriptCall {
	var calls []scriptCall
	states := []string{"ready", "scheduled", "leases", "dead"}
	for i := range states {
		calls = append(calls, scriptCall{&gen.QueuePeekScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			r, s, b, l, n, d := queueKeys(k)
			v, err := gen.QueuePeek(ctx, c, gen.QueuePeekParams{Ready: r, Scheduled: s, Leases: l, Dead: d, Bodies: b, Failures: n,
				State: gen.QueuePeekState(i), Max: 10})
			return fmt.Sprintf("%+v", v), err
		}, func(ctx context.Context, c *redis.Client, k string) error {
			c.ZAdd(ctx, "{"+k+"}:s", redis.Z{Score: future, Member: "a"})
			c.ZAdd(ctx, "{"+k+"}:l", redis.Z{Score: longLease, Member: "a"})
			c.RPush(ctx, "{"+k+"}:r", "1:a")
			return buried(ctx, c, k)
		}, slices.Delete(slices.Clone(states), i, i+1)})
	}
	return slices.Concat(calls, lockCalls(), semCalls())
}

// keysOf are the keys that a call passes, seen by a client that sends nothing.
func keysOf(ctx context.Context, t *testing.T, call scriptCall, k string) []string {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1})
	defer c.Close()
	ctx, cancel := context.WithCancel(ctx)
	rec := &recorder{cancel: cancel}
	c.AddHook(rec)
	_, err := call.run(ctx, c, k)
	require.ErrorIs(t, err, context.Canceled)
	require.NotEmpty(t, rec.keys)
	return rec.keys
}
