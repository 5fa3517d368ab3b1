package lua_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// lua.RetryNever first: a call that was not executed is retried even there.
var retries = map[string]lua.Retry{"never": lua.RetryNever, "safe": lua.RetrySafe}

func TestTransientErrorsAreRepeatedForEveryScript(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"LOADING Redis is loading the dataset in memory",
		"LOADING Valkey is loading the dataset in memory",
		"CLUSTERDOWN The cluster is down",
		"TRYAGAIN Multiple keys request during rehashing of slot",
		"READONLY You can't write against a read only replica.",
		"READONLY You can't write against a read only replica. script: 0123, on @user_script:3.",
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
		"NOREPLICAS Not enough good replicas to write.",
		"MOVED 3999 127.0.0.1:1",
		"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
		"BUSY Valkey is busy running a script.",
		"ERR max number of clients reached",
	} {
		for name, retry := range retries {
			t.Run(line+" "+name, func(t *testing.T) {
				t.Parallel()
				const failures = 3
				fake := startFake(t, func(_ string, nth int) string {
					if nth <= failures {
						return "-" + line
					}
					return ":42"
				})
				got, err := runInt(within(t, 10*time.Second), fake.client(t), newScript("count", countSource, retry),
					"k")
				require.NoError(t, err)
				require.EqualValues(t, 42, got)
				require.Equal(t, failures+1, fake.count("EVALSHA"))
			})
		}
	}
}

func TestLastingErrorsAreReturnedAtOnce(t *testing.T) {
	t.Parallel()
	s := newScript("count", countSource, lua.RetrySafe)
	for line, code := range map[string]string{
		"OOM command not allowed when used memory > 'maxmemory'.":                                          "OOM",
		"OOM command not allowed when used memory > 'maxmemory'. script: " + s.SHA + ", on @user_script:2": "OOM",
		"MISCONF Redis is configured to save RDB snapshots, but it's unable to persist to disk.":           "MISCONF",
		"MISCONF Errors writing to the AOF file. script: " + s.SHA + ", on @user_script:2":                 "MISCONF",
		"NOPERM User app has no permissions to run the 'evalsha' command":                                  "NOPERM",
		"NOAUTH Authentication required.":                                                                  "NOAUTH",
		"WRONGPASS invalid username-password pair or user is disabled.":                                    "WRONGPASS",
		"CROSSSLOT Keys in request don't hash to the same slot":                                            "CROSSSLOT",
		"DENIED Redis is running in protected mode":                                                        "DENIED",
		"ERR unknown command 'evalsha', with args beginning with: '" + s.SHA + "' '1' 'k' ":                "ERR",
		"ERR unknown command `evalsha`, with args beginning with: `" + s.SHA + "`, `1`, `k`, ":             "ERR",
		"ERR Error compiling script (new function): user_script:1: unexpected symbol":                      "ERR",
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			fake := startFake(t, func(string, int) string { return "-" + line })
			_, err := runInt(within(t, 10*time.Second), fake.client(t), s, "k")
			e := requireOutcome(t, err, lua.ErrNotExecuted)
			require.Equal(t, code, e.Code)
			require.Equal(t, "count", e.Script)
			require.Equal(t, 1, e.Tries)
			require.Equal(t, 1, fake.count("EVALSHA"))
		})
	}
}

// A script that only reads leaves nothing behind, wherever it stops.
func TestAReadThatStopsHasChangedNothing(t *testing.T) {
	t.Parallel()
	s := newScript("count", countSource, lua.RetrySafe)
	s.ReadOnly = true
	for line, code := range map[string]string{
		"WRONGTYPE Operation against a key script: " + s.SHA + ", on @user_script:7.":     "WRONGTYPE",
		"ERR user_script:3: attempt to index a nil value script: " + s.SHA + ", on @user": "ERR",
	} {
		fake := startFake(t, func(string, int) string { return "-" + line })
		_, err := runInt(within(t, 10*time.Second), fake.client(t), s, "k")
		require.Equal(t, code, requireOutcome(t, err, lua.ErrNotExecuted).Code)
		require.NotErrorIs(t, err, lua.ErrExecutedInPart)
		require.Equal(t, 1, fake.count("EVALSHA_RO"))
	}
}

