package sidekiq_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/sidekiq/internal/script"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// workerCall is one call of a script of the worker side on prepared data; p is the prefix of its keys.
type workerCall struct {
	script *lua.Script
	run    func(ctx context.Context, c lua.Client, p string) (any, error)
	keys   string // keys with jobs, or with names of processes
	counts string // counters, whose type stops nothing
	repeat any    // the reply to a retry, if it differs
}

// inFlightOf is an entry of a working hash.
func inFlightOf(p, queue, payload string) string {
	key := p + "queue:" + queue
	return fmt.Sprintf("%d:%s%s", len(key), key, payload)
}

// handed is the data before each call: three jobs in flight, three in queue a, one in b.
func handed(ctx context.Context, c redis.Cmdable, p string) error {
	return errors.Join(
		c.HSet(ctx, p+"working", "1", inFlightOf(p, "a", `{"jid":"one"}`), "2", inFlightOf(p, "a", `{"jid":"two"}`),
			"3", inFlightOf(p, "b", `{"jid":"three"}`)).Err(),
		c.LPush(ctx, p+"queue:a", `{"jid":"four"}`, `{"jid":"five"}`, `{"jid":"six"}`).Err(),
		c.LPush(ctx, p+"queue:b", `{"jid":"seven"}`).Err(),
		c.ZAdd(ctx, p+"processes", redis.Z{Score: 1, Member: "lapsed"}, redis.Z{Score: 9e12, Member: "alive"}).Err(),
		c.Set(ctx, p+"since", "1", 0).Err(),
		c.ZAdd(ctx, p+"retry", redis.Z{Score: 1, Member: "old"}).Err(),
		c.ZAdd(ctx, p+"dead", redis.Z{Score: 9e11, Member: "last"}, redis.Z{Score: 8e11, Member: "middle"},
			redis.Z{Score: 7e11, Member: "first"}, redis.Z{Score: 1, Member: "aged"}).Err(),
	)
}

// returnParams are those of a call that puts jobs back into queue a.
func returnParams(p, process string, jobs ...int64) script.WorkerReturnParams {
	params := script.WorkerReturnParams{Processes: p + "processes", Working: p + "working", Queues: p + "queues",
		Queue: p + "queue:a", Page: p + "page", Shown: p + process, Runnings: []string{p + process + ":work"},
		Signals: p + process + "-signals", Rescued: p + "rescued", Process: process, Lapsed: true, Name: "a"}
	for _, job := range jobs {
		params.Jobs = append(params.Jobs, script.WorkerReturnJob{Job: job, Jid: fmt.Sprint("jid", job)})
	}
	return params
}

