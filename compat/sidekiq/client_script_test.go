package sidekiq_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
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
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// clientCall is one call of a script of the client side on prepared data; p stands before its keys.
type clientCall struct {
	script  *lua.Script
	prepare func(ctx context.Context, c redis.Cmdable, p string) error
	run     func(ctx context.Context, c lua.Client, p string) (any, error)
	keys    string // names of the keys of the call
	repeat  any    // what a repeat answers, if that is another answer
	skips   string // keys whose type stops a part of the call only
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
		Names: p + "queues", Schedule: p + "schedule", Queues: []string{p + "queue:a", p + "queue:b"}, Skip: int64(len(p + "queue:")),
		Plan: "1:1:;1:1:+100;1:1:=;2:1:;2:1:+200;", Jobs: [][]byte{[]byte(readyHead), []byte(laterHead), []byte(`{"done":1}`), []byte(`{"queue":"b"`), []byte(`{"queue":"b","l":1`)},
	}
}

func oldQueue(ctx context.Context, c redis.Cmdable, p string) error {
	return errors.Join(c.LPush(ctx, p+"queue:a", "old1", "old2").Err(), c.SAdd(ctx, p+"queues", "a").Err(), c.ZAdd(ctx, p+"schedule", redis.Z{Score: 1, Member: "old3"}).Err())
}

func dueMembers(ctx context.Context, c redis.Cmdable, p string) error {
	return errors.Join(oldQueue(ctx, c, p), c.ZAdd(ctx, p+"retry", redis.Z{Score: 1, Member: dueRetry}, redis.Z{Score: 2, Member: dueOther},
		redis.Z{Score: 3, Member: dueSecond}, redis.Z{Score: 1e11, Member: `{"queue":"a","off":1}`}).Err())
}