func TestErrorsInsideAScriptAreNeverRepeated(t *testing.T) {
	t.Parallel()
	s := newScript("count", countSource, lua.RetrySafe)
	inside := " script: " + s.SHA + ", on @user_script:7."
	for line, want := range map[string]struct {
		code string
		line int
	}{
		"WRONGTYPE Operation against a key holding the wrong kind of value" + inside: {
			"WRONGTYPE", 7},
		"WRONGTYPE Operation against a key holding the wrong kind of value": {
			"WRONGTYPE", 0},
		"ERR user_script:3: attempt to index a nil value" + inside: {"ERR",
			3},
		"ERR Error running script (call to f_" + s.SHA + "): @user_script:12: user_script:12: oops": {"ERR",
			12},
		"ERR ACL failure in script: User app has no permissions to run the 'set' command" + inside: {"ERR",
			7},
		"NOPERM ACL failure in script: User app has no permissions to run the 'set' command" + inside: {
			"NOPERM", 7},
		"ERR Script attempted to access a non local key in a cluster node" + inside: {"ERR",
			7},
		"ERR Unknown Redis command called from script" + inside: {"ERR",
			7},
		"TRYAGAIN raised by a script" + inside: {
			"TRYAGAIN", 7},
		"NOSCRIPT raised by a script" + inside: {
			"NOSCRIPT", 7},
		"LOADING raised by a script" + inside: {
			"LOADING", 7},
		"BUSY raised by a script" + inside: {"BUSY",
			7},
		"ERR value is not an integer or out of range": {"ERR",
			0},
		"ERR Error running script: WRONGTYPE Operation against a key holding the wrong kind of value": {
			"WRONGTYPE", 0},
		"ERR unknown command 'nope', with args beginning with: 'k' script: " + s.SHA + ", on @user_script:2": {"ERR",
			2},
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			fake := startFake(t, func(verb string, _ int) string {
				if verb == "TYPE" {
					return "+hash"
				}
				return "-" + line
			})
			_, err := runInt(within(t, 10*time.Second), fake.client(t), s, "k")
			e := requireOutcome(t, err, lua.ErrExecutedInPart)
			require.Equal(t, want.code, e.Code)
			require.Equal(t, want.line, e.Line)
			require.Equal(t, want.code == "WRONGTYPE", errors.Is(err, lua.ErrWrongType))
			require.Equal(t, 1, fake.count("EVALSHA"))
		})
	}
}

func TestNoScriptOfEveryServerLoadsTheScript(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"NOSCRIPT No matching script. Please use EVAL.", "NOSCRIPT No matching script."} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			s := newScript("count", countSource, lua.RetryNever)
			fake := startFake(t, func(verb string, nth int) string {
				switch {
				case verb == "SCRIPT LOAD":
					return "+" + s.SHA
				case nth == 1:
					return "-" + line
				}
				return ":1"
			})
			_, err := runInt(within(t, 10*time.Second), fake.client(t), s, "k")
			require.NoError(t, err)
			require.Equal(t, 2, fake.count("EVALSHA"))
			require.Equal(t, 1, fake.count("SCRIPT LOAD"))
			require.Zero(t, fake.count("EVAL"))
		})
	}
}

func TestDeclaredErrorMatchesItsOwnScriptOnly(t *testing.T) {
	t.Parallel()
	s := newScript("push", `return redis.error_reply('FULL 3 items at most')`, lua.RetrySafe)
	_, err := runInt(within(t, 10*time.Second), luatomictest.Client(t), s, luatomictest.Namespace(t))
	e := requireOutcome(t, err, lua.ErrRefused)
	require.Equal(t, "FULL", e.Code)
	require.ErrorIs(t, err, &lua.Code{Script: "push", Name: "FULL", Text: "no room"})
	require.NotErrorIs(t, err, &lua.Code{Script: "take", Name: "FULL"})
	require.NotErrorIs(t, err, &lua.Code{Script: "push", Name: "STALE"})
	require.EqualError(t, &lua.Code{Script: "push", Name: "FULL", Text: "no room"}, "push: FULL: no room")
}

