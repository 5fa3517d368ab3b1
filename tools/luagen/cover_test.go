package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/luatomictest/luacover"
	marks "github.com/luatomic/luatomic/tools/luagen/luacover"
	"github.com/luatomic/luatomic/tools/luagen/luagen"
	"github.com/luatomic/luatomic/tools/luagen/luaprove"
)

// The last statement of count raises, so the statement behind it never runs; the one in the branch needs another call.
const countScript = `--- Count counts up to a limit.
---@contract all-or-nothing
---@key   n  string
---@arg   limit int
---@reply int
---@error FULL  no more

local n, limit = KEYS[1], tonumber(ARGV[1])
if (tonumber(redis.call('GET', n)) or 0) >= limit then
  return redis.error_reply('FULL up')
end
return redis.call('INCR', n)
`

var (
	countSource = countScript
	count       = lua.Script{Name: "count", SHA: marks.Digest(countScript), Source: &countSource}
	peekSource  = "return redis.call('EXISTS', KEYS[1])\n"
	peek        = lua.Script{Name: "peek", SHA: marks.Digest(peekSource), Source: &peekSource, ReadOnly: true}
)

func countTo(t *testing.T, c lua.Client, key string, limit int64) (int64, error) {
	t.Helper()
	call := lua.NewCall(&count, 1, 1)
	call.Key("n", key)
	call.EndKeys()
	call.Int("limit", limit, 0, 100)
	return lua.Run(t.Context(), c, call, func(r *lua.Reply) int64 { return r.Int("") })
}

// wrapper is a client of a test that adds something to another.
type wrapper struct{ redis.UniversalClient }

// The child of the tests below: it runs the script as a user's test does. Its own test is that the reply is right and
// that errors have their line, marks or not.
func TestCoverChild(t *testing.T) {
	t.Parallel()
	var client lua.Client = luatomictest.Client(t)
	name := luatomictest.Namespace(t)
	if os.Getenv("LUAGEN_CHILD_WRAPPED") != "" {
		client = &wrapper{client}
	}
	n, err := countTo(t, client, name+"n", 5)
	require.NoError(t, err)
	require.Equal(t, int64(1), n)
	require.NoError(t, client.Del(t.Context(), name+"n").Err())
	require.NoError(t, client.HSet(t.Context(), name+"n", "f", 1).Err())
	_, err = countTo(t, client, name+"n", 5)
	require.ErrorContains(t, err, "WRONGTYPE")
	require.ErrorContains(t, err, "count:9")
	if os.Getenv("LUAGEN_CHILD_FULL") != "" {
		require.NoError(t, client.Del(t.Context(), name+"n").Err())
		_, err = countTo(t, client, name+"n", 0)
		require.ErrorContains(t, err, "FULL")
	}
	call := lua.NewCall(&peek, 1, 0)
	call.Key("n", name+"n")
	call.EndKeys()
	_, err = lua.Run(t.Context(), client, call, func(r *lua.Reply) int64 { return r.Int("") })
	require.NoError(t, err, "a script that is read-only publishes its marks, too")
}

// shareServer lets the programs that a test runs use its server: otherwise each starts one, or a container.
func shareServer(t *testing.T) {
	t.Helper()
	t.Setenv("LUATOMIC_REDIS_URL", luatomictest.URL(t))
}

func TestCoverTellsWhichStatementsRan(t *testing.T) {
	shareServer(t)
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "go.mod"), "module example.com/app\n")
	writeFile(t, filepath.Join(dir, "stock", "count.lua"), countScript)
	writeFile(t, filepath.Join(dir, "stock", "never.lua"), countScript+"\n")
	out := filepath.Join(dir, "cover.out")
	child := []string{os.Args[0], "-test.run", "TestCoverChild"}
	code, stdout, stderr := command(append([]string{"cover", "-scripts", dir, "-o", out}, child...)...)
	require.Equal(t, 0, code, stdout+stderr)
	require.Contains(t, stdout, "75.0 %  "+filepath.Join(dir, "stock", "count.lua")+"  not run: line 10\n")
	require.Contains(t, stdout, "never.lua  never ran\n")
	require.Contains(t, stdout, "37.5 %  of 8 statements in 2 scripts")
	text, err := os.ReadFile(out)
	require.NoError(t, err)
	require.Contains(t, string(text), "mode: set\nexample.com/app/stock/count.lua:8.1,8.44 1 1\n")
	require.Contains(t, string(text), "example.com/app/stock/count.lua:10.3,10.38 1 0\n")

	t.Setenv("LUAGEN_CHILD_FULL", "1")
	t.Setenv("LUAGEN_CHILD_WRAPPED", "1")
	code, stdout, stderr = command(append([]string{"cover", "-scripts", dir, "-min", "60"}, child...)...)
	require.Equal(t, 1, code)
	require.Contains(t, stdout, "100.0 %  "+filepath.Join(dir, "stock", "count.lua")+"\n")
	require.Contains(t, stderr, "50.0 % of the statements ran, less than 60 %")
	require.Empty(t, os.Getenv(luacover.DirVar))

	code, _, stderr = command("cover", "-scripts", t.TempDir(), "true")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "no scripts with a header")
	code, _, _ = command("cover", "-scripts", dir, "false")
	require.Equal(t, 1, code, "the command's own code")
}

