package sidekiq_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/compat/sidekiq/internal/script"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// clientCall is one call of a script of the client side on prepared data; p is the prefix of its keys.
type clientCall struct {
	script  *lua.Script
	prepare func(ctx context.Context, c redis.Cmdable, p string) error
	run     func(ctx context.Context, c lua.Client, p string) (any, error)
	keys    string // names of the keys of the call
	repeat  any    // the reply to a retry, if it differs
	skips   string // keys whose type stops only a part of the call
}

const (
	readyHead = `{"queue":"a","args":[1]`
	laterHead = `{"queue":"a","args":[2]`
	dueRetry  = `{"queue":"a","enqueued_at":1.5,"n":1}`
	dueOther  = `{"queue":"b","n":2}`
	dueSecond = `{"queue":"a","n":3}`
)

// pushCall pushes to two queues, one of them new, and to the schedule.
func pushPlan(p string) script.PushParams {
	return script.PushParams{
		Names: p + "queues", Schedule: p + "schedule", Queues: []string{p + "queue:a", p + "queue:b"},
		Skip: int64(len(p + "queue:")),
		Plan: "1:1:;1:1:+100;1:1:=;2:1:;2:1:+200;",
		Jobs: [][]byte{[]byte(readyHead), []byte(laterHead),
			[]byte(`{"done":1}`), []byte(`{"queue":"b"`), []byte(`{"queue":"b","l":1`)},
	}
}

func oldQueue(ctx context.Context, c redis.Cmdable, p string) error {
	return errors.Join(c.LPush(ctx, p+"queue:a", "old1", "old2").Err(), c.SAdd(ctx, p+"queues", "a").Err(),
		c.ZAdd(ctx, p+"schedule", redis.Z{Score: 1, Member: "old3"}).Err())
}

func dueMembers(ctx context.Context, c redis.Cmdable, p string) error {
	return errors.Join(oldQueue(ctx, c, p), c.ZAdd(ctx, p+"retry",
		redis.Z{Score: 1, Member: dueRetry}, redis.Z{Score: 2, Member: dueOther},
		redis.Z{Score: 3, Member: dueSecond}, redis.Z{Score: 1e11, Member: `{"queue":"a","off":1}`}).Err())
}

func clientCalls() []clientCall {
	return []clientCall{
		{script: &script.PushScript, keys: "queues schedule queue:a queue:b", prepare: oldQueue,
			run: func(ctx context.Context, c lua.Client, p string) (any, error) {
				r, err := script.Push(ctx, c, pushPlan(p))
				r.Now = 0
				return r, err
			}},
		{script: &script.PushOnceScript, keys: "receipt queues schedule queue:a queue:b", prepare: oldQueue,
			run: func(ctx context.Context, c lua.Client, p string) (any, error) {
				q := pushPlan(p)
				r, err := script.PushOnce(ctx, c, script.PushOnceParams{Receipt: p + "receipt", Keep: time.Hour,
					Names:    q.Names,
					Schedule: q.Schedule, Queues: q.Queues, Skip: q.Skip, Plan: q.Plan,
					Digest: "digest", Jobs: q.Jobs})
				r.Now = 0
				return r, err
			}},
		{script: &script.DueScript, keys: "retry", prepare: dueMembers,
			run: func(ctx context.Context, c lua.Client, p string) (any, error) {
				r, err := script.Due(ctx, c, script.DueParams{Set: p + "retry", Max: 3, Bytes: 1000})
				r.Now = 0
				return r, err
			}},
		{script: &script.MoveScript, keys: "retry queues queue:a queue:b", skips: "queue:a queue:b",
			prepare: dueMembers,
			run: func(ctx context.Context, c lua.Client, p string) (any, error) {
				r, err := script.Move(ctx, c, script.MoveParams{Set: p + "retry", Names: p + "queues",
					Queues: []string{p + "queue:a", p + "queue:b"}, Skip: int64(len(p + "queue:")),
					Plan: places(1, 27, 30, 2, 18, 18, 1, 18, 18, 1, 20, 20, 2, 1, 1),
					Members: [][]byte{[]byte(dueRetry), []byte(dueOther), []byte(dueSecond),
						[]byte(`{"queue":"a","off":1}`),
						[]byte("absent")}})
				r.Now = 0
				return r, err
			}, repeat: script.MoveResult{}},
		{script: &script.QuarantineScript, keys: "retry retry:quarantine", prepare: dueMembers,
			run: func(ctx context.Context, c lua.Client, p string) (any, error) {
				return script.Quarantine(ctx, c, script.QuarantineParams{Set: p + "retry",
					Quarantine: p + "retry:quarantine",
					Members:    [][]byte{[]byte(dueRetry), []byte("absent"), []byte(dueOther)}})
			}, repeat: int64(0)},
		{script: &script.RescheduleScript, keys: "retry receipt", prepare: dueMembers,
			run: func(ctx context.Context, c lua.Client, p string) (any, error) {
				return script.Reschedule(ctx, c, script.RescheduleParams{Set: p + "retry", Receipt: p + "receipt",
					Member: []byte(dueRetry), Due: "77.5"})
			}},
		{script: &script.DeleteScript, keys: "retry", prepare: dueMembers,
			run: func(ctx context.Context, c lua.Client, p string) (any, error) {
				return script.Delete(ctx, c, script.DeleteParams{Set: p + "retry", Member: []byte(dueRetry)})
			}},
		{script: &script.StatsScript, keys: "schedule retry dead processes processed failed",
			prepare: dueMembers,
			run: func(ctx context.Context, c lua.Client, p string) (any, error) {
				r, err := script.Stats(ctx, c, script.StatsParams{Schedule: p + "schedule", Retry: p + "retry",
					Dead:      p + "dead",
					Processes: p + "processes", Processed: p + "processed", Failed: p + "failed",
					Queues: []string{p + "queue:a", p + "queue:b"}})
				r.Now = 0
				return r, err
			}},
	}
}