// A text that the script returns may hold anything: only where a server puts the position of an error is one looked
// for.
func TestDataInARefusalDoesNotChangeItsClass(t *testing.T) {
	t.Parallel()
	client := luatomictest.Client(t)
	for _, code := range []string{"HELD", "DENIED", "NOPERM", "OOM", "WRONGTYPE"} { // a server has most of them, too
		s := newScript("hold", "return redis.error_reply('"+code+" by ' .. KEYS[1])", lua.RetrySafe)
		s.Codes = []string{"FULL", code}
		for _, holder := range []string{
			"worker-7", "user_script_runner", "user_script:7:", s.SHA, "a script: b", "a script: " + s.SHA, "WRONGTYPE",
			"on @user_script:7.", "script: 0123, on @user_script:7.",
		} {
			_, err := runInt(within(t, 10*time.Second), client, s, holder)
			e := requireOutcome(t, err, lua.ErrRefused)
			require.ErrorIs(t, err, &lua.Code{Script: "hold", Name: code})
			require.Zero(t, e.Line)
		}
		raised := newScript("raise", "\nerror({err = '"+code+" half-way'})", lua.RetrySafe)
		raised.Codes = s.Codes
		_, err := runInt(within(t, 10*time.Second), client, raised, luatomictest.Namespace(t))
		if code != "OOM" {
			require.Equal(t, 2, requireOutcome(t, err, lua.ErrExecutedInPart).Line)
		}
		require.NotErrorIs(t, err, lua.ErrRefused)
	}
}

// Chunks of loadstring have names of their own.
func TestPositionsOfEveryServerAreInsideTheScript(t *testing.T) {
	t.Parallel()
	s := newScript("hold", countSource, lua.RetrySafe)
	s.Codes = []string{"HELD"}
	for end, line := range map[string]int{
		" script: " + s.SHA + ", on @user_script:7.":                   7,
		" script: on @user_script:7.":                                  7,
		" script: " + s.SHA + ", on chunk:1.":                          0,
		" by user_script:3: script: " + s.SHA + ", on @user_script:7.": 7,
		" by a script: on @user_script:3. script: on @user_script:7.":  7,
	} {
		fake := startFake(t, func(string, int) string { return "-HELD half-way" + end })
		_, err := runInt(within(t, 10*time.Second), fake.client(t), s, "k")
		require.Equal(t, line, requireOutcome(t, err, lua.ErrExecutedInPart).Line, end)
	}
}

func TestDeclaredCodeDoesNotMatchARaisedError(t *testing.T) {
	t.Parallel()
	s := newScript("push", "redis.call('SET', KEYS[1], 1)\nerror({err = 'FULL half-way'})", lua.RetrySafe)
	client := luatomictest.Client(t)
	preload(t, client, s)
	_, err := runInt(within(t, 10*time.Second), client, s, luatomictest.Namespace(t))
	requireOutcome(t, err, lua.ErrExecutedInPart)
	require.NotErrorIs(t, err, &lua.Code{Script: "push", Name: "FULL"})
}

func TestServerErrorsNameScriptAndLine(t *testing.T) {
	t.Parallel()
	client := luatomictest.Client(t)
	for name, tc := range map[string]struct {
		body string
		line int
	}{
		"lua":     {"redis.call('INCR', KEYS[1])\nlocal t = nil\nreturn t.x", 3},
		"command": {"redis.call('INCR', KEYS[1])\n\n\nreturn redis.call('SET', KEYS[1])", 4},
		"unknown": {"redis.call('INCR', KEYS[1])\nreturn redis.call('NOSUCHCOMMAND', KEYS[1])", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, key := newScript("broken_"+name, tc.body, lua.RetrySafe), luatomictest.Namespace(t)
			_, err := runInt(within(t, 10*time.Second), client, s, key)
			e := requireOutcome(t, err, lua.ErrExecutedInPart)
			require.Equal(t, tc.line, e.Line)
			require.Contains(t, err.Error(), "executed in part")
			require.Equal(t, 1, counted(t, client, key), "run once, and what it wrote stays")
		})
	}
}

// An error in a script with fragments names the file and line of the source, of the fragment or of the guard; which
// commands write stays a matter of the text that ran.
func TestServerErrorsNameTheFragment(t *testing.T) {
	t.Parallel()
	client := luatomictest.Client(t)
	s := newScript("folded", "local key = KEYS[1]\nredis.call('GET', key)\nreturn redis.call('SET', key)",
		lua.RetrySafe)
	s.Lines = []lua.Lines{{At: 1, File: "scripts/folded.lua", Line: 7}, {At: 2, File: "scripts/part/set.lua", Line: 1}}
	s.WritesAfter = 3
	require.Equal(t, "scripts/folded.lua:7", s.Place(1))
	require.Equal(t, "scripts/part/set.lua:2", s.Place(3))
	_, err := runInt(within(t, 10*time.Second), client, s, luatomictest.Namespace(t))
	e := requireOutcome(t, err, lua.ErrNotExecuted)
	require.Equal(t, "scripts/part/set.lua", e.File)
	require.Equal(t, 2, e.Line)
	require.Contains(t, err.Error(), "(folded at scripts/part/set.lua:2)")

	plain := newScript("plain", "return 1", lua.RetrySafe)
	require.Equal(t, "plain:3", plain.Place(3))
	guard := "do\n  local lease, token = table.remove(KEYS), table.remove(ARGV)\n" +
		"  redis.call('INCR', lease, token)\nend\n"
	text := guard + *s.Source
	s.Guarded = lua.Text{SHA: sha(text), Guard: &guard, Source: s.Source}
	s.GuardLines = []lua.Lines{{At: 1, File: "scripts/guard.lua", Line: 1}}
	name := luatomictest.Namespace(t)
	_, err = runInt(within(t, 10*time.Second), lua.Guard(client, held{"{" + name + "}k", "t"}), s, "{"+name+"}a")
	require.ErrorAs(t, err, &e)
	require.Equal(t, "scripts/guard.lua", e.File)
	require.Equal(t, 3, e.Line)
}

