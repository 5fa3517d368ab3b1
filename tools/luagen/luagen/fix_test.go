package luagen_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/tools/luagen/luagen"
)

const plain = `-- Takes n from the stock.
local stockKey = KEYS[1]
local left = tonumber(redis.call('GET', stockKey) or 0)
if left < tonumber(ARGV[1]) then
  return redis.error_reply('SOLD_OUT only ' .. left)
end
redis.call('LPUSH', KEYS[2], ARGV[2])
for i = 3, #ARGV, 2 do
  local id, body = ARGV[i], ARGV[i + 1]
  redis.call('LPUSH', KEYS[2], id, body)
end
return redis.call('DECRBY', stockKey, ARGV[1])
`

const drafted = `--- Take does what its comments say.
---@contract dup-only  check: what does an error half-way leave behind?
---@retry never  check: may it run twice?
---@key stockKey string
---@key key2 list
---@arg arg1 int
---@arg arg2 string
---@args arg_list (id string, body string) max=1000
---@reply int
---@error SOLD_OUT  check: when?

`

func TestDraftOfAHeader(t *testing.T) {
	t.Parallel()
	text, err := luagen.Draft("take.lua", plain)
	require.NoError(t, err)
	require.Equal(t, drafted+plain, text)
	_, err = luagen.Draft("take.lua", text)
	require.ErrorContains(t, err, "has a header already")
	renamed, err := luagen.Draft("addJob-6.lua", plain) // luagen says to rename it to add_job_6.lua
	require.NoError(t, err)
	require.Contains(t, renamed, "--- AddJob6 does")
	_, err = luagen.Draft("take.lua", "return (")
	require.ErrorContains(t, err, "S001")
	const all = "return {redis.call('GET', KEYS[1]), redis.call('LLEN', KEYS[2]), 'x'}\n"
	read, err := luagen.Draft("peek_all.lua", all)
	require.NoError(t, err)
	require.Equal(t, "--- PeekAll does what its comments say.\n---@readonly\n---@key key1 string\n---@key key2 list\n"+
		"---@reply (v1 string?, v2 int, v3 string)\n\n"+all, read)
	const count = "return redis.call('PFCOUNT', KEYS[1])\n"
	counted, err := luagen.Draft("count.lua", count)
	require.NoError(t, err)
	require.NotContains(t, counted, "@readonly", "EVALSHA_RO refuses PFCOUNT")
}

// What a script calculates with is a number; what it decodes or changes otherwise is text.
func TestDraftOfArguments(t *testing.T) {
	t.Parallel()
	text, err := luagen.Draft("put.lua", `local job = cjson.decode(ARGV[1])
local ttl = tonumber(ARGV[2] or 60)
local name = string.upper(ARGV[3])
local ms = ARGV[4] * 1000
redis.call('HSET', KEYS[1], name, job.a, 'ms', ms, 'ttl', ttl)
`)
	require.NoError(t, err)
	require.Contains(t, text, "---@arg job string\n---@arg ttl int  check: or float?\n---@arg name string\n"+
		"---@arg ms int  check: or float?\n")
}

// A command that takes a number says which: any, or a whole one. What tonumber alone shows is a guess. A number with a
// default is optional: a caller who leaves it out must not send 0 in its place.
func TestDraftOfNumbers(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		"local r = tonumber(ARGV[1])\nredis.call('INCRBYFLOAT', KEYS[1], r)":           "r float",
		"redis.call('incrbyfloat', KEYS[1], ARGV[1])":                                  "arg1 float",
		"redis.call('HINCRBYFLOAT', KEYS[1], 'f', tonumber(ARGV[1] or 1))":             "arg1 float",
		"local r = tonumber(ARGV[1])\nredis.call('HINCRBYFLOAT', KEYS[1], r, 1)":       "r int  check: or float?",
		"local n = tonumber(ARGV[1])\nredis.call('INCRBY', KEYS[1], n)":                "n int",
		"local n = tonumber(ARGV[1])\nredis.call('SET', KEYS[1], 1, 'px', n)":          "n int",
		"local n = tonumber(ARGV[1])\nfor i = 1, n do redis.call('LPOP', KEYS[1]) end": "n int",
		"redis.call('EXPIRE', KEYS[1], (tonumber(ARGV[1])))":                           "arg1 int",
		"redis.call('EXPIRE', KEYS[1], ARGV[1])":                                       "arg1 string",
		"redis.call('SET', KEYS[1], ARGV[1] + 1)":                                      "arg1 int  check: or float?",
		"local n = tonumber(ARGV[1]) or 1\nredis.call('INCRBY', KEYS[1], n)":           "n int?",
		"redis.call('INCRBYFLOAT', KEYS[1], tonumber(ARGV[1]) or 1)":                   "arg1 float?",
		"local n = tonumber(ARGV[1]) or 1\nredis.call('SET', KEYS[1], n)":              "n int?  check: or float?",
	} {
		text, err := luagen.Draft("x.lua", body+"\n")
		require.NoError(t, err)
		require.Contains(t, text, "---@arg "+want+"\n", body)
		if strings.Contains(body, " or 1") {
			require.False(t, luagen.Vet("x.lua", text).HasErrors(), text)
		}
	}
}