func eachClientCall(t *testing.T, test func(t *testing.T, ctx context.Context, call clientCall)) {
	t.Helper()
	for _, call := range clientCalls() {
		t.Run(call.script.Name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			test(t, ctx, call)
		})
	}
}

// state returns the data of the call's keys, without times.
func (call *clientCall) state(ctx context.Context, c *redis.Client, p string) map[string][]string {
	out := make(map[string][]string)
	for _, name := range strings.Fields(call.keys) {
		key := p + name
		var all []string
		switch c.Type(ctx, key).Val() {
		case "list":
			all = c.LRange(ctx, key, 0, -1).Val()
		case "set":
			all = c.SMembers(ctx, key).Val()
			slices.Sort(all)
		case "zset":
			for _, z := range c.ZRangeWithScores(ctx, key, 0, -1).Val() {
				all = append(all, fmt.Sprint(z.Member))
			}
		case "string", "hash":
			all = []string{c.Type(ctx, key).Val()}
		}
		for i := range all {
			all[i] = unstamped(all[i])
		}
		if all != nil {
			out[name] = all
		}
	}
	return out
}

// After lost replies, a script that may be retried leaves the same state; one that may not runs once and returns
// ErrOutcomeUnknown.
func TestClientScriptsWithLostReplies(t *testing.T) {
	t.Parallel()
	eachClientCall(t, func(t *testing.T, ctx context.Context, call clientCall) {
		direct := luatomictest.Client(t)
		proxy := luatomictest.NewLossyProxy(t, luatomictest.URL(t))
		opts, err := redis.ParseURL(luatomictest.URL(t))
		require.NoError(t, err)
		opts.Network, opts.Addr = "tcp", proxy.Addr()
		c := redis.NewClient(opts)
		defer func() { require.NoError(t, c.Close()) }()
		clean := luatomictest.Namespace(t) + ":"
		require.NoError(t, call.prepare(ctx, direct, clean))
		want, err := call.run(ctx, direct, clean)
		require.NoError(t, err)
		for lost := range 5 {
			p := luatomictest.Namespace(t) + ":"
			require.NoError(t, call.prepare(ctx, direct, p))
			sent := lab.Sent(call.script)
			before := proxy.Executed(sent)
			proxy.Drop(lost, sent)
			got, err := call.run(ctx, c, p)
			ran := proxy.Executed(sent) - before
			if lost > 0 && call.script.Retry == lua.RetryNever {
				require.ErrorIs(t, err, lua.ErrOutcomeUnknown)
				require.Equal(t, 1, ran)
				proxy.Drop(0, sent)
			} else {
				require.NoError(t, err)
				require.Equal(t, lost+1, ran)
				if lost > 0 && call.repeat != nil {
					want = call.repeat
				}
				require.Equal(t, want, got)
			}
			require.Equal(t, call.state(ctx, direct, clean), call.state(ctx, direct, p))
		}
	})
}

// The error names a key of another type, and nothing changes.
func TestClientScriptsWithKeysOfAnotherType(t *testing.T) {
	t.Parallel()
	eachClientCall(t, func(t *testing.T, ctx context.Context, call clientCall) {
		c := luatomictest.Client(t)
		for _, key := range strings.Fields(call.keys) {
			if slices.Contains(strings.Fields(call.skips), key) {
				continue
			}
			p := luatomictest.Namespace(t) + ":"
			require.NoError(t, call.prepare(ctx, c, p))
			require.NoError(t, c.Del(ctx, p+key).Err())
			require.NoError(t, c.HSet(ctx, p+key, "f", "v").Err())
			before := call.state(ctx, c, p)
			_, err := call.run(ctx, c, p)
			require.ErrorIs(t, err, lua.ErrWrongType, key)
			require.ErrorContains(t, err, p+key)
			require.Equal(t, before, call.state(ctx, c, p), key)
		}
	})
}

var clientContract = regexp.MustCompile(`(?m)^---@(?:contract +(\S+)|(readonly)\b)`)