func clientCalls() []clientCall {
	return []clientCall{
		{script: &script.PushScript, keys: "queues schedule queue:a queue:b", prepare: oldQueue, run: func(ctx context.Context, c lua.Client, p string) (any, error) {
			r, err := script.Push(ctx, c, pushPlan(p))
			r.Now = 0
			return r, err
		}},
		{script: &script.PushOnceScript, keys: "receipt queues schedule queue:a queue:b", prepare: oldQueue, run: func(ctx context.Context, c lua.Client, p string) (any, error) {
			q := pushPlan(p)
			r, err := script.PushOnce(ctx, c, script.PushOnceParams{Receipt: p + "receipt", Keep: time.Hour, Names: q.Names, Schedule: q.Schedule, Queues: q.Queues, Skip: q.Skip, Plan: q.Plan, Jobs: q.Jobs})
			r.Now = 0
			return r, err
		}},
		{script: &script.DueScript, keys: "retry", prepare: dueMembers, run: func(ctx context.Context, c lua.Client, p string) (any, error) {
			r, err := script.Due(ctx, c, script.DueParams{Set: p + "retry", Max: 2, Bytes: 1000})
			r.Now = 0
			return r, err
		}},
		{script: &script.MoveScript, keys: "retry queues queue:a queue:b", skips: "queue:a queue:b", prepare: dueMembers, run: func(ctx context.Context, c lua.Client, p string) (any, error) {
			r, err := script.Move(ctx, c, script.MoveParams{Set: p + "retry", Names: p + "queues", Queues: []string{p + "queue:a", p + "queue:b"}, Skip: int64(len(p + "queue:")),
				Plan: "1:27:30;2:18:18;1:18:18;1:20:20;2:1:1;", Members: [][]byte{[]byte(dueRetry), []byte(dueOther), []byte(dueSecond), []byte(`{"queue":"a","off":1}`), []byte("gone")}})
			r.Now = 0
			return r, err
		}, repeat: script.MoveResult{}},
		{script: &script.QuarantineScript, keys: "retry retry:quarantine", prepare: dueMembers, run: func(ctx context.Context, c lua.Client, p string) (any, error) {
			return script.Quarantine(ctx, c, script.QuarantineParams{Set: p + "retry", Quarantine: p + "retry:quarantine", Members: [][]byte{[]byte(dueRetry), []byte("gone"), []byte(dueOther)}})
		}, repeat: int64(0)},
		{script: &script.RescheduleScript, keys: "retry", prepare: dueMembers, run: func(ctx context.Context, c lua.Client, p string) (any, error) {
			return script.Reschedule(ctx, c, script.RescheduleParams{Set: p + "retry", Member: []byte(dueRetry), Due: "77.5"})
		}},
		{script: &script.DeleteScript, keys: "retry", prepare: dueMembers, run: func(ctx context.Context, c lua.Client, p string) (any, error) {
			return script.Delete(ctx, c, script.DeleteParams{Set: p + "retry", Member: []byte(dueRetry)})
		}},
		{script: &script.StatsScript, keys: "schedule retry dead processes processed failed queue:a queue:b", prepare: dueMembers, run: func(ctx context.Context, c lua.Client, p string) (any, error) {
			r, err := script.Stats(ctx, c, script.StatsParams{Schedule: p + "schedule", Retry: p + "retry", Dead: p + "dead", Processes: p + "processes", Processed: p + "processed", Failed: p + "failed",
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

// state is what the keys of the call hold, without times.
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

func (call *clientCall) verb() string {
	if call.script.ReadOnly {
		return "EVALSHA_RO"
	}
	return "EVALSHA"
}

// A script that may be repeated gives the same state, whatever number of replies is lost; one that may not runs once and says so.
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
			sent := luatomictest.Command(call.verb(), call.script.SHA)
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

// A key of another type is named, and nothing changes.
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

// withFailure makes the n-th write of a script fail, by a prefix on its first line, and stops its clock. The key p+"reached" says that it came to that.
func withFailure(source string, n int, p string) string {
	return fmt.Sprintf(`local redis = (function(real) local n, writes = 0, {set=1,del=1,zadd=1,zrem=1,lpush=1,ltrim=1,sadd=1,srem=1,`+
		`hset=1,hdel=1,rpush=1,incr=1,incrby=1,expire=1,zremrangebyscore=1,zremrangebyrank=1} `+
		`local function faulty(f, raise) return function(c, ...) if writes[string.lower(c)] then n = n + 1 if n == %d then real.call('SET', '%sreached', 1) `+
		`local e = {err = 'ERR failpoint ' .. c} if raise then error(e) end return e end end return f(c, ...) end end `+
		`return {call = faulty(real.call, true), pcall = faulty(real.pcall, false)} end)(redis) `, n, p) + source
}

// lastCall keeps the arguments of what is sent through it, and ends the call.
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

// An error at any write leaves behind what the contract says, and a repeat brings the state of a run without one.
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
			eval := append([]any{"EVAL", withFailure(*call.script.Source, n, p)}, kept.args[2:]...)
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
				require.Equal(t, "move", call.script.Name, "failpoint %d is hidden", n) // it tells of a queue that cannot be written to
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

// nothingIsLost wants every job in some place; in its queue it may have its new time.
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

// A server that forgets its scripts all the time gets them again, and each push happens once.
func TestPushAndMoveUnderScriptFlush(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	r := luatomictest.StartServer(t).Client()
	d, err := sidekiq.New(r, nil)
	require.NoError(t, err)
	stop, flushed := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		for {
			select {
			case <-stop:
				flushed <- n
				return
			default:
				if r.ScriptFlush(ctx).Err() == nil {
					n++
				}
			}
		}
	}()
	const n = 100
	for i := range n {
		_, err := d.PushBulk(ctx, []sidekiq.Job{{Class: "W", Args: args(i)}, {Class: "W", Args: args(i), In: time.Microsecond}})
		require.NoError(t, err)
	}
	moved := 0
	for moved < n {
		got, err := d.MoveDue(ctx, sidekiq.Schedule, 0)
		require.NoError(t, err)
		moved += got.Moved
	}
	close(stop)
	require.Positive(t, <-flushed)
	require.EqualValues(t, 2*n, r.LLen(ctx, "queue:default").Val())
}

// A user who may not remove from the set moves nothing: else each look would push the same jobs again.
func TestAMoverWithoutTheRightToRemoveAddsNothing(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	server := luatomictest.StartServer(t)
	r := server.Client()
	require.NoError(t, r.Do(ctx, "ACL", "SETUSER", "limited", "on", ">pw", "~*", "+@all", "-zrem").Err())
	require.NoError(t, dueMembers(ctx, r, ""))
	opts := *r.Options()
	opts.Username, opts.Password = "limited", "pw"
	limited := redis.NewClient(&opts)
	defer func() { require.NoError(t, limited.Close()) }()
	d, err := sidekiq.New(limited, nil)
	require.NoError(t, err)
	_, err = d.MoveDue(ctx, sidekiq.Retry, 0)
	require.ErrorIs(t, err, lua.ErrExecutedInPart)
	require.EqualValues(t, 2, r.LLen(ctx, "queue:a").Val())
	require.Zero(t, r.Exists(ctx, "queue:b").Val())
	require.EqualValues(t, 4, r.ZCard(ctx, "retry").Val())
}

// A user who may not use one of the commands gets nothing in: what was written before is taken back.
func TestAPushThatMayNotWriteAllLeavesNothing(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	r := luatomictest.StartServer(t).Client()
	require.NoError(t, r.Do(ctx, "ACL", "SETUSER", "limited", "on", ">pw", "~*", "+@all", "-zadd").Err())
	opts := *r.Options()
	opts.Username, opts.Password = "limited", "pw"
	limited := redis.NewClient(&opts)
	defer func() { require.NoError(t, limited.Close()) }()
	d, err := sidekiq.New(limited, nil)
	require.NoError(t, err)
	_, err = d.Push(ctx, sidekiq.Job{Class: "W"})
	require.NoError(t, err)
	_, err = d.PushBulk(ctx, []sidekiq.Job{{Class: "W"}, {Class: "W", Queue: "b"}, {Class: "W", In: time.Hour}})
	require.ErrorIs(t, err, lua.ErrExecutedInPart)
	require.EqualValues(t, 1, r.LLen(ctx, "queue:default").Val())
	require.Zero(t, r.Exists(ctx, "queue:b", "schedule").Val())
	require.Equal(t, []string{"default"}, r.SMembers(ctx, "queues").Val())
}

// What a key of another type refuses was not written for a moment: no replica and no log has heard of it.
func TestAPushIsCheckedBeforeItWrites(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	r := luatomictest.StartServer(t).Client()
	d, err := sidekiq.New(r, nil)
	require.NoError(t, err)
	require.NoError(t, r.Set(ctx, "queue:z", "x", 0).Err())
	jobs := []sidekiq.Job{{Class: "W"}, {Class: "W", Queue: "z"}}
	changes := func() string {
		for line := range strings.Lines(r.Info(ctx, "persistence").Val()) {
			if strings.HasPrefix(line, "rdb_changes_since_last_save:") {
				return line
			}
		}
		return ""
	}
	refused := func() {
		before := changes()
		require.NotEmpty(t, before)
		_, err = d.PushBulk(ctx, jobs)
		require.ErrorIs(t, err, lua.ErrWrongType)
		_, err = d.PushOnce(ctx, "t", time.Minute, jobs)
		require.ErrorIs(t, err, lua.ErrWrongType)
		require.Equal(t, before, changes())
	}
	refused()
	require.NoError(t, r.Rename(ctx, "queue:z", "schedule").Err())
	jobs[1].In = time.Hour
	refused()
}

// One read is bounded in bytes, so that no reply is as large as a thousand large jobs.
func TestDueStopsAtItsBytes(t *testing.T) {
	t.Parallel()
	f := newFleet(t, sidekiq.Options{})
	f.schedule(sidekiq.Schedule, 1, strings.Repeat("a", 60), strings.Repeat("b", 60), strings.Repeat("c", 60))
	for bytes, want := range map[int64]int{1: 1, 60: 1, 61: 2, 120: 2, 1000: 3} {
		r, err := script.Due(f.ctx, f.client, script.DueParams{Set: f.key("schedule"), Max: 10, Bytes: bytes})
		require.NoError(t, err)
		require.Len(t, r.Members, want)
		next, there := r.Next.Get()
		require.Equal(t, want < 3, there)
		if there {
			require.Equal(t, fmt.Sprint(want+1), next)
		}
	}
}

// The time that the scripts write has the form that Ruby gives the same float, whatever its last digits are.
func TestStampsAreWrittenAsRubyDoes(t *testing.T) {
	t.Parallel()
	f := newFleet(t, sidekiq.Options{})
	f.schedule(sidekiq.Retry, 1, dueOther)
	for micros, want := range map[string]string{"0": "1795230010.0", "29114": "1795230010.029114", "29000": "1795230010.029", "100000": "1795230010.1", "999999": "1795230010.999999", "7": "1795230010.000007"} {
		milliseconds := fmt.Sprintf("1795230010%03d", atoi(t, micros)/1000)
		clock := `local redis = (function(real) return {pcall = real.pcall, call = function(c, ...) if c == 'TIME' then return {'1795230010', '` + micros + `'} end return real.call(c, ...) end} end)(redis) `
		for unit, stamp := range []string{want, milliseconds} {
			for _, call := range []struct {
				source *string
				keys   []string
				args   []any
			}{
				{script.PushScript.Source, []string{"queues", "schedule", "queue:b"}, []any{f.key("queue:"), unit, 5000, "1:1:;", strings.TrimSuffix(dueOther, "}")}},
				{script.PushOnceScript.Source, []string{"receipt" + micros + fmt.Sprint(unit), "queues", "schedule", "queue:b"}, []any{60000, f.key("queue:"), unit, "1:1:;", strings.TrimSuffix(dueOther, "}")}},
				{script.MoveScript.Source, []string{"retry", "queues", "queue:b"}, []any{f.key("queue:"), unit, "1:18:18;", dueOther}},
			} {
				for i := range call.keys {
					call.keys[i] = f.key(call.keys[i])
				}
				for i, a := range call.args {
					if a == f.key("queue:") {
						call.args[i] = len(f.key("queue:"))
					}
				}
				f.schedule(sidekiq.Retry, 1, dueOther)
				require.NoError(t, f.client.Eval(f.ctx, clock+*call.source, call.keys, call.args...).Err())
				require.Equal(t, strings.TrimSuffix(dueOther, "}")+`,"enqueued_at":`+stamp+"}", f.client.LPop(f.ctx, f.key("queue:b")).Val())
			}
		}
	}
}

// A guess of the server's time stays where it is right to the slack, and is written anew where it is not.
func TestAGuessIsKeptOrWrittenAnew(t *testing.T) {
	t.Parallel()
	f := newFleet(t, sidekiq.Options{})
	clock := `local redis = (function(real) return {pcall = real.pcall, call = function(c, ...) if c == 'TIME' then return {'1795230010', '29114'} end return real.call(c, ...) end} end)(redis) `
	head, guess := `{"n":1`, `,"enqueued_at":1795230010.5}`
	for off, kept := range map[int]bool{0: true, 5000: true, -5000: true, 5001: false, -5001: false, 1e9: false, -1e9: false} {
		plan := fmt.Sprintf("1:1:~%d,%d;1:1:;1:1:~%d,1795230010029114;", len(guess), 1795230010029114+off, len(guess))
		require.NoError(t, f.client.Eval(f.ctx, clock+*script.PushScript.Source, []string{f.key("queues"), f.key("schedule"), f.key("queue:b")},
			len(f.key("queue:")), 0, 5000, plan, head+guess, `{"n":2`, head+guess).Err())
		want := head + `,"enqueued_at":1795230010.029114}`
		if kept {
			want = head + guess
		}
		require.Equal(t, []string{want, `{"n":2,"enqueued_at":1795230010.029114}`, head + guess}, f.queue("b"), off)
		require.NoError(t, f.client.Del(f.ctx, f.key("queue:b")).Err())
	}
}

// sentPlans keeps the plans of the pushes that go through it.
type sentPlans struct {
	redis.UniversalClient
	all []string
}

func (s *sentPlans) Process(ctx context.Context, cmd redis.Cmder) error {
	for _, arg := range cmd.Args() {
		if text, ok := arg.(*string); ok && strings.HasSuffix(*text, ";") {
			s.all = append(s.all, *text)
		}
	}
	return s.UniversalClient.Process(ctx, cmd)
}

// Large steps go out with a guess once the server's clock is known.
func TestLargeStepsGuessTheServersTime(t *testing.T) {
	t.Parallel()
	for _, version := range []sidekiq.Version{sidekiq.V7, sidekiq.V8} {
		f := newFleet(t, sidekiq.Options{Version: version})
		require.NoError(t, f.client.ScriptLoad(f.ctx, *script.PushScript.Source).Err(), "so that each step is one command")
		plans := &sentPlans{UniversalClient: f.client}
		d := f.through(plans, sidekiq.Options{Version: version})
		behind := strings.Repeat(" behind", 20)
		payload := `{"class":"W","args":[],"queue":"q","jid":"j"}`
		finished := []byte(payload + behind)
		jobs := []sidekiq.Job{{Payload: finished[:len(payload)]}, {Class: "W", Queue: "q", In: time.Hour}}
		for range 100 {
			jobs = append(jobs, sidekiq.Job{Class: "W", Queue: "q"})
		}
		for i := range 3 {
			before := f.now()
			_, err := d.PushBulk(f.ctx, jobs)
			require.NoError(t, err)
			after := f.now()
			require.Equal(t, i > 0, strings.Contains(plans.all[i], ":100:~"), plans.all[i])
			got := f.queue("q")
			require.Len(t, got, 101)
			for _, p := range got {
				at := stampTime(t, version, stamps.FindAllStringSubmatch(p[strings.Index(p, `"enqueued_at"`):], -1)[0][2])
				require.False(t, at.Before(before.Add(-6*time.Millisecond)) || at.After(after.Add(6*time.Millisecond)), p)
				require.True(t, json.Valid([]byte(p)), p)
			}
			require.NoError(t, f.client.Del(f.ctx, f.key("queue:q")).Err())
		}
		require.Equal(t, payload+behind, string(finished), "bytes of the caller were written to")
	}
}

func atoi(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	require.NoError(t, err)
	return n
}

// The commands that docs/sidekiq.md lists are enough for the whole client side.
func TestTheListedCommandsAreEnough(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	r := luatomictest.StartServer(t).Client()
	text, err := os.ReadFile("../../docs/sidekiq.md")
	require.NoError(t, err)
	_, list, found := strings.Cut(string(text), "- **The user of Redis** needs ")
	require.True(t, found)
	list, _, _ = strings.Cut(list, ". A mover")
	rule := []any{"ACL", "SETUSER", "limited", "on", ">pw", "~*", "-@all"}
	for _, word := range regexp.MustCompile("[a-z|_+]+").FindAllString(strings.Join(regexp.MustCompile("`[^`]+`").FindAllString(list, -1), " "), -1) {
		rule = append(rule, "+"+strings.TrimPrefix(word, "+"))
	}
	require.Greater(t, len(rule), 25)
	require.NoError(t, r.Do(ctx, rule...).Err())
	opts := *r.Options()
	opts.Username, opts.Password = "limited", "pw"
	limited := redis.NewClient(&opts)
	defer func() { require.NoError(t, limited.Close()) }()
	d, err := sidekiq.New(limited, nil)
	require.NoError(t, err)
	_, err = d.PushBulk(ctx, []sidekiq.Job{{Class: "W", In: time.Hour, JID: "x"}, {Class: "W", In: time.Microsecond}, {Class: "W"}})
	require.NoError(t, err)
	_, err = d.PushOnce(ctx, "t", time.Minute, []sidekiq.Job{{Class: "W", In: time.Hour, JID: "y"}})
	require.NoError(t, err)
	require.NoError(t, r.ZAdd(ctx, "schedule", redis.Z{Score: 1, Member: "bad"}).Err())
	luatomictest.Eventually(t, 20*time.Second, "the job is due", func() bool {
		m, err := d.MoveDue(ctx, sidekiq.Schedule, 0)
		require.NoError(t, err)
		return m.Moved == 1
	})
	score, ok, err := d.Reschedule(ctx, sidekiq.Ref{Set: sidekiq.Schedule, JID: "x"}, time.Now().Add(time.Hour))
	require.NoError(t, err)
	require.True(t, ok)
	ok, err = d.Delete(ctx, sidekiq.Ref{Set: sidekiq.Schedule, JID: "x", Score: score})
	require.NoError(t, err)
	require.True(t, ok)
	_, err = d.Stats(ctx)
	require.NoError(t, err)
}