// Entries behind the fixed ones are in the draft, whatever takes them, and a list that is walked from its start has
// none before it.
func TestDraftOfLists(t *testing.T) {
	t.Parallel()
	const one, list = "keys key_a max=1000", "args arg_a string max=1000"
	for body, want := range map[string]string{
		"redis.call('SADD', KEYS[1], unpack(ARGV, 2))\nredis.call('EXPIRE', KEYS[1], ARGV[1])": "key key1 set, " +
			"arg arg1 string, " + list,
		"local a = KEYS[1]\nfor _, k in ipairs(KEYS) do redis.call('DEL', k, a) end":       one,
		"local a = KEYS[1]\nfor i = 1, #KEYS do redis.call('DEL', KEYS[i], a) end":         one,
		"local n, i = ARGV[1], 2\nwhile i < #ARGV do redis.call('ECHO', n .. ARGV[i]) end": "arg n string, " + list,
		"local ttl = ARGV[1]\nfor i, k in ipairs(KEYS) do redis.call('SET', k, ARGV[i + 1], 'PX', ttl) end": one +
			", arg ttl string, " + list,
		"for i = 1, #KEYS do redis.call('SET', KEYS[i], ARGV[i + 1], 'PX', ARGV[1]) end": one + ", " +
			"arg arg1 string, " + list,
		"redis.log(redis.LOG_NOTICE, table.concat(ARGV))\nredis.call('SET', KEYS[1], ARGV[1])": "key key1 string, " +
			"arg arg1 string",
	} {
		text, err := luagen.Draft("x.lua", body+"\n")
		require.NoError(t, err)
		tags := strings.Split(strings.Split(text, "\n\n")[0], "\n")
		tags = slices.DeleteFunc(tags, func(tag string) bool {
			return !strings.HasPrefix(tag, "---@key") && !strings.HasPrefix(tag, "---@arg")
		})
		require.Equal(t, want, strings.ReplaceAll(strings.Join(tags, ", "), "---@", ""), body)
		require.False(t, luagen.Vet("x.lua", text).HasErrors(), text)
	}
}

// A reply is drafted as what the command gives: a rank is a number, a pop with a count a list, a score of INCR a text.
func TestDraftOfReplies(t *testing.T) {
	t.Parallel()
	for call, want := range map[string]string{
		"'ZRANK', KEYS[1], ARGV[1]":             "int?",
		"'SPOP', KEYS[1]":                       "string?",
		"'SPOP', KEYS[1], ARGV[1]":              "any",
		"'INCRBYFLOAT', KEYS[1], ARGV[1]":       "string",
		"'PFADD', KEYS[1], ARGV[1]":             "int",
		"'ZADD', KEYS[1], 1, ARGV[1]":           "int",
		"'ZADD', KEYS[1], 'INCR', '1', ARGV[1]": "any",
		"'LRANGE', KEYS[1], 0, 9":               "string[]",
		"'SET', KEYS[1], ARGV[1]":               "any",
		"'SET', KEYS[1], ARGV[1], 'NX'":         "string?",
	} {
		text, err := luagen.Draft("x.lua", "return redis.call("+call+")\n")
		require.NoError(t, err)
		require.Contains(t, text, "---@reply "+want+"\n", call)
	}
	text, err := luagen.Draft("x.lua", "return tonumber(redis.call('GET', KEYS[1]))\n")
	require.NoError(t, err)
	require.Contains(t, text, "---@reply int?\n", "tonumber(false) is nil")
}