// withFailure makes the n-th write of a script fail, by a prefix on its first line, and stops its clock. The key
// p+"reached" shows that the write was reached.
func withFailure(source string, n int, p string) string {
	return fmt.Sprintf(`local redis = (function(real) `+
		`local n, writes = 0, {set=1,del=1,zadd=1,zrem=1,lpush=1,ltrim=1,sadd=1,srem=1,`+
		`hset=1,hdel=1,rpush=1,incr=1,incrby=1,expire=1,zremrangebyscore=1,zremrangebyrank=1} `+
		`local function faulty(f, raise) return function(c, ...) `+
		`if writes[string.lower(c)] then n = n + 1 if n == %d then real.call('SET', '%sreached', 1) `+
		`local e = {err = 'ERR failpoint ' .. c} if raise then error(e) end return e end end return f(c, ...) end end `+
		`return {call = faulty(real.call, true), pcall = faulty(real.pcall, false)} end)(redis) `, n, p) + source
}

// lastCall keeps the arguments of a command and stops it.
type lastCall struct {
	redis.UniversalClient
	end  func()
	args []any
}

var errKept = errors.New("kept")

func (l *lastCall) Process(_ context.Context, cmd redis.Cmder) error {
	l.args = cmd.Args()
	l.end()
	cmd.SetErr(errKept)
	return errKept
}

// An error at any write leaves what the contract allows, and a retry leads to the state of a run without an error.
func TestClientScriptsWithAFailureAtEachWrite(t *testing.T) {
	t.Parallel()
	eachClientCall(t, func(t *testing.T, ctx context.Context, call clientCall) {
		c := luatomictest.Client(t)
		found := clientContract.FindStringSubmatch(*call.script.Source)
		require.NotNil(t, found)
		var want map[string][]string
		for n := 0; ; n++ {
			p := luatomictest.Namespace(t) + ":"
			require.NoError(t, call.prepare(ctx, c, p))
			before := call.state(ctx, c, p)
			once, end := context.WithCancel(ctx)
			kept := &lastCall{UniversalClient: c, end: end}
			_, err := call.run(once, kept, p)
			require.ErrorIs(t, err, errKept)
			eval := append([]any{"EVAL", withFailure(lab.Text(c, call.script), n, p)}, kept.args[2:]...)
			err = c.Do(ctx, eval...).Err()
			reached := c.Del(ctx, p+"reached").Val() == 1
			after := call.state(ctx, c, p)
			switch {
			case n == 0:
				require.NoError(t, err)
				want = after
				continue
			case !reached:
				t.Logf("%s: %d failpoints", found[0], n-1)
				return
			case err == nil:
				// it returns the queue that cannot be written to
				require.Equal(t, "move", call.script.Name, "failpoint %d is hidden", n)
			default:
				require.ErrorContains(t, err, "failpoint")
			}
			require.Empty(t, found[2], "a script that only reads has a write")
			if found[1] == "all-or-nothing" {
				require.Equal(t, before, after, "failpoint %d", n)
			}
			nothingIsLost(t, before, after, n)
			_, err = call.run(ctx, c, p)
			require.NoError(t, err)
			again := call.state(ctx, c, p)
			if found[1] == "all-or-nothing" {
				require.Equal(t, want, again, "failpoint %d", n)
			}
			nothingIsLost(t, want, again, n)
		}
	})
}

// nothingIsLost requires every job in one of the keys; in its queue it may have its new time.
func nothingIsLost(t *testing.T, before, after map[string][]string, n int) {
	t.Helper()
	all := fmt.Sprint(after)
	for key, items := range before {
		if key == "queues" {
			continue
		}
		for _, item := range items {
			moved := strings.TrimSuffix(item, "}")
			require.Contains(t, all, moved, "failpoint %d: of %s", n, key)
		}
	}
}

// One read is bounded in bytes, so that no reply is as large as a thousand large jobs.
func TestDueStopsAtItsBytes(t *testing.T) {
	t.Parallel()
	f := newFleet(t, sidekiq.Options{})
	f.schedule(sidekiq.Retry, 1, "a", strings.Repeat("b", 600), strings.Repeat("c", 600), strings.Repeat("d", 600))
	r, err := script.Due(f.ctx, f.client, script.DueParams{Set: f.key("retry"), Max: 10, Bytes: 1000})
	require.NoError(t, err)
	require.Len(t, r.Members, 3, "a small one lets it ask for three: of these it returns none beyond its bytes")

	f.schedule(sidekiq.Schedule, 1, strings.Repeat("a", 60), strings.Repeat("b", 60), strings.Repeat("c", 60))
	for bytes, want := range map[int64]int{1: 1, 60: 1, 61: 1, 120: 2, 1000: 3} {
		r, err := script.Due(f.ctx, f.client, script.DueParams{Set: f.key("schedule"), Max: 10, Bytes: bytes})
		require.NoError(t, err)
		require.Len(t, r.Members, want)
		next, there := r.Next.Get()
		require.Equal(t, want < 3, there)
		if there {
			at, err := strconv.ParseFloat(next, 64)
			require.NoError(t, err)
			require.InDelta(t, float64(r.Now)/1e6, at, 0.001, "more are due, so the next poll is")
		}
	}
}
