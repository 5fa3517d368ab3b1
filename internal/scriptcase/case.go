// Package scriptcase has a valid call of every script of this module, with what must be stored before it. The sweeps
// over all scripts run them, and the tests of single scripts build on them.
package scriptcase

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/queue"
)

// QueueStep is one call on a queue. ds are the deliveries of the last takes.
type QueueStep func(ctx context.Context, q *queue.Queue, ds *[]*queue.Delivery) error

func Pushes(jobs ...queue.Job) QueueStep {
	return func(ctx context.Context, q *queue.Queue, _ *[]*queue.Delivery) error {
		_, err := q.PushOnce(ctx, "first", jobs...)
		return err
	}
}

func Reclaims(ctx context.Context, q *queue.Queue, _ *[]*queue.Delivery) error {
	_, err := q.Reclaim(ctx)
	return err
}

func Promotes(ctx context.Context, q *queue.Queue, _ *[]*queue.Delivery) error {
	_, err := q.Promote(ctx)
	return err
}

func Cancels(ids ...string) QueueStep {
	return func(ctx context.Context, q *queue.Queue, _ *[]*queue.Delivery) error {
		_, err := q.Cancel(ctx, ids...)
		return err
	}
}

func BuriesJobs(ids ...string) QueueStep {
	return func(ctx context.Context, q *queue.Queue, _ *[]*queue.Delivery) error {
		_, err := q.BuryJobs(ctx, "reason", ids...)
		return err
	}
}

func Requeues(ids ...string) QueueStep {
	return func(ctx context.Context, q *queue.Queue, _ *[]*queue.Delivery) error {
		_, err := q.Requeue(ctx, ids...)
		return err
	}
}

var AllScripts = slices.Concat(RpcScripts, []*lua.Script{
	&gen.DelayedPromoteScript,
	&gen.LockAcquireScript, &gen.LockExtendScript, &gen.LockLeaveScript, &gen.LockReleaseScript, &gen.LockTryScript,
	&gen.LockForceScript, &gen.LockInfoScript, &gen.LockNoteScript, &gen.LockFenceScript, &gen.LockAcquireAllScript,
	&gen.QueueAckScript, &gen.QueueBuryScript, &gen.QueueCancelScript, &gen.QueueControlScript, &gen.QueueExtendScript,
	&gen.QueueFindScript, &gen.QueueMendScript, &gen.QueueNackScript,
	&gen.QueuePeekScript, &gen.QueuePushScript, &gen.QueuePushBareScript, &gen.QueuePushManyScript,
	&gen.QueuePushOneScript, &gen.QueueReclaimScript, &gen.QueueReportScript, &gen.QueueRequeueScript,
	&gen.QueueRescheduleScript,
	&gen.QueueStatsScript, &gen.QueueTakeScript, &gen.QueueTrimScript,
	&gen.SemAcquireScript, &gen.SemExtendScript, &gen.SemInfoScript, &gen.SemReleaseScript, &gen.SemResizeScript,
})

type Recorder struct {
	Keys   []string
	Cancel func() // stops the runtime's retries
}

func (r *Recorder) DialHook(next redis.DialHook) redis.DialHook { return next }
func (r *Recorder) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (r *Recorder) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		args := cmd.Args()
		n, err := strconv.Atoi(args[2].(string))
		for _, k := range args[3 : 3+n] {
			if text, ok := k.(*string); ok {
				k = *text
			}
			r.Keys = append(r.Keys, k.(string))
		}
		r.Cancel()
		return errors.Join(err, errors.New("recorded"))
	}
}

// ScriptCall is one call of a script on prepared data, for the tests that put
// every script under the same fault.
type ScriptCall struct {
	Script *lua.Script
	// Run calls the script and returns its reply as text.
	Run func(ctx context.Context, c lua.Client, k string) (string, error)
	// Prepare stores the data for the call; k is the test's tag.
	Prepare func(ctx context.Context, c *redis.Client, k string) error
	// Unread are declared keys that this call does not read.
	Unread []string
}

func None(context.Context, *redis.Client, string) error { return nil }

