package luaprove_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/tools/luagen/luagen"
	"github.com/luatomic/luatomic/tools/luagen/luaprove"
)

func TestMain(m *testing.M) { luatomictest.Main(m) }

func client(t *testing.T) *redis.Client {
	t.Helper()
	return luatomictest.StartServer(t).Client()
}

func parse(t *testing.T, text string) *luagen.Script {
	t.Helper()
	s, found := luagen.Parse("a.lua", text)
	require.False(t, found.HasErrors(), "%v", found)
	return s
}

func prove(t *testing.T, text string) luaprove.Result {
	t.Helper()
	result, err := luaprove.Prove(t.Context(), client(t), parse(t, text), nil, 300, 1)
	require.NoError(t, err)
	return result
}

const head = "--- A does it.\n"

// The mark is written first; where it cannot be, nothing is. The rest is undone.
const counted = head + `---@contract all-or-nothing
---@retry safe  the mark of the call
---@key n    string
---@key done set
---@arg id   string
---@error TEXT no number

local n, done, id = KEYS[1], KEYS[2], ARGV[1]
if redis.call('SISMEMBER', done, id) == 1 then return end
if not tonumber(redis.call('GET', n) or 0) then return redis.error_reply('TEXT here') end
redis.call('SADD', done, id)
local added = redis.pcall('INCR', n)
if type(added) == 'table' then
  redis.call('SREM', done, id)
  return added
end
`

func TestPromisesThatHold(t *testing.T) {
	t.Parallel()
	result := prove(t, counted)
	require.Empty(t, result.Broken)
	require.Equal(t, 300, result.Calls)
	require.Positive(t, result.Repeats)
	require.Positive(t, result.Faults)
	require.Positive(t, result.WrongTypes)
	careless := strings.Replace(counted, "  redis.call('SREM', done, id)\n", "", 1)
	require.Contains(t, prove(t, careless).Broken, "V002: all-or-nothing, and a call that failed")
	accepted := strings.Replace(careless, "---@error",
		"---@allow V002 done: a call that failed is not made again\n---@error", 1)
	require.Empty(t, prove(t, accepted).Broken)
	other := strings.Replace(careless, "---@error", "---@allow V002 n: of another key\n---@error", 1)
	require.NotEmpty(t, prove(t, other).Broken)
}

func TestPromisesThatDoNotHold(t *testing.T) {
	t.Parallel()
	const move = "---@key a list\n---@key b list\n\nlocal id = redis.call('LINDEX', KEYS[1], 0)\nif not id then " +
		"return end\n"
	const first, then = "redis.call('LPOP', KEYS[1])\n", "redis.call('RPUSH', KEYS[2], id)\n"
	const broken, differs = "V002: all-or-nothing, and a call that failed", "V001: @retry safe, and a repeat changed"
	const resumed = "---@contract dup-only\n---@retry resume\n"
	for text, want := range map[string]string{
		"---@contract all-or-nothing\n---@retry safe\n---@key l list\n---@arg id string\n\n" +
			"if redis.call('LLEN', KEYS[1]) > 9 then return end\nredis.call('RPUSH', KEYS[1], ARGV[1])\n": differs,
		"---@contract all-or-nothing\n---@key a string\n---@key h hash\n\n" +
			"redis.call('SET', KEYS[1], 1)\nredis.call('HSET', KEYS[2], 'f', 1)\n": broken,
		"---@readonly\n---@key a string\n\n" +
			"redis.call('SET', KEYS[1], redis.call('TIME')[1])\n": "V003: @readonly, and the call changed",
		resumed + move + first + then: "V002: dup-only, and repeats " +
			"do not make up for",
		"---@contract dup-only\n---@retry safe\n" + move + then + first: differs,
		resumed + "---@key n string\n\n" +
			"redis.call('INCR', KEYS[1])\n": "V001: @retry resume, and 100 repeats do not come",
		"---@contract dup-only\n---@key a string\n---@key b string\n\n" +
			"local v = redis.call('GET', KEYS[1])\nif v then\n  redis.call('DEL', KEYS[1])\n" +
			"  redis.call('DEL', KEYS[2])\n" +
			"  redis.call('SET', KEYS[1], 'new')\nend\n": "V002: dup-only, and \"{p}:a\" is lost after",
	} {
		result := prove(t, head+text)
		require.Contains(t, result.Broken, want)
		require.Contains(t, result.Broken, "  KEYS [")
		require.Contains(t, result.Broken, "\n  = ")
	}
	require.Empty(t, prove(t, head+"---@contract dup-only\n---@retry resume\n"+move+then+first).Broken)
}