func workerCalls() []workerCall {
	const counters = "processed processed_day failed failed_day"
	return []workerCall{
		{script: &script.WorkerTakeScript, keys: "processes working queue:a queue:b", counts: "processed day",
			run: func(ctx context.Context, c lua.Client, p string) (any, error) {
				return script.WorkerTake(ctx, c, takeParams(p))
			}, repeat: "known"},
		{script: &script.WorkerReturnScript, keys: "processes working queues queue:a page rescued",
			run: func(ctx context.Context, c lua.Client, p string) (any, error) {
				return script.WorkerReturn(ctx, c, returnParams(p, "lapsed", 3, 2, 1, 99))
			}, repeat: script.WorkerReturnResult{Left: 1}},
		{script: &script.WorkerBeatScript, keys: "processes working",
			run: func(ctx context.Context, c lua.Client, p string) (any, error) {
				return script.WorkerBeat(ctx, c, beatParams(p, "new"))
			}, repeat: script.WorkerBeatResult{Lapsed: []string{"lapsed"}, Gone: []int64{99}}},
		{script: &script.RetryLaterScript, keys: "working retry", counts: counters,
			run: func(ctx context.Context, c lua.Client, p string) (any, error) {
				r, err := script.RetryLater(ctx, c, script.RetryLaterParams{Working: p + "working", To: p + "retry",
					Processed: p + "processed", ProcessedDay: p + "processed_day",
					Failed: p + "failed", FailedDay: p + "failed_day", ID: 1,
					Parts: [][]byte{[]byte(`{"jid":"one","failed_at":`), []byte(`}`)}, Delay: time.Minute})
				return r.Moved, err
			}, repeat: false},
		{script: &script.RetryBuryScript, keys: "working dead", counts: counters,
			run: func(ctx context.Context, c lua.Client, p string) (any, error) {
				return script.RetryBury(ctx, c, script.RetryBuryParams{Working: p + "working", To: p + "dead",
					Processed: p + "processed", ProcessedDay: p + "processed_day",
					Failed: p + "failed", FailedDay: p + "failed_day", ID: 1,
					Parts: [][]byte{[]byte(`{"jid":"one","failed_at":`), []byte(`}`)},
					Form:  script.RetryBuryFormMillis, Keep: time.Hour, Max: 4})
			}, repeat: false},
		{script: &script.RetryDropScript, keys: "working", counts: counters,
			run: func(ctx context.Context, c lua.Client, p string) (any, error) {
				return script.RetryDrop(ctx, c, script.RetryDropParams{Working: p + "working",
					Processed:    p + "processed",
					ProcessedDay: p + "processed_day", Failed: p + "failed", FailedDay: p + "failed_day", ID: 1})
			}, repeat: false},
		{script: &script.WorkerAsideScript, keys: "processes working rescued retry", counts: counters,
			run: func(ctx context.Context, c lua.Client, p string) (any, error) {
				r, err := script.WorkerAside(ctx, c, asideParams(p, "retry"))
				return r == script.WorkerAsideResultMoved, err
			}, repeat: false},
		{script: &script.WorkerAsideScript, keys: "processes working rescued dead", counts: counters,
			run: func(ctx context.Context, c lua.Client, p string) (any, error) {
				r, err := script.WorkerAside(ctx, c, asideParams(p, "dead"))
				return r == script.WorkerAsideResultMoved, err
			}, repeat: false},
		{script: &script.DeclineScript, keys: "working schedule",
			run: func(ctx context.Context, c lua.Client, p string) (any, error) {
				params := declineParams(p)
				params.Patience = math.MaxInt64
				r, err := script.Decline(ctx, c, params)
				return r.State == script.DeclineStateWaits, err
			}, repeat: false},
		{script: &script.RetryBuryScript, keys: "working dead",
			run: func(ctx context.Context, c lua.Client, p string) (any, error) {
				return script.RetryBury(ctx, c, script.RetryBuryParams{Working: p + "working", To: p + "dead",
					Processed: p + "processed", ProcessedDay: p + "processed_day",
					Failed: p + "failed", FailedDay: p + "failed_day", ID: 1,
					Parts: [][]byte{[]byte(`{"jid":"one"}`)},
					Form:  script.RetryBuryFormNone, Keep: time.Hour, Max: 4})
			}, repeat: false},
	}
}

// beatParams are those of a process that has a job in flight, and one that is gone.
func beatParams(p, process string) script.WorkerBeatParams {
	return script.WorkerBeatParams{Processes: p + "processes", Working: p + "working", Process: process,
		Lease: time.Hour, Max: 10, Jobs: []int64{1, 99}}
}

func takeParams(p string) script.WorkerTakeParams {
	return script.WorkerTakeParams{Processes: p + "processes", Working: p + "working", Processed: p + "processed",
		Day: p + "day", Queues: []string{p + "queue:a", p + "queue:b"}, Process: "new", Lease: time.Hour,
		First: 4, Want: 4, Dones: []int64{1, 99}}
}

// answer omits what a retry of take cannot return.
func (call *workerCall) answer(ctx context.Context, c lua.Client, p string) (any, error) {
	got, err := call.run(ctx, c, p)
	if r, ok := got.(script.WorkerTakeResult); ok {
		for i := range r.Jobs {
			r.Jobs[i].Queue = strings.TrimPrefix(r.Jobs[i].Queue, p)
		}
		got = r
	}
	return got, err
}

