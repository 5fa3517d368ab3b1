package luagen

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The line before the first place where a script may write, or that of its first write where nothing comes after it.
func TestLinesBeforeTheFirstWrite(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		body string
		want int
	}{
		"a command alone": {"local n = redis.call('GET', KEYS[1])\nredis.call('SET', KEYS[1], n)\n" +
			"return n", 2},
		"kept in a local":       {"\nlocal n = redis.call('INCR', KEYS[1])\nreturn n + 1", 2},
		"returned":              {"\nreturn redis.call('INCR', KEYS[1])", 2},
		"inside an expression":  {"\nreturn redis.call('INCR', KEYS[1]) + nil", 1},
		"inside a call":         {"\nreturn tonumber(\n  redis.call('INCR', KEYS[1])\n)", 1},
		"with more in its line": {"\nredis.call('INCR', KEYS[1]) error('x')", 1},
		"beside another":        {"\nlocal a, b = redis.call('INCR', KEYS[1]), nil + 1", 1},
		"a condition": {"\nif redis.call('SETNX', KEYS[1], 1) == 0 then\n  return 0\nend\n" +
			"return 1", 1},
		"in a branch": {"if ARGV[1] then\n  redis.call('DEL', KEYS[1])\nend\nerror('x')", 2},
		"in the second branch": {"if ARGV[1] then\n  error('x')\nelseif ARGV[2] then\n" +
			"  redis.call('DEL', KEYS[1])\nend", 4},
		"a loop": {"local x\nfor i = 1, 2 do\n  error('x')\n" +
			"  redis.call('INCR', KEYS[1])\nend", 1},
		"a condition of a loop": {"local x\nwhile redis.call('LPOP', KEYS[1]) do\n  error('x')\nend", 1},
		"after a loop that reads": {"for i = 1, 2 do\n  redis.call('GET', KEYS[1])\nend\n" +
			"redis.call('DEL', KEYS[1])", 4},
		"a function": {"local x\nlocal function f()\n  error('x')\nend\n" +
			"redis.call('DEL', KEYS[1])\nf()", 1},
		"a function that writes": {"local x\nlocal function f()\n  redis.call('DEL', KEYS[1])\nend\n" +
			"f()\nerror('x')", 1},
		"a function that is over": {"local function f()\n  return redis.call('GET', KEYS[1])\nend\n" +
			"local function g()\n  return f()\nend\ng()\nredis.call('DEL', KEYS[1])\nerror('x')", 8},
		"a function of one that is not": {"local x\nlocal function f()\n  error('x')\nend\n" +
			"local function g()\n  f()\nend\nredis.call('DEL', KEYS[1])\ng()", 1},
		"a function that is over, and one that is not": {"local function f()\n  error('x')\nend\nlocal x\n" +
			"local function g()\n  error('x')\nend\nf()\nredis.call('DEL', KEYS[1])\ng()", 4},
		"a function in the first write": {"local function f()\n  error('x')\nend\n" +
			"redis.call('DEL', f())", 0},
		"a function around the first write": {"local x\nlocal function f(n)\n  error('x')\nend\n" +
			"f(redis.call('DEL', KEYS[1]))", 1},
		"a function around the first write, by another": {"local x\nlocal function f(n)\n  error('x')\nend\n" +
			"local function g(n)\n  return f(n)\nend\nreturn {tostring(g(redis.call('DEL', KEYS[1])))}", 1},
		"a function that is kept": {"local x\nlocal function f()\n  error('x')\nend\nx = {f}\n" +
			"redis.call('DEL', KEYS[1])\nx[1]()", 1},
		"a function that is another later": {"local x\nlocal function f()\n  error('x')\nend\nf = x\n" +
			"redis.call('DEL', KEYS[1])", 1},
		"a function in a function": {"local x\nlocal function f()\n  return function() error('x') end\nend\n" +
			"x = f()\nredis.call('DEL', KEYS[1])\nx()", 1},
		"a function in a loop": {"local x\nfor i = 1, 2 do\n  x = function() end\nend\n" +
			"redis.call('DEL', KEYS[1])", 1},
		"publishes":         {"local x\nredis.call('PUBLISH', KEYS[1], 1)\nerror('x')", 2},
		"unknown to luagen": {"local x\nredis.call('JSON.SET', KEYS[1], 1)\nerror('x')", 2},
		"computed":          {"local x\nredis.call(ARGV[1], KEYS[1])\nerror('x')", 2},
		"one of two":        {"local x\nredis.call(x and 'GET' or 'DEL', KEYS[1])\nerror('x')", 2},
		"unpacked":          {"local x\nredis.call(unpack(ARGV))\nerror('x')", 2},
		"protected":         {"local x\nlocal r = redis.pcall('DEL', KEYS[1])\nerror('x')", 2},
		"protected by Lua": {"local x\nlocal ok, r = pcall(redis.call, 'DEL', KEYS[1])\n" +
			"error('x')", 2},
		"under another name": {"local call = redis.call\ncall('GET', KEYS[1])\ncall('DEL', KEYS[1])\n" +
			"error('x')", 3},
		"under a third name": {"local call = redis.call\nlocal del = call\ndel('DEL', KEYS[1])\n" +
			"error('x')", 1},
		"of another table": {"local r = redis\nr.call('GET', KEYS[1])\nr.call('DEL', KEYS[1])\n" +
			"error('x')", 3},
		"of Valkey's table": {"server.call('GET', KEYS[1])\nserver.call('DEL', KEYS[1])\n" +
			"error('x')", 2},
		"kept in a table": {"local x\nlocal t = {redis.call}\nt[1]('DEL', KEYS[1])\nerror('x')", 1},
		"handed on":       {"local x\nstring.gsub('DEL', '.+', redis.call)\nerror('x')", 1},
		"handed on as a name": {"local call = redis.call\nstring.gsub('DEL', '.+', call)\n" +
			"error('x')", 1},
		"a name that is set again": {"local x\nlocal call = redis.call\ncall = redis.pcall\n" +
			"call('DEL', KEYS[1])\nerror('x')", 1},
		"an argument of a command": {"local x\nredis.call('GET', redis.call)\nerror('x')", 1},
		"the whole table":          {"local x\nlocal t = {redis}\nt[1].call('DEL', KEYS[1])\nerror('x')", 1},
		"a computed field":         {"local x\nredis['ca' .. 'll']('DEL', KEYS[1])\nerror('x')", 1},
		"text that is run":         {"local x\nloadstring(ARGV[1])()\nerror('x')", 1},
		"nothing is written":       {"local x = redis.call('GET', KEYS[1])\nreturn x", 2},
		"the first line":           {"return redis.call('INCR', KEYS[1]) + 1", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := Parse("x.lua", row.body)
			require.NotNil(t, s.Body, name)
			require.Equal(t, row.want, s.writesAfter(), "%s", row.body)
		})
	}
}