const take = "--- Take takes n pieces.\n---@contract all-or-nothing\n---@retry safe  an order takes its pieces once\n" +
	"---@key stock hash\n---@arg n int min=1 max=1000\n---@arg order string\n---@reply int\n---@error SOLD_OUT few " +
	"are left\n\n" +
	"local stock, n, order = KEYS[1], tonumber(ARGV[1]), ARGV[2]\n" +
	"local left = tonumber(redis.call('HGET', stock, 'left') or 0)\n" +
	"if left < n then return redis.error_reply('SOLD_OUT only ' .. left) end\n"

// A script that asks for a field by its name finds it, with a number that is large enough for its arguments.
func TestFieldsThatAScriptNamesAreStored(t *testing.T) {
	t.Parallel()
	const twice = take +
		"redis.call('HSET', stock, 'o:' .. order, n)\nredis.call('HINCRBY', stock, 'left', -n)\nreturn left - n\n"
	require.Regexp(t, "^V001: @retry safe|^V002: all-or-nothing", prove(t, twice).Broken)
	many := strings.NewReplacer("min=1 max=1000", "min=5000", "@retry safe ", "@retry never ").Replace(twice)
	require.Contains(t, prove(t, many).Broken, "V002: all-or-nothing, and a call that failed left something behind")
	require.Contains(t, prove(t, strings.Replace(many, "min=5000", "max=900000", 1)).Broken, "V002: all-or-nothing")
}

// A script none of whose calls succeeds with a write has shown nothing; one that may not write has no write to try.
func TestNotTried(t *testing.T) {
	t.Parallel()
	client := client(t)
	unnamed := strings.Replace(take, "'left'", "'le' .. 'ft'", 1)
	for text, want := range map[string]string{
		head + "---@contract all-or-nothing\n---@key h hash\n\n" +
			"redis.call('HDEL', KEYS[1], 'no' .. 'ne')\n": "changes anything",
		head + "---@contract all-or-nothing\n---@key z zset\n\n" +
			"redis.call('ZREM', KEYS[1], '')\nredis.call('PUBLISH', 'c', 1)\n": "",
		unnamed + "redis.call('HINCRBY', stock, 'le' .. 'ft', -n)\nreturn left - n\n": "no call",
		counted: "",
		head + "---@readonly\n---@key a string\n\nreturn redis.call('GET', KEYS[1])\n": "",
	} {
		s := parse(t, text)
		result, err := luaprove.Prove(t.Context(), client, s, nil, 100, 1)
		require.NoError(t, err)
		require.Empty(t, result.Broken)
		if got := result.NotTried(s); want == "" {
			require.Empty(t, got, text)
		} else {
			require.Contains(t, got, want)
		}
		none, err := luaprove.Prove(t.Context(), client, s, nil, 0, 1)
		require.NoError(t, err)
		require.NotEmpty(t, none.NotTried(s), "no call at all")
	}
}

// What a repeat or a failed write does to times to live, and to what a stream knows of its groups, is a change.
func TestPromisesOfTimesAndGroups(t *testing.T) {
	t.Parallel()
	const longer = "---@contract all-or-nothing\n---@retry safe\n---@key lease string\n---@arg ttl ms min=1\n\n" +
		"local left = redis.call('PTTL', KEYS[1])\nif left < 0 then return end\n"
	const stream = "---@contract all-or-nothing\n---@key log stream\n---@arg name string\n\n" +
		"if redis.call('XLEN', KEYS[1]) == 0 then return end\n"
	repeated := strings.Replace(stream, "---@key", "---@retry safe\n---@key", 1)
	const reads, claims = "pcall(redis.call, 'XREADGROUP', 'GROUP', 'a', ",
		"pcall(redis.call, 'XCLAIM', KEYS[1], 'a', 'b', 0, '1-1'"
	const extends = "redis.call('PEXPIRE', KEYS[1], ARGV[1])\n"
	for text, want := range map[string]string{
		longer + "redis.call('PEXPIRE', KEYS[1], left + ARGV[1])\n": "V001: @retry safe, and a repeat changed",
		longer + extends: "",
		longer + "redis.call('PERSIST', KEYS[1])\n": "",
		longer + extends + extends:                  "V002: all-or-nothing, and a call that failed",
		stream + "redis.call('XGROUP', 'CREATE', KEYS[1], 'new', '0')\n" +
			"redis.call('XTRIM', KEYS[1], 'MAXLEN', 1)\n": "V002: all-or-nothing, and a call that failed",
		stream + "redis.call('XADD', KEYS[1], '*', 'name', ARGV[1])\n":       "",
		repeated + reads + "ARGV[1], 'COUNT', 1, 'STREAMS', KEYS[1], '>')\n": "V001: @retry safe",
		repeated + claims + ")\n":                         "V001: @retry safe",
		repeated + claims + ", 'JUSTID')\n":               "",
		repeated + "redis.call('XDEL', KEYS[1], '1-1')\n": "",
		strings.Replace(repeated, "all-or-nothing", "dup-only", 1) +
			"pcall(redis.call, 'XADD', KEYS[1], '3-3', 'a', 1)\n": "",
	} {
		result := prove(t, head+text)
		require.Positive(t, result.Changes, text)
		if want == "" {
			require.Empty(t, result.Broken, text)
			continue
		}
		require.Contains(t, result.Broken, want, text)
	}
}