func eachWorkerCall(t *testing.T, test func(t *testing.T, ctx context.Context, call workerCall)) {
	t.Helper()
	for _, call := range workerCalls() {
		t.Run(call.script.Name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			test(t, ctx, call)
		})
	}
}

var failedAt = regexp.MustCompile(`"failed_at":[0-9.]+`)

// workState returns the data of all keys, without times.
func workState(ctx context.Context, c *redis.Client, p string) map[string][]string {
	out := make(map[string][]string)
	for _, key := range c.Keys(ctx, p+"*").Val() {
		var all []string
		switch c.Type(ctx, key).Val() {
		case "list":
			all = c.LRange(ctx, key, 0, -1).Val()
		case "set":
			all = c.SMembers(ctx, key).Val()
		case "zset":
			all = c.ZRange(ctx, key, 0, -1).Val()
			slices.Sort(all)
		case "string":
			all = []string{c.Get(ctx, key).Val()}
		case "hash":
			for field, value := range c.HGetAll(ctx, key).Val() {
				all = append(all, field+" "+strings.ReplaceAll(value[strings.Index(value, ":")+1:], p, ""))
			}
			slices.Sort(all)
		}
		for i := range all {
			all[i] = failedAt.ReplaceAllString(all[i], `"failed_at":0`)
		}
		out[strings.TrimPrefix(key, p)] = all
	}
	return out
}

func TestWorkerScriptsWithLostReplies(t *testing.T) {
	t.Parallel()
	eachWorkerCall(t, func(t *testing.T, ctx context.Context, call workerCall) {
		direct := luatomictest.Client(t)
		proxy := luatomictest.NewLossyProxy(t, luatomictest.URL(t))
		opts, err := redis.ParseURL(luatomictest.URL(t))
		require.NoError(t, err)
		opts.Network, opts.Addr = "tcp", proxy.Addr()
		c := redis.NewClient(opts)
		defer func() { require.NoError(t, c.Close()) }()
		clean := luatomictest.Namespace(t) + ":"
		require.NoError(t, handed(ctx, direct, clean))
		want, err := call.answer(ctx, direct, clean)
		require.NoError(t, err)
		for lost := range 5 {
			p := luatomictest.Namespace(t) + ":"
			require.NoError(t, handed(ctx, direct, p))
			sent := lab.Sent(call.script)
			before := proxy.Executed(sent)
			proxy.Drop(lost, sent)
			got, err := call.answer(ctx, c, p)
			require.NoError(t, err)
			require.Equal(t, lost+1, proxy.Executed(sent)-before)
			if lost > 0 && call.repeat != "known" {
				want = call.repeat
			}
			require.Equal(t, want, got)
			require.Equal(t, workState(ctx, direct, clean), workState(ctx, direct, p))
		}
	})
}

func TestWorkerScriptsWithKeysOfAnotherType(t *testing.T) {
	t.Parallel()
	eachWorkerCall(t, func(t *testing.T, ctx context.Context, call workerCall) {
		c := luatomictest.Client(t)
		for _, key := range strings.Fields(call.keys + " " + call.counts) {
			p := luatomictest.Namespace(t) + ":"
			require.NoError(t, handed(ctx, c, p))
			require.NoError(t, c.Del(ctx, p+key).Err())
			require.NoError(t, c.PFAdd(ctx, p+key, "x").Err())
			if key != "processed" && key != "day" && !strings.Contains(call.counts, key) {
				before := workState(ctx, c, p)
				_, err := call.run(ctx, c, p)
				require.ErrorIs(t, err, lua.ErrWrongType, key)
				require.ErrorContains(t, err, p+key)
				require.Equal(t, before, workState(ctx, c, p), key)
				continue
			}
			_, err := call.run(ctx, c, p)
			require.NoError(t, err, "a counter that is not one is passed over: %s", key)
			require.NotContains(t, fmt.Sprint(workState(ctx, c, p)["working"]), "one")
		}
	})
}