func TestWrongTypeNamesTheKeyAndBothTypes(t *testing.T) {
	t.Parallel()
	client, key := luatomictest.Client(t), luatomictest.Namespace(t)
	ctx := within(t, 10*time.Second)
	s := newScript("move", "return redis.call('RPUSH', KEYS[2], 1)", lua.RetrySafe)
	s.Keys = []lua.Key{{Name: "from"}, {Name: "ready", Type: "list", Variadic: true}}
	require.NoError(t, client.Set(ctx, "{"+key+"}b", "text", 0).Err())
	_, err := runInt(ctx, client, s, "{"+key+"}a", "{"+key+"}b")
	e := requireOutcome(t, err, lua.ErrExecutedInPart)
	require.ErrorIs(t, err, lua.ErrWrongType)
	require.Contains(t, e.Detail, `}b" (ready) holds a string, not a list`)
	require.Contains(t, err.Error(), e.Detail)
}

// slow makes each round trip of a client last longer.
type slow time.Duration

func (s slow) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s slow) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		time.Sleep(time.Duration(s))
		return next(ctx, cmd)
	}
}

func (s slow) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		time.Sleep(time.Duration(s))
		return next(ctx, cmds)
	}
}

// The search for the key takes one round trip: with one for each of many keys it would not end in time.
func TestWrongTypeIsFoundAmongManyKeysOfAFarServer(t *testing.T) {
	t.Parallel()
	client, tag := luatomictest.Client(t), "{"+luatomictest.Namespace(t)+"}"
	client.AddHook(slow(20 * time.Millisecond))
	ctx := within(t, 30*time.Second)
	s := newScript("move", "return redis.call('RPUSH', KEYS[#KEYS], 1)", lua.RetrySafe)
	s.Keys = []lua.Key{{Name: "ready", Type: "list", Variadic: true}}
	keys := make([]string, 100)
	for i := range keys {
		keys[i] = tag + strconv.Itoa(i)
	}
	require.NoError(t, client.Set(ctx, keys[99], "text", 0).Err())
	_, err := runInt(ctx, client, s, keys...)
	require.ErrorContains(t, err, tag+`99" (ready) holds a string, not a list`)
}

func TestPermissionMissingInsideIsExecutedInPart(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	ctx := within(t, 10*time.Second)
	require.NoError(t, server.Client().Do(ctx, "ACL", "SETUSER", "app", "on", ">pw", "~*", "+@all", "-set").Err())
	s := newScript("mixed", "redis.call('INCR', KEYS[1])\nredis.call('SET', KEYS[1], 9)\nreturn 1", lua.RetrySafe)
	client := server.Client(as("app"))
	_, err := runInt(ctx, client, s, "k")
	e := requireOutcome(t, err, lua.ErrExecutedInPart)
	require.Equal(t, 2, e.Line)
	require.Equal(t, 1, counted(t, client, "k"))
}

func TestErrorCarriesNoArgument(t *testing.T) {
	t.Parallel()
	const secret = "a-payload-that-must-stay-private"
	s := newScript("broken", "local t = nil\nreturn t.x", lua.RetrySafe)
	c := lua.NewCall(s, 1, 1)
	c.Key("key", luatomictest.Namespace(t))
	c.EndKeys()
	body := []byte(secret)
	c.Bytes(&body)
	_, err := lua.Run(within(t, 10*time.Second), luatomictest.Client(t), c, decodeInt)
	requireOutcome(t, err, lua.ErrExecutedInPart)
	require.False(t, strings.Contains(err.Error(), secret))
}