// A server that is slow between a run and the look at what it left says nothing about times to live, in the first run
// or in the second.
func TestASlowRunBreaksNoPromise(t *testing.T) {
	t.Parallel()
	const slow = "local n = 0\nfor i = 1, 1e6 do n = n + i end\n"
	for what, where := range map[string]string{"the first run": "left < 50000", "the second run": "left > 50000"} {
		s := parse(t, head+"---@contract all-or-nothing\n---@retry safe\n---@key lease string\n\n"+
			"local left = redis.call('PTTL', KEYS[1])\nif left < 0 then return end\n"+
			"redis.call('PEXPIRE', KEYS[1], 90000)\nif "+where+" then\n"+slow+"end\n")
		result, err := luaprove.Prove(t.Context(), client(t), s, nil, 30, 1)
		require.NoError(t, err)
		require.Empty(t, result.Broken, what)
		require.Positive(t, result.Changes)
		require.Positive(t, result.Repeats)
	}
}

// Two scripts that only take leave nothing for each other: data is drawn for them.
func TestAFamilyOfConsumersMeetsData(t *testing.T) {
	t.Parallel()
	pop := parse(t,
		head+"---@contract all-or-nothing\n---@retry safe\n---@key jobs list\n\nredis.call('LPOP', KEYS[1])\n")
	cut := parse(t, head+"---@contract all-or-nothing\n---@key jobs list\n\nredis.call('LTRIM', KEYS[1], 1, -1)\n")
	cut.Stem = "cut"
	result, err := luaprove.Prove(t.Context(), client(t), pop, []*luagen.Script{pop, cut}, 100, 1)
	require.NoError(t, err)
	require.Contains(t, result.Broken, "V001: @retry safe, and a repeat changed")
}

// A pop finds what a push beside it has left, and nothing without it.
func TestScriptsOfAFolderMakeTheDataOfEachOther(t *testing.T) {
	t.Parallel()
	pop := parse(t, "--- Pop pops.\n---@contract all-or-nothing\n---@retry safe\n---@key jobs list\n\n"+
		"local job = redis.call('LINDEX', KEYS[1], 0)\nif job and string.sub(job, 1, 4) == 'job:' then "+
		"redis.call('LPOP', KEYS[1]) end\n")
	push := parse(t, "--- Push pushes.\n---@contract all-or-nothing\n---@key jobs list\n---@arg id string\n\n"+
		"redis.call('RPUSH', KEYS[1], 'job:' .. ARGV[1])\n")
	push.Stem = "push"
	alone, err := luaprove.Prove(t.Context(), client(t), pop, nil, 100, 1)
	require.NoError(t, err)
	require.Empty(t, alone.Broken)
	beside, err := luaprove.Prove(t.Context(), client(t), pop, []*luagen.Script{pop, push}, 100, 1)
	require.NoError(t, err)
	require.Contains(t, beside.Broken, "V001: @retry safe, and a repeat changed")
	require.Contains(t, beside.Broken, "job:")
}

// The same seed draws the same calls.
func TestSeedRepeatsTheCalls(t *testing.T) {
	t.Parallel()
	const text = head + "---@contract all-or-nothing\n---@retry safe\n---@key l list\n---@arg id string\n\n" +
		"redis.call('LREM', KEYS[1], 1, ARGV[1])\n"
	first := prove(t, text)
	require.NotEmpty(t, first.Broken)
	require.Equal(t, first, prove(t, text))
}

// What fix makes of a script does the same; another script does not.
func TestFixedScriptsDoTheSame(t *testing.T) {
	t.Parallel()
	client := client(t)
	const bare = "local left = tonumber(redis.call('GET', KEYS[1]) or 0)\nif left < tonumber(ARGV[1]) then\n" +
		"  return redis.error_reply('SOLD_OUT up')\nend\nredis.call('LPUSH', KEYS[2], ARGV[1], ARGV[2])\n" +
		"return redis.call('DECRBY', KEYS[1], ARGV[1])\n"
	drafted, err := luagen.Draft("take.lua", bare)
	require.NoError(t, err)
	fixed, err := luagen.Fix("take.lua", drafted)
	require.NoError(t, err)
	require.NotEqual(t, drafted, fixed)
	s, _ := luagen.Parse("take.lua", fixed)
	differs, err := luaprove.Same(t.Context(), client, s, bare, fixed, 200, 1)
	require.NoError(t, err)
	require.Empty(t, differs)
	differs, err = luaprove.Same(t.Context(), client, s, bare, bare+"-- \n", 50, 1)
	require.NoError(t, err)
	require.Empty(t, differs)
	differs, err = luaprove.Same(t.Context(), client, s, bare, "return 1\n", 50, 1)
	require.NoError(t, err)
	require.Contains(t, differs, "ARGV [")
}