// A row of a script for many that fails is sent by itself, and then the loop over the rows has one turn. No other loop
// is known to have one.
func TestLinesBeforeTheFirstWriteOfARow(t *testing.T) {
	t.Parallel()
	const write = " do\n  redis.call('GET', KEYS[1])\n  redis.call('DEL', KEYS[1])\n  error('x')\nend"
	for loop, rows := range map[string][3]bool{ // of one to three keys
		"for i, k in ipairs(KEYS)":         {true, false, false},
		"for i, k in pairs(KEYS)":          {},
		"for i, k in ipairs(ARGV)":         {},
		"for i, k in ipairs({1, 2})":       {},
		"for i, k in next, KEYS":           {},
		"for i = 1, #KEYS":                 {true, false, false},
		"for i = 1, #KEYS, 2":              {false, true, false},
		"for i = 1, #KEYS / 3":             {false, false, true},
		"for i = 1, #KEYS / 3, 1":          {},
		"for i = 0, #KEYS, 2":              {},
		"for i = 1, #ARGV":                 {},
		"for i = 1, 2":                     {},
		"for i = 1, #KEYS do for j = 1, 2": {},
	} {
		for i, once := range rows {
			s, _ := Parse("x.lua", loop+write+strings.Repeat(" end", strings.Count(loop, " do ")))
			s.Merge, s.Keys = 64, make([]Key, i+1)
			require.Zero(t, s.writesAfter(), "%s: no row is sent again", loop)
			s.Retry.Word = "safe"
			require.Equal(t, map[bool]int{true: 3, false: 0}[once], s.writesAfter(), "%s, %d keys", loop, i+1)
			s.Merge = 0
			require.Zero(t, s.writesAfter(), loop)
		}
	}
}

// A guard runs before the script: what it writes is there when the script stops.
func TestAGuardThatWritesLeavesNoLineBeforeTheFirstWrite(t *testing.T) {
	t.Parallel()
	s, _ := Parse("x.lua", "local x\nredis.call('DEL', KEYS[1])")
	for text, want := range map[string]int{
		"do\n  redis.call('GET', 'x')\nend\n":  2,
		"do\n  redis.call('INCR', 'x')\nend\n": 0,
	} {
		s.guardFile, _ = Parse("guard.lua", text)
		require.Equal(t, want, s.writesAfter(), text)
	}
}

// The generated file says it, unless the script only reads.
func TestGeneratedScriptsSayWhereTheyWrite(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		"--- Adds.\n---@contract all-or-nothing\n---@retry never\n---@key n string\n---@reply int\n" +
			"return redis.call('INCR', KEYS[1])\n": "\tWritesAfter: 6,\n",
		"--- Reads.\n---@readonly\n---@key n string\n---@reply bulk?\nreturn redis.call('GET', KEYS[1])\n": "",
	} {
		s, _ := Parse("n.lua", source)
		text, err := emitScript(s, target{pkg: "p", beside: true})
		require.NoError(t, err)
		if want == "" {
			require.NotContains(t, string(text), "WritesAfter")
			continue
		}
		require.Contains(t, strings.Join(strings.Fields(string(text)), " "), strings.TrimSpace(want))
	}
}