func TestFixBindsEntriesAndRenames(t *testing.T) {
	t.Parallel()
	text, err := luagen.Fix("take.lua", drafted+plain)
	require.NoError(t, err)
	require.Contains(t, text,
		"-- Takes n from the stock.\nlocal key2 = KEYS[2]\nlocal arg1, arg2 = ARGV[1], ARGV[2]\nlocal stockKey = "+
			"KEYS[1]\n")
	require.Contains(t, text, "if left < tonumber(arg1) then")
	require.Contains(t, text, "redis.call('LPUSH', key2, id, body)")
	require.Contains(t, text, "for i = 3, #ARGV, 2 do\n  local id, body = ARGV[i], ARGV[i + 1]")
	for _, d := range luagen.Vet("take.lua", text) {
		require.Equal(t, "H011", d.Rule, "the guesses alone")
	}
	again, err := luagen.Fix("take.lua", text)
	require.NoError(t, err)
	require.Equal(t, text, again)

	renamed, err := luagen.Fix("take.lua", strings.ReplaceAll(drafted, "stockKey", "stock")+plain)
	require.NoError(t, err)
	require.Contains(t, renamed, "local stock = KEYS[1]\nlocal left = tonumber(redis.call('GET', stock) or 0)")
	require.NotContains(t, renamed, "stockKey")
}

func TestFixLeavesWhatItCannotName(t *testing.T) {
	t.Parallel()
	const head = "--- X does it.\n---@contract all-or-nothing\n---@key  job string\n---@arg  n int\n\n"
	for _, body := range []string{
		"local job = 1\nredis.call('SET', KEYS[1], job)\n",      // the name is another's
		"ARGV[1] = 5\nredis.call('SET', 'x', ARGV[1])\n",        // the entry changes
		"local m = n\nredis.call('SET', 'x', ARGV[1], m)\n",     // a global has the name
		"table.remove(ARGV)\nredis.call('SET', 'x', ARGV[1])\n", // the entry can go
	} {
		text, err := luagen.Fix("x.lua", head+body)
		require.NoError(t, err)
		require.Equal(t, head+body, text)
	}
	_, err := luagen.Fix("x.lua", "return 1\n")
	require.ErrorContains(t, err, "has no header")
}

// A local that has an entry's name already stands for it behind its statement, and only if it always has its value.
func TestFixUsesTheNameThatAnEntryHas(t *testing.T) {
	t.Parallel()
	const header = "--- Put does.\n---@contract dup-only\n---@key k string\n---@arg w string\n---@reply string\n\n"
	for body, want := range map[string]string{
		"f(ARGV[1])\nlocal w, n = ARGV[1], ARGV[1] * 2\nif n > 2 then g(ARGV[1]) end\n" +
			"return h(function() return ARGV[1] end)": "" +
			"f(ARGV[1])\nlocal w, n = ARGV[1], ARGV[1] * 2\nif n > 2 then g(w) end\n" +
			"return h(function() return w end)",
		"local k = KEYS[1]\nreturn redis.call('GET', KEYS[1])":     "local k = KEYS[1]\nreturn redis.call('GET', k)",
		"local w = tonumber(ARGV[1])\nreturn f(ARGV[1])":           "",
		"local w = ARGV[1]\nw = 5\nreturn f(ARGV[1])":              "",
		"if f() then\n  local w = ARGV[1]\nend\nreturn f(ARGV[1])": "",
		"local w = ARGV[1]\nfor w = 1, 2 do\n  f(ARGV[1], w)\nend": "",
		"local w = ARGV[1]\nARGV[1] = 'x'\nreturn f(ARGV[1])":      "",
		"local w = ARGV[2]\nreturn f(ARGV[1])":                     "",
	} {
		fixed, err := luagen.Fix("put.lua", header+body)
		require.NoError(t, err)
		if want == "" {
			want = body
		}
		require.Equal(t, header+want, fixed)
	}
}