func ScriptCalls() []ScriptCall {
	show := func(v any, err error) (string, error) { return fmt.Sprintf("%+v", v), err }
	return append(append(PeekCalls(), RpcCalls()...), []ScriptCall{
		{&gen.QueuePushScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			p := PushKeys("{" + k + "}")
			v, err := gen.QueuePush(ctx, c, gen.QueuePushParams{Options: "{" + k + "}:o", Ready: p.Ready,
				Scheduled: p.Scheduled, Bodies: p.Bodies, Leases: p.Leases, Failures: "{" + k + "}:n",
				Unique: p.Unique, Expiry: p.Expiry, Control: p.Control, Wake: p.Wake, Receipt: "{" + k + "}:i:1",
				Keep: time.Minute,
				Jobs: []gen.QueuePushJob{{ID: "one", Body: []byte("1")}}})
			return fmt.Sprint(v.Ready, v.Scheduled, v.Duplicates), err
		}, func(ctx context.Context, c *redis.Client, k string) error {
			c.HSet(ctx, "{"+k+"}:b", "there", "body")
			return c.RPush(ctx, "{"+k+"}:r", "1:there").Err()
		}, []string{"scheduled", "leases", "unique", "expiry", "options"}},
		{&gen.QueuePushScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			r, s, b, l, n, _ := QueueKeys(k)
			v, err := gen.QueuePush(ctx, c, gen.QueuePushParams{Options: "{" + k + "}:o", Ready: r, Scheduled: s,
				Bodies: b, Leases: l, Failures: n,
				Unique: "{" + k + "}:u", Expiry: "{" + k + "}:ux", Control: "{" + k + "}:c", Wake: "{" + k + "}:w",
				Receipt: "{" + k + "}:i:1", Keep: time.Minute,
				Jobs: []gen.QueuePushJob{{ID: "a", Body: []byte("A")}, {ID: "b", Due: lab.Future, Body: []byte("B"),
					Extra: "60000:4:name0:3:0:0:"}, {ID: "a"}}})
			return fmt.Sprint(v.Ready, v.Scheduled, v.Duplicates), err
		}, func(ctx context.Context, c *redis.Client, k string) error {
			// An expired holder, and a limit that is not reached.
			c.HSet(ctx, "{"+k+"}:u", "k:name", "gone", "j:gone", "name")
			c.ZAdd(ctx, "{"+k+"}:ux", redis.Z{Score: lab.Past, Member: "name"})
			return c.HSet(ctx, "{"+k+"}:c", "limit", "10").Err()
		}, nil},
		{&gen.QueuePushOneScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			p := PushKeys("{" + k + "}")
			v, err := gen.QueuePushOne(ctx, c, gen.QueuePushOneParams{Ready: p.Ready, Bodies: p.Bodies,
				Control: p.Control, Wake: p.Wake,
				Finished: "{" + k + "}:f", ID: "one", Body: []byte("1")})
			return fmt.Sprint(v.Limited), err
		}, func(ctx context.Context, c *redis.Client, k string) error {
			c.ZAdd(ctx, "{"+k+"}:f", redis.Z{Score: lab.Past, Member: "another"})
			c.HSet(ctx, "{"+k+"}:c", "dead_bytes", "1")
			return c.ZAdd(ctx, "{"+k+"}:w", redis.Z{Score: lab.Future, Member: "waiter"}).Err()
		}, nil},
		{&gen.QueuePushBareScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			p := PushKeys("{" + k + "}")
			v, err := gen.QueuePushBare(ctx, c, gen.QueuePushBareParams{Ready: p.Ready, Bodies: p.Bodies,
				Control: p.Control, Wake: p.Wake,
				Finished: "{" + k + "}:f", Jobs: []gen.QueuePushBareJob{{ID: "one", Body: []byte("1")},
					{ID: "two", Body: []byte("2")}}})
			return fmt.Sprint(v.Limited), err
		}, func(ctx context.Context, c *redis.Client, k string) error {
			c.ZAdd(ctx, "{"+k+"}:f", redis.Z{Score: lab.Past, Member: "another"})
			c.HSet(ctx, "{"+k+"}:b", "there", "body")
			c.RPush(ctx, "{"+k+"}:r", "1:there")
			c.HSet(ctx, "{"+k+"}:c", "dead_bytes", "1")
			return c.ZAdd(ctx, "{"+k+"}:w", redis.Z{Score: lab.Future, Member: "waiter"}).Err()
		}, nil},
		{&gen.QueuePushManyScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			v, err := gen.QueuePushMany(ctx, c, gen.QueuePushManyParams{Receipt: "{" + k + "}{}:i:1", Keep: time.Minute,
				Queues: []gen.QueuePushManyQueue{PushKeys("{" + k + "}"), PushKeys("{" + k + "}{second}")},
				Jobs: []gen.QueuePushManyJob{{ID: "a", Body: make([]byte, 100)},
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
					{ID: "b", Fence: lab.LongLease}}}))
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
		{&gen.QueueStatsScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			r, s, _, l, _, d := QueueKeys(k)
			v, err := gen.QueueStats(ctx, c, gen.QueueStatsParams{Ready: r, Scheduled: s, Leases: l, Dead: d,
				Control: "{" + k + "}:c"})
			return fmt.Sprint(v.Ready, v.Scheduled, v.Leased, v.Dead), err
		}, Leased, nil},
		{&gen.DelayedPromoteScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			r, s, _, _, _, _ := QueueKeys(k)
			v, err := gen.DelayedPromote(ctx, c, gen.DelayedPromoteParams{Scheduled: s, Ready: r, Wake: "{" + k + "}:w",
				Max: 10, Waiter: "me", Wait: time.Minute})
			return fmt.Sprint(v.Moved), err
		}, func(ctx context.Context, c *redis.Client, k string) error {
			_, s, _, _, _, _ := QueueKeys(k)
			return c.ZAdd(ctx, s, redis.Z{Score: lab.Past, Member: "a"}).Err()
		}, nil},
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
		{&gen.QueueReportScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			p := "{" + k + "}:"
			return show(gen.QueueReport(ctx, c, gen.QueueReportParams{Queues: p + "names", Workers: p + "workers",
				About: p + "about", Counts: p + "n",
				Process: "me", Number: 2, Lease: time.Minute, Description: []byte("{}"),
				Entries: []gen.QueueReportEntry{{Queue: "{q}", Processed: 1, Failed: 2, Dead: 3, Expired: 4}}}))
		}, func(ctx context.Context, c *redis.Client, k string) error {
			c.HSet(ctx, "{"+k+"}:about", "me", "1 {}", "gone", "7 {}")
			c.ZAdd(ctx, "{"+k+"}:names", redis.Z{Score: 1, Member: "{old}"})
			return c.ZAdd(ctx, "{"+k+"}:workers", redis.Z{Score: lab.Past, Member: "gone"}).Err()
		}, nil},
		{&gen.QueueFindScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			_, s, b, l, n, d := QueueKeys(k)
			return show(gen.QueueFind(ctx, c, gen.QueueFindParams{Scheduled: s, Leases: l, Dead: d, Bodies: b,
				Failures: n,
				Options:  "{" + k + "}:o", Bytes: 1000, IDs: []string{"a", "none"}}))
		}, Buried, nil},
		{&gen.QueueTrimScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			_, _, b, _, n, d := QueueKeys(k)
			return show(gen.QueueTrim(ctx, c, gen.QueueTrimParams{Finished: "{" + k + "}:f", Unique: "{" + k + "}:u",
				Options: "{" + k + "}:o", Dead: d, Bodies: b, Failures: n, Control: "{" + k + "}:c", Keep: 1, Bytes: -1,
				Age: -1, Max: 10}))
		}, Buried, nil},
		{&gen.QueueMendScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			r, s, b, l, n, d := QueueKeys(k)
			return show(gen.QueueMend(ctx, c, gen.QueueMendParams{Options: "{" + k + "}:o", Finished: "{" + k + "}:f",
				Ready: r, Scheduled: s, Bodies: b, Leases: l, Failures: n, Dead: d,
				Unique: "{" + k + "}:u", Expiry: "{" + k + "}:ux", Control: "{" + k + "}:c", Wake: "{" + k + "}:w",
				Mend: true, From: 12, To: 8, Suspects: []gen.QueueMendSuspect{{ID: "lost"}, {ID: "a"},
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
	}...)
}

// KeysOf returns the keys that a call passes, recorded by a client that sends nothing.
func KeysOf(ctx context.Context, t *testing.T, call ScriptCall, k string) []string {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1})
	lua.Direct(c) // the hook ends the context of the call itself
	defer c.Close()
	ctx, cancel := context.WithCancel(ctx)
	rec := &Recorder{Cancel: cancel}
	c.AddHook(rec)
	_, err := call.Run(ctx, c, k)
	require.ErrorIs(t, err, context.Canceled)
	require.NotEmpty(t, rec.Keys)
	return rec.Keys
}