func TestWorkerScriptsWithAFailureAtEachWrite(t *testing.T) {
	t.Parallel()
	eachWorkerCall(t, func(t *testing.T, ctx context.Context, call workerCall) {
		c := luatomictest.Client(t)
		contract := clientContract.FindStringSubmatch(*call.script.Source)[1]
		var want map[string][]string
		for n := 0; ; n++ {
			p := luatomictest.Namespace(t) + ":"
			require.NoError(t, handed(ctx, c, p))
			before := workState(ctx, c, p)
			once, end := context.WithCancel(ctx)
			kept := &lastCall{UniversalClient: c, end: end}
			_, err := call.run(once, kept, p)
			require.ErrorIs(t, err, errKept)
			err = c.Do(ctx, append([]any{"EVAL", withFailure(lab.Text(c, call.script), n, p)},
				kept.args[2:]...)...).Err()
			reached := c.Del(ctx, p+"reached").Val() == 1
			after := workState(ctx, c, p)
			if n == 0 {
				require.NoError(t, err)
				want = after
				continue
			}
			if !reached {
				t.Logf("%s: %d failpoints", contract, n-1)
				return
			}
			if err != nil {
				require.ErrorContains(t, err, "failpoint")
				if contract == "all-or-nothing" {
					require.Equal(t, before, after, "failpoint %d", n)
				}
			} // otherwise it is a counter
			jobsAreKept(t, want, after, n)
			_, err = call.run(ctx, c, p)
			require.NoError(t, err)
			again := workState(ctx, c, p)
			jobsAreKept(t, want, again, n)
			if call.script != &script.WorkerBeatScript {
				require.NotContains(t, fmt.Sprint(again["working"]), "one", "failpoint %d", n)
			}
		}
	})
}

// jobsAreKept requires each job that a run without a failure keeps to be in some key.
func jobsAreKept(t *testing.T, want, after map[string][]string, n int) {
	t.Helper()
	all := fmt.Sprint(after)
	for _, jid := range []string{"one", "two", "three", "four", "five", "six", "seven"} {
		if strings.Contains(fmt.Sprint(want), `"`+jid+`"`) {
			require.Contains(t, all, `"`+jid+`"`, "failpoint %d", n)
		}
	}
}