// Valkey has the table redis under the name server, too. A local of that name stands for it here.
func TestFaultsAreThoseOfServerToo(t *testing.T) {
	t.Parallel()
	c := client(t)
	writes, err := luaprove.WriteCommands(t.Context(), c)
	require.NoError(t, err)
	fault := luaprove.Fault{Writes: writes, Reached: "reached", Clock: time.Unix(7, 0)}
	const script = "server.call('SET', KEYS[1], 'x')\nreturn server.call('TIME')[1]"
	err = c.Eval(t.Context(), "local server = redis "+fault.Text(script, 1), []string{"k"}).Err()
	require.ErrorContains(t, err, "failpoint 1, SET")
	now, err := c.Eval(t.Context(), "local server = redis "+fault.Text(script, 0), []string{"k"}).Result()
	require.NoError(t, err)
	require.Equal(t, "7", now)
	err = c.Eval(t.Context(), fault.Text("return server == nil and 1 or 0", 0), nil).Err()
	require.NoError(t, err, "a server without it is asked in peace")
}

// A container command, such as XGROUP, is no write: its subcommands are. Here nothing but a failed write can leave the
// member without its group.
func TestAWriteOfASubcommandFailsToo(t *testing.T) {
	t.Parallel()
	result := prove(t, head+"---@contract all-or-nothing\n---@retry never\n---@key seen set\n---@key jobs stream\n"+
		"---@arg id string\n\nlocal seen, jobs, id = KEYS[1], KEYS[2], ARGV[1]\n"+
		"if redis.call('EXISTS', jobs) == 1 then return end\nredis.call('SADD', seen, id)\n"+
		"redis.call('XGROUP', 'CREATE', jobs, id, '$', 'MKSTREAM')\n")
	require.Contains(t, result.Broken, "V002: all-or-nothing, and a call that failed left something behind: "+
		"ERR failpoint 2, XGROUP")
}

// A script whose writes cannot be made to fail is not one whose calls change nothing.
func TestAScriptWithoutRoomForAFailureIsNamed(t *testing.T) {
	t.Parallel()
	var locals, sum strings.Builder
	for i := range 60 {
		fmt.Fprintf(&locals, "local u%d = %d\n", i, i)
		fmt.Fprintf(&sum, " + u%d", i)
	}
	s := parse(t, head+"---@contract all-or-nothing\n---@retry never\n---@key n string\n\nlocal n = KEYS[1]\n"+
		locals.String()+"local function add()\n  redis.call('INCRBY', KEYS[1], 1"+sum.String()+")\nend\nadd()\n")
	_, err := luaprove.Prove(t.Context(), client(t), s, nil, 10, 1)
	require.ErrorContains(t, err, "a.lua cannot be proven")
	require.ErrorContains(t, err, "more than 60 upvalues in one function")
}

// A script for many whose second row is dropped tells its caller that it is done.
func TestARowOfManyThatIsDroppedIsFound(t *testing.T) {
	t.Parallel()
	const many = head + "---@contract all-or-nothing\n---@retry safe\n---@merge max=8\n---@key n string\n" +
		"---@arg v string\n\nfor i, n in ipairs(KEYS) do\n  redis.call('SET', n, ARGV[i], 'EX', 60)\n"
	result := prove(t, many+"  if i == 1 then break end\nend\n")
	require.Contains(t, result.Broken, "V004: @merge, and a call of two rows leaves what its rows leave in no order")
	require.Empty(t, prove(t, many+"end\n").Broken)
}

// An int without a least value may be below 0, and so is it drawn.
func TestCallsHaveNumbersBelowZero(t *testing.T) {
	t.Parallel()
	result := prove(t, head+"---@contract all-or-nothing\n---@retry safe\n---@key n string\n---@arg by int\n\n"+
		"local n, by = KEYS[1], tonumber(ARGV[1])\nlocal have = tonumber(redis.call('GET', n) or 0) or 0\n"+
		"if by < have and by < 0 then redis.call('SET', n, have + by) end\n")
	require.Contains(t, result.Broken, "V001: @retry safe, and a repeat changed")
}