// A script that does not parse has no statements: all of none is not 100 %.
func TestCoverRefusesAScriptThatDoesNotParse(t *testing.T) {
	t.Parallel()
	dir, ran := t.TempDir(), filepath.Join(t.TempDir(), "ran")
	file := filepath.Join(dir, "count.lua")
	writeFile(t, file, strings.Replace(countScript, "redis.call('INCR', n)", "redis.call('INCR' n)", 1))
	for _, args := range [][]string{{"cover", "-scripts", dir, "touch", ran}, {"mutate", file, "touch", ran}} {
		code, stdout, stderr := command(args...)
		require.Equal(t, 1, code, args)
		require.Empty(t, stdout)
		require.Contains(t, stderr, ": "+file+":12:26: expected ')', found 'n'\n")
		require.NoFileExists(t, ran, "it is known before the run")
	}
}

// fullScript is countScript with a function of as many upvalues as Lua allows: it has no room for a mark.
func fullScript() string {
	var locals, sum strings.Builder
	for i := range 60 {
		fmt.Fprintf(&locals, "local u%d = %d\n", i, i)
		fmt.Fprintf(&sum, " + u%d", i)
	}
	full := locals.String() + "local function sum()\n  redis.call('PING')\n  return 0" + sum.String() + "\nend\nsum()\n"
	return strings.Replace(countScript, "local", full+"local", 1)
}

// What ran of a script that has no room for marks is not known, which is not "never ran".
func TestCoverSaysWhichScriptCannotBeMarked(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "count.lua"), fullScript())
	code, stdout, stderr := command("cover", "-scripts", dir, "true")
	require.Equal(t, 0, code, stderr)
	require.Contains(t, stdout, filepath.Join(dir, "count.lua")+
		"  not known: no room for one more upvalue, which marks need\n")
}

// The child of the test below: its Redis user may not tell what ran.
func TestRefusedChild(t *testing.T) {
	t.Parallel()
	without := os.Getenv("LUAGEN_CHILD_WITHOUT")
	if without == "" {
		t.Skip("only as a child")
	}
	server := luatomictest.StartServer(t)
	rule := []any{"ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", without}
	require.NoError(t, server.Client().Do(t.Context(), rule...).Err())
	client := server.Client(func(o *redis.Options) { o.Username, o.Password = "app", "pw" })
	_, err := countTo(t, client, "n", 5)
	require.NoError(t, err)
}

// Where the user of a test may not subscribe or publish, what its scripts ran is not known, which is not "no test".
func TestCoverSaysThatAUserMayNotPublish(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "count.lua"), countScript)
	child := []string{os.Args[0], "-test.run", "TestRefusedChild"}
	texts, stop, err := luacover.Serve(marks.Answer)
	require.NoError(t, err)
	t.Cleanup(stop)
	for _, without := range []string{"-publish", "-subscribe"} {
		t.Setenv("LUAGEN_CHILD_WITHOUT", without)
		for _, verb := range []string{"cover", "trace"} {
			_, _, stderr := command(append([]string{verb}, append(map[string][]string{
				"cover": {"-scripts", dir}}[verb], child...)...)...)
			require.Contains(t, stderr, "luagen "+verb+": what some scripts ran is not known: NOPERM", without)
			require.Contains(t, stderr, "'"+without[1:]+"'")
		}
		scripts := []*mutated{{source: luagen.Runnable{Text: countScript}}}
		m := mutation{dir: t.TempDir(), texts: texts, parallel: 1, scripts: scripts}
		test := mutantTest{words: child}
		failed, err := m.observe(t.Context(), &test)
		require.NoError(t, err)
		require.False(t, failed)
		require.True(t, test.meets(count.SHA, 9), "it meets all mutants")
	}
}

func inCount(line int) string { return fmt.Sprintf("count.lua:%d", line) }

// A script may use all locals that Lua allows: marks, reports and failing writes take none of them.
func TestAScriptOfAllLocalsIsMarkedTracedAndProven(t *testing.T) {
	t.Parallel()
	client := luatomictest.Client(t)
	full := strings.Replace(countScript, "local", strings.Repeat("local x\n", 198)+"local", 1)
	for what, text := range map[string]string{
		"marked": marks.Mark(full), "traced": marks.Trace("count", full, inCount),
		"proven": luaprove.Fault{Writes: "{}"}.Text(full, 0),
	} {
		require.NotEqual(t, full, text, what)
		n, err := client.Eval(t.Context(), text, []string{luatomictest.Namespace(t) + what}, 5).Int()
		require.NoError(t, err, what)
		require.Equal(t, 1, n, what)
	}
	require.Contains(t, marks.Trace("count", full, inCount), "luagen_to(redis.call(luagen_from('count.lua:207',")
}

// Whether a test runs a script that has no room for marks is not known: its mutants meet all tests.
func TestMutantsOfAScriptThatCannotBeMarkedMeetAllTests(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "go.mod"), "module example.com/app\n\ngo 1.26\n")
	writeFile(t, filepath.Join(dir, "count.lua"), fullScript())
	writeFile(t, filepath.Join(dir, "count_test.go"),
		"package app\n\nimport \"testing\"\n\nfunc TestCount(t *testing.T) {}\n")
	t.Chdir(dir)
	code, stdout, stderr := command("mutate", "count.lua", "go", "test")
	require.Equal(t, 1, code, stderr)
	require.NotContains(t, stdout, "no test runs this condition")
	require.Contains(t, stdout, "the tests pass when this condition is always true")
}