func TestWorkerScriptOutcomes(t *testing.T) {
	t.Parallel()
	c := luatomictest.Client(t)
	fresh := func(t *testing.T) (context.Context, string) {
		t.Helper()
		p := luatomictest.Namespace(t) + ":"
		require.NoError(t, handed(t.Context(), c, p))
		return t.Context(), p
	}
	t.Run("take serves the tails, in the order of the keys", func(t *testing.T) {
		ctx, p := fresh(t)
		r, err := script.WorkerTake(ctx, c, takeParams(p))
		require.NoError(t, err)
		var got []string
		for _, j := range r.Jobs {
			got = append(got, fmt.Sprint(j.ID, " ", strings.TrimPrefix(j.Queue, p), " ", string(j.Payload)))
		}
		require.Equal(t, []string{`4 queue:a {"jid":"four"}`, `5 queue:a {"jid":"five"}`, `6 queue:a {"jid":"six"}`,
			`7 queue:b {"jid":"seven"}`}, got)
		require.Equal(t, "1", c.Get(ctx, p+"processed").Val(), "one of the two was still in flight")
		params := takeParams(p)
		params.First, params.Dones = 8, nil
		r, err = script.WorkerTake(ctx, c, params)
		require.NoError(t, err)
		require.Equal(t, script.WorkerTakeResult{Last: 8}, r, "it leaves its number")
	})
	t.Run("take renews the lease", func(t *testing.T) {
		ctx, p := fresh(t)
		params := takeParams(p)
		params.Process, params.Want = "alive", 1
		r, err := script.WorkerTake(ctx, c, params)
		require.NoError(t, err)
		require.Len(t, r.Jobs, 1)
		require.InDelta(t, float64(time.Now().Add(time.Hour).UnixMilli()),
			c.ZScore(ctx, p+"processes", "alive").Val(), 60_000)
		require.Equal(t, []string{`{"jid":"six"}`, `{"jid":"five"}`}, c.LRange(ctx, p+"queue:a", 0, -1).Val(),
			"no more than wanted")
	})
	t.Run("take hands a job out once, also of a queue that is named twice", func(t *testing.T) {
		ctx, p := fresh(t)
		params := takeParams(p)
		params.Want, params.Queues = 100, []string{p + "queue:a", p + "queue:a"}
		r, err := script.WorkerTake(ctx, c, params)
		require.NoError(t, err)
		require.Len(t, r.Jobs, 3)
	})
	t.Run("return takes nothing from the living", func(t *testing.T) {
		ctx, p := fresh(t)
		before := workState(ctx, c, p)
		params := returnParams(p, "alive", 1)
		r, err := script.WorkerReturn(ctx, c, params)
		require.NoError(t, err)
		require.Equal(t, script.WorkerReturnResult{State: script.WorkerReturnStateAlive, Left: 3}, r)
		require.Equal(t, before, workState(ctx, c, p))
		params.Lapsed = false
		r, err = script.WorkerReturn(ctx, c, params)
		require.NoError(t, err)
		require.Equal(t, script.WorkerReturnResult{Returned: 1, Left: 2}, r, "but the living may")
	})
	t.Run("return puts each job into its own queue", func(t *testing.T) {
		ctx, p := fresh(t)
		require.NoError(t, c.SAdd(ctx, p+"page", "lapsed", "ruby").Err())
		for _, key := range []string{"lapsed", "lapsed:work"} {
			require.NoError(t, c.HSet(ctx, p+key, "busy", 1).Err())
		}
		require.NoError(t, c.LPush(ctx, p+"lapsed-signals", "TERM").Err())
		params := returnParams(p, "lapsed", 3, 2, 1)
		r, err := script.WorkerReturn(ctx, c, params)
		require.NoError(t, err)
		require.Equal(t, script.WorkerReturnResult{Returned: 2, Left: 1}, r)
		list := c.LRange(ctx, p+"queue:a", 0, -1).Val()
		require.Equal(t, []string{`{"jid":"two"}`, `{"jid":"one"}`}, list[3:])
		require.NotZero(t, c.ZScore(ctx, p+"processes", "lapsed").Val())
		require.True(t, c.SIsMember(ctx, p+"page", "lapsed").Val())
		params.Queue, params.Name = p+"queue:b", "b"
		r, err = script.WorkerReturn(ctx, c, params)
		require.NoError(t, err)
		require.Equal(t, script.WorkerReturnResult{Returned: 1}, r)
		require.ErrorIs(t, c.ZScore(ctx, p+"processes", "lapsed").Err(), redis.Nil, "it is forgotten with its last job")
		require.Equal(t, []string{"ruby"}, c.SMembers(ctx, p+"page").Val())
		require.Zero(t, c.Exists(ctx, params.Shown, params.Runnings[0], params.Signals).Val())
	})
	t.Run("heartbeat", func(t *testing.T) {
		ctx, p := fresh(t)
		r, err := script.WorkerBeat(ctx, c, beatParams(p, "alive"))
		require.NoError(t, err)
		require.Equal(t, script.WorkerBeatResult{Lapsed: []string{"lapsed"}, Gone: []int64{99}}, r)
	})
	t.Run("a job that is not in flight is not moved", func(t *testing.T) {
		ctx, p := fresh(t)
		require.NoError(t, c.HDel(ctx, p+"working", "1").Err())
		before := workState(ctx, c, p)
		for _, call := range workerCalls()[3:] {
			got, err := call.run(ctx, c, p)
			require.NoError(t, err)
			require.Equal(t, false, got, call.script.Name)
			require.Equal(t, before, workState(ctx, c, p), call.script.Name)
		}
	})
}
