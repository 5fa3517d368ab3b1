package launch_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/luatomic/luatomic/internal/launch"
	"github.com/luatomic/luatomic/internal/testkit/lab"
)

// clockStep is the coarsest step of the server's clock.
const clockStep = 25 * time.Millisecond

func TestMain(m *testing.M) {
	code := m.Run()
	for tries := 5; code == 0; tries-- { // on a busy machine closed goroutines take a while to end
		err := goleak.Find()
		if err == nil {
			break
		}
		if tries == 0 {
			fmt.Fprintf(os.Stderr, "goroutines left over: %v\n", err)
			code = 1
		}
	}
	os.Exit(code)
}

func start(t *testing.T) *redis.Client {
	t.Helper()
	server, err := launch.StartEmbedded()
	require.NoError(t, err)
	t.Cleanup(server.Close)
	options, err := redis.ParseURL(server.URL())
	require.NoError(t, err)
	require.Equal(t, server.Addr(), options.Addr)
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func TestKeysExpireByRealTime(t *testing.T) {
	t.Parallel()
	client, ctx := start(t), t.Context()
	const life = 5 * time.Second
	began, err := client.Time(ctx).Result()
	require.NoError(t, err)
	require.NoError(t, client.Set(ctx, "set", "v", life).Err())
	require.NoError(t, client.HSet(ctx, "hash", "f", "v").Err())
	require.NoError(t, client.Eval(ctx, `return redis.call('PEXPIRE', KEYS[1], ARGV[1])`, []string{"hash"},
		life.Milliseconds()).Err())
	require.NoError(t, client.Set(ctx, "forever", "v", 0).Err())
	require.LessOrEqual(t, client.PTTL(ctx, "set").Val(), life)
	require.EqualValues(t, 2, client.Exists(ctx, "set", "hash").Val())
	require.Eventually(t, func() bool {
		return client.Exists(ctx, "set", "hash").Val() == 0
	}, 20*time.Second, time.Millisecond)
	ended, err := client.Time(ctx).Result()
	require.NoError(t, err)
	require.GreaterOrEqual(t, ended.Sub(began), life,
		"not early either, by the clock that TestTimeIsTheWallClock is about")
	require.EqualValues(t, 1, client.Exists(ctx, "forever").Val())
}

func TestTimeIsTheWallClock(t *testing.T) {
	t.Parallel()
	client := start(t)
	// On a busy machine a step can come late, but not each time.
	require.Eventually(t, func() bool {
		before := time.Now().Add(-clockStep)
		reply, err := client.Eval(t.Context(), `return redis.call('TIME')`, nil).StringSlice()
		require.NoError(t, err)
		var sec, usec int64
		_, err = fmt.Sscan(reply[0]+" "+reply[1], &sec, &usec)
		require.NoError(t, err)
		require.False(t, time.Unix(sec, usec*1000).After(time.Now()))
		return !time.Unix(sec, usec*1000).Before(before)
	}, 20*time.Second, 10*time.Millisecond)
}

// Steps that are slow, as scripts are, do not stop the clock: no two scripts see the same time.
func TestNoTwoScriptsSeeTheSameTime(t *testing.T) {
	client := start(t)
	busy, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var slow sync.WaitGroup
	for range 4 {
		slow.Go(func() {
			for busy.Err() == nil {
				client.Eval(t.Context(), `for i = 1, 100000 do end return 0`, nil)
			}
		})
	}
	last := int64(0)
	for busy.Err() == nil {
		reply, err := client.Eval(t.Context(), `return redis.call('TIME')`, nil).StringSlice()
		require.NoError(t, err)
		var sec, usec int64
		_, err = fmt.Sscan(reply[0]+" "+reply[1], &sec, &usec)
		require.NoError(t, err)
		require.Greater(t, sec*1_000_000+usec, last)
		last = sec*1_000_000 + usec
	}
	slow.Wait()
}

func TestStepMovesTimeAndExpiry(t *testing.T) {
	t.Parallel()
	server, err := launch.StartEmbedded()
	require.NoError(t, err)
	t.Cleanup(server.Close)
	client, ctx := redis.NewClient(&redis.Options{Addr: server.Addr()}), t.Context()
	t.Cleanup(func() { _ = client.Close() })
	at := func() time.Time {
		now, err := client.Time(ctx).Result()
		require.NoError(t, err)
		return now
	}
	require.NoError(t, client.Set(ctx, "k", "v", time.Minute).Err())
	before := at()
	server.Step(-time.Hour)
	require.WithinDuration(t, before.Add(-time.Hour), at(), time.Minute)
	require.EqualValues(t, 1, client.Exists(ctx, "k").Val())
	server.Step(2 * time.Hour)
	require.WithinDuration(t, before.Add(time.Hour), at(), time.Minute)
	require.Zero(t, client.Exists(ctx, "k").Val())
}

// Ticks and steps run concurrently: no tick may set the time from before a step.
func TestATickDoesNotUndoAStep(t *testing.T) {
	lab.Long(t)
	t.Parallel()
	server, err := launch.StartEmbedded()
	require.NoError(t, err)
	t.Cleanup(server.Close)
	client, ctx := redis.NewClient(&redis.Options{Addr: server.Addr()}), t.Context()
	t.Cleanup(func() { _ = client.Close() })
	// Scripts block the server while a tick waits to set its time.
	var busy sync.WaitGroup
	stop, cancel := context.WithCancel(ctx)
	defer busy.Wait()
	defer cancel()
	for range 4 {
		busy.Go(func() {
			for stop.Err() == nil {
				_ = client.Eval(stop, `for i = 1, 20000 do end`, nil).Err()
			}
		})
	}
	require.NoError(t, client.Set(ctx, "k", "v", time.Hour).Err())
	began := time.Now()
	for i := range 300 {
		server.Step(-2 * time.Hour)
		now, err := client.Time(ctx).Result()
		require.NoError(t, err)
		require.WithinDuration(t, began.Add(time.Duration(i+1)*-2*time.Hour), now, time.Hour, "step %d", i)
	}
	require.EqualValues(t, 1, client.Exists(ctx, "k").Val(), "no tick went forward by a step that was undone")
}

func TestManyExpiringKeysDoNotSlowScriptsDown(t *testing.T) {
	lab.Long(t)
	t.Parallel()
	client, empty, ctx := start(t), start(t), t.Context()
	for range 10 {
		pipe := client.Pipeline()
		for range 500 {
			pipe.Set(ctx, fmt.Sprint("k", pipe.Len(), rand.Int()), "v", time.Hour)
		}
		_, err := pipe.Exec(ctx)
		require.NoError(t, err)
	}
	require.NoError(t, client.Set(ctx, "short", "v", 20*time.Millisecond).Err())
	// A busy machine stalls at times, but not in each of the short runs: as many are made as it takes.
	run := func(client *redis.Client) time.Duration {
		began := time.Now()
		for range 50 {
			require.NoError(t, client.Eval(ctx, `return redis.call('SET', KEYS[1], '1')`, []string{"k"}).Err())
		}
		return time.Since(began)
	}
	many, none := time.Hour, time.Hour
	for n := 0; n < 10 || n < 100 && many >= 4*none; n++ {
		many, none = min(many, run(client)), min(none, run(empty))
	}
	t.Logf("50 scripts take %v, and %v without the keys", many, none)
	require.Less(t, many, 4*none, "it visits them once a step, and not at each access")
	require.Eventually(t, func() bool {
		return client.Exists(ctx, "short").Val() == 0
	}, 20*time.Second, time.Millisecond)
}

// TestScriptVocabulary runs the commands and Lua functions that the library's scripts use.
func TestScriptVocabulary(t *testing.T) {
	t.Parallel()
	client, ctx := start(t), t.Context()
	for _, c := range []struct {
		name, script string
		want         any
	}{
		{"HSET HMGET",
			`redis.call('HSET', KEYS[1], 'a', '1', 'b', '2') return redis.call('HMGET', KEYS[1], 'b', 'none', 'a')`,
			[]any{"2", nil, "1"}},
		{"HINCRBY HDEL HLEN HEXISTS", `redis.call('HINCRBY', KEYS[1], 'n', 5) redis.call('HSET', KEYS[1], 'x', '') redis.call('HDEL', KEYS[1], 'x')
			return {redis.call('HLEN', KEYS[1]), redis.call('HGET', KEYS[1], 'n'), redis.call('HEXISTS', KEYS[1], 'x')}`, []any{int64(1), "5", int64(0)}},
		{"HSETNX HGETALL",
			`redis.call('HSETNX', KEYS[1], 'a', '1') redis.call('HSETNX', KEYS[1], 'a', '2') return redis.call('HGETALL', KEYS[1])`, []any{"a", "1"}},
		{"LPOP count", `redis.call('RPUSH', KEYS[1], 'a', 'b', 'c') return redis.call('LPOP', KEYS[1], 2)`,
			[]any{"a", "b"}},
		{"LPOP count missing", `return {redis.call('LPOP', KEYS[1], 2), 7}`, []any{nil, int64(7)}},
		{"LRANGE LTRIM LLEN LINDEX", `redis.call('RPUSH', KEYS[1], 'a', 'b', 'c') redis.call('LTRIM', KEYS[1], 1, -1)
			return {redis.call('LLEN', KEYS[1]), redis.call('LINDEX', KEYS[1], 0), redis.call('LRANGE', KEYS[1], 0, -1)}`, []any{int64(2), "b", []any{"b", "c"}}},
		{"ZRANGE BYSCORE LIMIT", `redis.call('ZADD', KEYS[1], 1, 'a', 2, 'b', 3, 'c', 9, 'd')
			return redis.call('ZRANGE', KEYS[1], '-inf', 3, 'BYSCORE', 'LIMIT', 0, 2)`, []any{"a", "b"}},
		{"ZRANGE BYSCORE WITHSCORES", `redis.call('ZADD', KEYS[1], 1234567890123, 'a')
			return redis.call('ZRANGE', KEYS[1], '-inf', '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')`, []any{"a", "1234567890123"}},
		{"ZRANGE REV", `redis.call('ZADD', KEYS[1], 1, 'a', 2, 'b') return redis.call('ZRANGE', KEYS[1], 0, 0, 'REV')`,
			[]any{"b"}},
		{"ZRANGEBYSCORE LIMIT",
			`redis.call('ZADD', KEYS[1], 1, 'a', 2, 'b') return redis.call('ZRANGEBYSCORE', KEYS[1], '(1', '+inf', 'LIMIT', 0, 5)`, []any{"b"}},
		{"ZMSCORE", `redis.call('ZADD', KEYS[1], 1.5, 'a') return redis.call('ZMSCORE', KEYS[1], 'a', 'none')`,
			[]any{"1.5", nil}},
		{"ZMSCORE missing", `return redis.call('ZMSCORE', KEYS[1], 'a', 'b')`, []any{nil, nil}},
		{"ZSCORE nil is false", `return redis.call('ZSCORE', KEYS[1], 'none') == false and 1 or 0`, int64(1)},
		{"ZPOPMIN", `redis.call('ZADD', KEYS[1], 1, 'a', 2, 'b') return redis.call('ZPOPMIN', KEYS[1], 1)`,
			[]any{"a", "1"}},
		{"ZREM ZCARD ZCOUNT", `redis.call('ZADD', KEYS[1], 1, 'a', 2, 'b', 3, 'c') redis.call('ZREM', KEYS[1], 'a', 'none')
			return {redis.call('ZCARD', KEYS[1]), redis.call('ZCOUNT', KEYS[1], '-inf', 2)}`, []any{int64(2), int64(1)}},
		{"ZADD NX XX GT CH", `redis.call('ZADD', KEYS[1], 5, 'a')
			return {redis.call('ZADD', KEYS[1], 'NX', 9, 'a'), redis.call('ZADD', KEYS[1], 'XX', 'CH', 6, 'a'), redis.call('ZADD', KEYS[1], 'GT', 'CH', 1, 'a'), redis.call('ZSCORE', KEYS[1], 'a')}`,
			[]any{int64(0), int64(1), int64(0), "6"}},
		{"ZREMRANGEBYSCORE ZREMRANGEBYRANK", `redis.call('ZADD', KEYS[1], 1, 'a', 2, 'b', 3, 'c')
			return {redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', 1), redis.call('ZREMRANGEBYRANK', KEYS[1], 0, 0), redis.call('ZCARD', KEYS[1])}`, []any{int64(1), int64(1), int64(1)}},
		{"ZRANK", `redis.call('ZADD', KEYS[1], 1, 'a', 2, 'b') return redis.call('ZRANK', KEYS[1], 'b')`, int64(1)},
		{"SET NX PX GET PTTL", `redis.call('SET', KEYS[1], 'v', 'NX', 'PX', 60000) local again = redis.call('SET', KEYS[1], 'w', 'NX', 'PX', 60000)
			local ttl = redis.call('PTTL', KEYS[1]) return {again, redis.call('GET', KEYS[1]), (ttl > 50000 and ttl <= 60000) and 1 or 0}`, []any{nil, "v", int64(1)}},
		{"SET status", `return redis.call('SET', KEYS[1], 'v').ok`, "OK"},
		{"PTTL of nothing and forever",
			`redis.call('SET', KEYS[1], 'v') return {redis.call('PTTL', KEYS[1]), redis.call('PTTL', KEYS[1] .. 'none')}`, []any{int64(-1), int64(-2)}},
		{"PEXPIREAT PERSIST", `redis.call('SET', KEYS[1], 'v') local t = redis.call('TIME')
			redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', t[1] * 1000 + 60000)) local ttl = redis.call('PTTL', KEYS[1])
			redis.call('PERSIST', KEYS[1]) return {ttl > 50000 and 1 or 0, redis.call('PTTL', KEYS[1])}`, []any{int64(1), int64(-1)}},
		{"PEXPIRE GT", `redis.call('SET', KEYS[1], 'v', 'PX', 60000) return redis.call('PEXPIRE', KEYS[1], 1000, 'GT')`,
			int64(0)},
		{"INCRBY INCR", `redis.call('INCRBY', KEYS[1], 41) return redis.call('INCR', KEYS[1])`, int64(42)},
		{"TYPE", `redis.call('RPUSH', KEYS[1], 'a') return redis.call('TYPE', KEYS[1]).ok`, "list"},
		{"DEL UNLINK EXISTS",
			`redis.call('SET', KEYS[1], 'v') return {redis.call('EXISTS', KEYS[1]), redis.call('UNLINK', KEYS[1]), redis.call('DEL', KEYS[1])}`, []any{int64(1), int64(1), int64(0)}},
		{"SADD SREM SMEMBERS SISMEMBER",
			`redis.call('SADD', KEYS[1], 'a', 'b') redis.call('SREM', KEYS[1], 'b') return {redis.call('SMEMBERS', KEYS[1]), redis.call('SISMEMBER', KEYS[1], 'b')}`, []any{[]any{"a"}, int64(0)}},
		{"LMOVE",
			`redis.call('RPUSH', KEYS[1], 'a', 'b') return redis.call('LMOVE', KEYS[1], KEYS[1], 'LEFT', 'RIGHT')`,
			"a"},
		{"MGET", `redis.call('SET', KEYS[1], 'v') return redis.call('MGET', KEYS[1], KEYS[1] .. 'none')`,
			[]any{"v", nil}},
		{"LREM LPOS",
			`redis.call('RPUSH', KEYS[1], 'a', 'b', 'a') return {redis.call('LPOS', KEYS[1], 'b'), redis.call('LREM', KEYS[1], 1, 'a')}`, []any{int64(1), int64(1)}},
		{"PUBLISH counts no receiver", `return redis.call('PUBLISH', 'none', 'x')`, int64(0)},
		{"format of large numbers", `return string.format('%.0f', 1795227802144100)`, "1795227802144100"},
		{"tonumber and comparison", `return tonumber('1795227802144') > 1795227802143 and 1 or 0`, int64(1)},
		{"unpack of 1000",
			`local t = {} for i = 1, 1000 do t[i] = i end redis.call('RPUSH', KEYS[1], unpack(t)) return redis.call('LLEN', KEYS[1])`, int64(1000)},
		{"unpack of 4000",
			`local t = {} for i = 1, 4000 do t[i] = i end redis.call('RPUSH', KEYS[1], unpack(t)) return redis.call('LLEN', KEYS[1])`, int64(4000)},
		{"string library",
			`local s = '17:ab' local i = string.find(s, ':', 1, true) return {string.sub(s, i + 1), #s, string.byte('a'), string.char(98), string.rep('x', 3), string.gsub('a.b', '%.', '-')}`, []any{"ab", int64(5), int64(97), "b", "xxx", "a-b", int64(1)}},
		{"string.match", `return {string.match('1700:job', '^(%d+):(.*)$')}`, []any{"1700", "job"}},
		{"table library",
			`local t = {'b', 'a'} table.sort(t) table.insert(t, 'c') return {table.concat(t, ','), table.remove(t)}`,
			[]any{"a,b,c", "c"}},
		{"binary values", `redis.call('SET', KEYS[1], ARGV[1]) return {redis.call('GET', KEYS[1]), #ARGV[1]}`,
			[]any{"\x00\r\n\xff", int64(4)}},
		{"numbers are truncated", `return {3.99, -3.99}`, []any{int64(3), int64(-3)}},
		{"booleans", `return {true, false, 'end'}`, []any{int64(1), nil, "end"}},
		{"nil ends an array", `return {1, nil, 3}`, []any{int64(1)}},
		{"error_reply", `return redis.error_reply('HELD by another') and 1`, int64(1)},
		{"status_reply", `return redis.status_reply('FINE')`, "FINE"},
		{"pcall gives err",
			`redis.call('SET', KEYS[1], 'v') local r = redis.pcall('INCR', KEYS[1]) return type(r) == 'table' and r.err and 1 or 0`, int64(1)},
		{"math", `return {math.max(1, 5), math.floor(2.7), math.min(3, 2)}`, []any{int64(5), int64(2), int64(2)}},
		{"XADD XLEN", `redis.call('XADD', KEYS[1], '*', 'f', 'v') return redis.call('XLEN', KEYS[1])`, int64(1)},
		{"local functions and loops",
			`local function f(n) return n * 2 end local s = 0 for _, v in ipairs({1, 2}) do s = s + f(v) end return s`,
			int64(6)},
		{"STRLEN APPEND GETRANGE",
			`redis.call('APPEND', KEYS[1], 'abc') return {redis.call('STRLEN', KEYS[1]), redis.call('GETRANGE', KEYS[1], 1, 1)}`, []any{int64(3), "b"}},
		{"SETEX PSETEX GETDEL", `redis.call('SET', KEYS[1], 'v', 'EX', 10) return redis.call('GETDEL', KEYS[1])`, "v"},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.NoError(t, client.FlushDB(ctx).Err())
			got, err := client.Eval(ctx, c.script, []string{"{k}"}, "\x00\r\n\xff").Result()
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}

func TestScriptsByDigest(t *testing.T) {
	t.Parallel()
	client, ctx := start(t), t.Context()
	const script = `return {KEYS[1], ARGV[1]}`
	err := client.EvalSha(ctx, "e0e1f9fabfc9d4800c877a703b823ac0578ff8db", []string{"k"}).Err()
	require.True(t, redis.HasErrorPrefix(err, "NOSCRIPT"), "%v", err)
	sha, err := client.ScriptLoad(ctx, script).Result()
	require.NoError(t, err)
	for name, call := range map[string]func(context.Context, string, []string,
		...any) *redis.Cmd{"EVALSHA": client.EvalSha, "EVALSHA_RO": client.EvalShaRO} {
		got, err := call(ctx, sha, []string{"k"}, "v").Result()
		require.NoError(t, err, name)
		require.Equal(t, []any{"k", "v"}, got, name)
	}
	pipe := client.Pipeline()
	pipe.ScriptFlush(ctx)
	pipe.ScriptLoad(ctx, script)
	last := pipe.EvalSha(ctx, sha, []string{"k"}, "w")
	_, err = pipe.Exec(ctx)
	require.NoError(t, err)
	require.Equal(t, []any{"k", "w"}, last.Val())
}

func TestPublishInsideAScriptReachesSubscribers(t *testing.T) {
	t.Parallel()
	client, ctx := start(t), t.Context()
	sub := client.Subscribe(ctx, "news")
	t.Cleanup(func() { _ = sub.Close() })
	_, err := sub.ReceiveTimeout(ctx, 20*time.Second)
	require.NoError(t, err)
	receivers, err := client.Eval(ctx, `return redis.call('PUBLISH', ARGV[1], ARGV[2])`, nil, "news", "body\x00").Int()
	require.NoError(t, err)
	require.Equal(t, 1, receivers)
	message, err := sub.ReceiveMessage(ctx)
	require.NoError(t, err)
	require.Equal(t, "body\x00", message.Payload)
}

func TestCloseTwice(t *testing.T) {
	t.Parallel()
	server, err := launch.StartEmbedded()
	require.NoError(t, err)
	server.Close()
	server.Close()
}

// The runtime sends the text where it cannot load a script.
func TestReadOnlyScriptsReadTheClockByTextToo(t *testing.T) {
	t.Parallel()
	client, ctx := start(t), t.Context()
	const script = `return redis.call('TIME')`
	sha, err := client.ScriptLoad(ctx, script).Result()
	require.NoError(t, err)
	for name, cmd := range map[string]*redis.Cmd{
		"EVAL_RO": client.EvalRO(ctx, script, []string{"k"}), "EVALSHA_RO": client.EvalShaRO(ctx, sha, []string{"k"}),
	} {
		got, err := cmd.Slice()
		require.NoError(t, err, name)
		require.Len(t, got, 2, name)
	}
}

// Close while scripts run, read-only ones too, ends them and not the program.
func TestCloseWhileScriptsRun(t *testing.T) {
	lab.Long(t)
	t.Parallel()
	for range 100 {
		server, err := launch.StartEmbedded()
		require.NoError(t, err)
		c := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1, DialerRetries: 1})
		var ran, callers sync.WaitGroup
		for range 4 {
			ran.Add(1)
			callers.Go(func() {
				err := c.EvalRO(t.Context(), "return 1", nil).Err()
				ran.Done()
				for err == nil {
					err = c.EvalRO(t.Context(), "return 1", nil).Err()
				}
			})
		}
		ran.Wait()
		server.Close()
		callers.Wait()
		require.NoError(t, c.Close())
	}
}
