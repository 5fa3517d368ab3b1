package luagen_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/tools/luagen/luagen"
)

const hostileHead = "--- A does it.\n---@contract all-or-nothing\n---@retry safe\n---@key k string\n---@arg c " +
	"string\n" +
	"\nlocal k, c = KEYS[1], ARGV[1]\n"

// Scripts of 1 MiB are judged in seconds, whatever they are made of.
func TestScriptsOf1MiBEnd(t *testing.T) {
	t.Parallel()
	size := 1 << 20
	if raceEnabled {
		size = 1 << 16 // ten times as slow
	}
	for name, unit := range map[string]string{
		"writes":  "redis.call('INCR', k)\n",
		"tests":   "if redis.call('GET', k) == c then redis.call('SET', k, 1) end\n",
		"returns": "if c == '' then return redis.call('GET', k) end\n",
		"locals":  "do local a = redis.call('GET', k) if a then redis.call('SET', k, a .. 1) end end\n",
		"loops":   "for i = 1, 3 do redis.call('LPUSH', k .. i, c) end\n",
		"lists":   "do local t = {} for i = 1, c do t[#t + 1] = i end redis.call('RPUSH', k, unpack(t)) end\n",
		"pcalls":  "do local r = redis.pcall('GET', k) if type(r) == 'table' and r.err then return r end end\n",
		"expiry":  "if redis.call('GET', KEYS[2]) then redis.call('EXPIRE', k, 1) end redis.call('INCR', k)\n",
		"slots":   "redis.call('DEL', '{' .. c .. '}' .. k, '{' .. k .. '}')\n",
		"text":    "redis.call('SET', k, 'a' .. 'b' .. c)\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, head := range []string{"", hostileHead} {
				text := head + strings.Repeat(unit, size/len(unit))
				start := time.Now()
				luagen.Vet("a.lua", text)
				require.Less(t, time.Since(start), 60*time.Second)
			}
		})
	}
}

// Numbers that are compared with each other, or that a field counts, do not lead a rule round in a circle.
func TestNumbersThatBoundEachOtherEnd(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"local a, b = ARGV[1], ARGV[2]\nif tonumber(a) < tonumber(b) then " +
			"redis.call('PEXPIRE', KEYS[1], tonumber(a)) end",
		"local t = {n = 1}\nt.n = t.n + 1\nredis.call('PEXPIRE', KEYS[1], t.n)",
		"local t = {}\nt.a = t.b t.b = t.a\nif t.a < t.b then redis.call('PEXPIRE', KEYS[1], t.a * 2) end",
		"local t = {}\nt.a = math.min(t.b, 5) t.b = math.min(t.a, t.c)\nredis.call('PEXPIRE', KEYS[1], t.b + 1)",
	} {
		luagen.Vet("a.lua", text)
	}
	text := "redis.call('PEXPIRE', KEYS[1], tonumber(ARGV[1]) * 2)\nreturn "
	for i := range 40 {
		for j := range 40 {
			text += fmt.Sprintf("tonumber(ARGV[%d]) < tonumber(ARGV[%d]) or ", i+1, j+1)
		}
	}
	start := time.Now()
	luagen.Vet("a.lua", text+"1")
	require.Less(t, time.Since(start), 60*time.Second)
}

// Deep nesting is refused with a place, or judged; it never ends the process.
func TestDeepNestingIsNoOverflow(t *testing.T) {
	t.Parallel()
	const deep = 100_000
	for _, text := range []string{
		strings.Repeat("if a then ", deep) + strings.Repeat("end ", deep),
		"return " + strings.Repeat("(", deep) + "1" + strings.Repeat(")", deep),
		"return " + strings.Repeat("not ", deep) + "1",
		"return " + strings.Repeat("{", deep) + strings.Repeat("}", deep),
		"return " + strings.Repeat("a..", deep) + "a",
	} {
		for _, d := range luagen.Vet("a.lua", text) {
			require.GreaterOrEqual(t, d.Pos.Line, 1)
			require.NotEmpty(t, d.Format(text))
		}
	}
}

// A header that is only half there is named with place and cure; nothing is generated.
func TestHalfAHeaderWritesNothing(t *testing.T) {
	t.Parallel()
	const whole = "--- Take takes n pieces.\n---@contract all-or-nothing\n---@retry never\n" +
		"---@key   stock  string = \"stock:{$item}\"  pieces\n" +
		"---@arg   n      int  min=1 max=9\n---@args  part   (a int, b string?) max=10\n---@reply (left int, rows (x " +
		"int, y string)[])\n" +
		"---@error SOLD_OUT  fewer are left\n"
	const body = "\nreturn redis.call('GET', KEYS[1])\n"
	for cut := range len(whole) {
		dir := t.TempDir()
		text := whole[:cut] + body
		require.NoError(t, os.WriteFile(filepath.Join(dir, "take.lua"), []byte(text), 0o600))
		res, err := luagen.Generate(luagen.Config{Scripts: dir, Out: dir, Package: "p", Strict: true})
		require.NoError(t, err)
		require.NotEmpty(t, res.Found, "%q", text)
		require.Empty(t, res.Changes)
		for _, d := range res.Found {
			require.GreaterOrEqual(t, d.Pos.Line, 1)
			require.GreaterOrEqual(t, d.Pos.Col, 1)
			require.NotEmpty(t, d.Cure)
			require.Contains(t, d.Format(text), fmt.Sprintf("take.lua:%d:%d: ", d.Pos.Line, d.Pos.Col))
		}
	}
}

// A Go file that does not parse is named with its place; the other files of the run are judged.
func TestGoFileThatDoesNotParse(t *testing.T) {
	t.Parallel()
	const broken = "package a\n\nvar s = redis.NewScript(`redis.call('GET', KEYS[1])`\n\nfunc {\n"
	files := luagen.VetSources([]luagen.Source{
		{File: "a.go", Text: broken},
		{File: "b.lua", Text: "return redis.call('DEL')\n"},
		{File: "c.go", Text: "package c\n\nfunc {\n"}, // has no script
	}, nil)
	require.Len(t, files, 2)
	require.Len(t, files[0].Found, 1)
	d := files[0].Found[0]
	require.Equal(t, "S001", d.Rule)
	require.Equal(t, luagen.Error, d.Level())
	require.Equal(t, 3, d.Pos.Line)
	require.Contains(t, d.Format(broken), "3 | var s = redis.NewScript")
	require.NotEmpty(t, d.Cure)
	require.Equal(t, "C004", files[1].Found[0].Rule)
}

// Every verb that reads ends without a panic on any text, and what fix and init write can be read again.
func FuzzVet(f *testing.F) {
	f.Add(hostileHead + "return redis.call('GET', k)\n")
	f.Add("package a\nvar s = redis.NewScript(`redis.call('GET', KEYS[1])`)\n")
	f.Add("local a = redis.call('GET', KEYS[1])\nwhile true do a = a .. 1 end\n")
	f.Add("---@keys item (a string = \"a:{$x}:$item\") max=2\n---@args item (n int) max=2\nreturn 1\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, file := range []string{"a.lua", "a.go"} {
			for _, v := range luagen.VetSources([]luagen.Source{{File: file, Text: text}}, nil) {
				for _, d := range v.Found {
					if d.Pos.Line < 1 || d.Pos.Col < 1 || d.Format(text) == "" {
						t.Fatalf("bad finding %#v", d)
					}
				}
			}
		}
		drafted, err := luagen.Draft("a.lua", text)
		if err != nil {
			return
		}
		if fixed, err := luagen.Fix("a.lua", drafted); err == nil {
			luagen.Vet("a.lua", fixed)
		}
	})
}
