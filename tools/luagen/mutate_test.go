package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	marks "github.com/luatomic/luatomic/tools/luagen/luacover"
	"github.com/luatomic/luatomic/tools/luagen/luagen"
)

func TestMutateNamesConditionsThatNoTestMisses(t *testing.T) {
	shareServer(t)
	file := filepath.Join(t.TempDir(), "count.lua")
	writeFile(t, file, countScript)
	child := []string{"mutate", file, os.Args[0], "-test.run", "TestCoverChild"}
	code, stdout, stderr := command(child...)
	require.Equal(t, 1, code, stderr)
	require.Contains(t, stdout,
		"count.lua:9: the tests pass when this condition is always false: (tonumber(redis.call('GET', n)) or 0) >= "+
			"limit\n")
	require.NotContains(t, stdout, "always true")
	require.Contains(t, stdout, "mutants 2, of which the tests miss 1\n")
	writeFile(t, filepath.Join(filepath.Dir(file), "mutants.txt"),
		"count.lua: (tonumber(redis.call('GET', n)) or 0) >= limit: false: the caller counts\n")
	code, stdout, _ = command(child...)
	require.Equal(t, 0, code)
	require.Contains(t, stdout, "count.lua:9: always false is no fault: the caller counts\n")
	require.Contains(t, stdout, "miss 0, and 1 have a reason\n")
	t.Setenv("LUAGEN_CHILD_FULL", "1")
	code, stdout, _ = command(child...)
	require.Equal(t, 0, code)
	require.Contains(t, stdout, "mutants 2, of which the tests miss 0\n")

	code, _, stderr = command("mutate", file, "false")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "fails without a mutant")
	code, _, stderr = command("mutate", file, "nosuchcommand")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "executable file not found")
	code, _, stderr = command("mutate", "-known", "nosuchfile", file, "true")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "nosuchfile")
	code, _, _ = command("mutate", file)
	require.Equal(t, 2, code)
}

// The tests run once for all scripts of a folder; each script has its own reasons.
func TestMutateTakesAFolder(t *testing.T) {
	shareServer(t)
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "count.lua"), countScript)
	writeFile(t, filepath.Join(dir, "other", "tally.lua"), countScript+"\n")
	writeFile(t, filepath.Join(dir, "other", "mutants.txt"),
		"tally.lua: (tonumber(redis.call('GET', n)) or 0) >= limit: false: the caller counts\n")
	t.Setenv("LUAGEN_CHILD_FULL", "1")
	code, stdout, stderr := command("mutate", dir, os.Args[0], "-test.run", "TestCoverChild")
	require.Equal(t, 1, code, stderr)
	parallelCode, parallel, stderr := command("mutate", "-parallel", "4", dir, os.Args[0], "-test.run",
		"TestCoverChild")
	require.Equal(t, 1, parallelCode, stderr)
	require.Equal(t, stdout, parallel)
	require.Contains(t, stdout, "count.lua: mutants 2, of which the tests miss 0\n")
	require.Contains(t, stdout, "tally.lua:9: always false is no fault: the caller counts\n")
	require.Contains(t, stdout, "tally.lua:9: the tests pass when this condition is always true: ")
	require.Contains(t, stdout, "tally.lua: mutants 2, of which the tests miss 1, and 1 have a reason\n")

	code, _, stderr = command("mutate", t.TempDir(), "true")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "no scripts with a header below ")
	code, _, stderr = command("mutate", filepath.Join(dir, "none.lua"), "true")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "none.lua")
}

// A fragment's condition has its reason once, for all scripts that have the fragment.
func TestReasonsOfAFragment(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "src", "take.lua")
	writeFile(t, file, "if a then\nend\n--< part/one.lua\nif b then\nend\n")
	writeFile(t, filepath.Join(dir, "src", "part", "one.lua"), "if a then\n  --< part/two.lua\nend\n")
	writeFile(t, filepath.Join(dir, "src", "part", "two.lua"), "if b then\nend\n")
	source, err := luagen.ReadRunnable(file)
	require.NoError(t, err)
	script := mutated{source: source, reasons: map[string]string{
		"part/one.lua: a: false": "first", "part/two.lua: b: false": "second", "take.lua: a: true": "third",
	}}
	got := map[string]string{}
	for _, mutant := range marks.Mutants(source.Text) {
		if reason := script.reason(mutant); reason != "" {
			at, err := filepath.Rel(filepath.Dir(file), source.At(mutant.Line))
			require.NoError(t, err)
			got[fmt.Sprintf("%s %v", filepath.ToSlash(at), mutant.Holds)] = reason
		}
	}
	require.Equal(t, map[string]string{"take.lua:1 true": "third", "part/one.lua:1 false": "first",
		"part/one.lua:1 true": "third", "part/two.lua:1 false": "second"}, got)
}

// Beside others a test that fails once may have lacked time: only one that fails twice has noticed the mutant.
func TestAMutantBesideOthersFailsATestTwice(t *testing.T) {
	t.Parallel()
	mutant := marks.Mutants("if a then\n  x()\nend\n")[0]
	for parallel, missed := range map[int]bool{1: false, 2: true} {
		once := []mutantTest{{words: []string{"sh", "-c", "test -e seen || { touch seen; exit 1; }"}, dir: t.TempDir()}}
		m := mutation{dir: t.TempDir(), parallel: parallel}
		got, err := m.survives(t.Context(), &mutated{}, mutant, once)
		require.NoError(t, err)
		require.Equal(t, fate{missed: missed, ran: 1}, got, parallel)
	}
	code, _, stderr := command("mutate", "-parallel", "0", "x.lua", "true")
	require.Equal(t, 2, code)
	require.Contains(t, stderr, "-parallel is 0: name 1 or more")
}

func TestArgumentsOfGoTest(t *testing.T) {
	t.Parallel()
	got, err := goTestOf([]string{"-run", "Take/sub", "-parallel", "8", "-v", "-tags", "integration",
		"-race", "./stock",
		"-skip=Slow", "-p", "1", "./shop", "-args", "-x"})
	require.NoError(t, err)
	require.Equal(t, goTest{
		packages: []string{"./stock", "./shop"}, build: []string{"-tags=integration", "-race", "-p=1"},
		run: "Take", subtests: "/sub", test: []string{"-test.parallel=8", "-test.skip=Slow", "-x"},
	}, got)
	got, err = goTestOf([]string{"-run=Take"})
	require.NoError(t, err)
	require.Equal(t, goTest{packages: []string{"."}, run: "Take"}, got)
	for _, args := range [][]string{{"-nosuch"}, {"-run"}} {
		_, err := goTestOf(args)
		require.ErrorContains(t, err, "go test "+args[0]+": luagen mutate does not know this flag")
		code, _, stderr := command(append([]string{"mutate", "x.lua", "go", "test"}, args...)...)
		require.Equal(t, 2, code)
		require.Contains(t, stderr, args[0])
	}
}

// Patterns and flags mean what they mean to go test, and a test that fails anyway is shown, not blamed on the marks.
func TestMutateTakesTheCommandsOfGoTest(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) { writeFile(t, filepath.Join(dir, name), text) }
	write("go.mod", "module example.com/app\n\ngo 1.26\n")
	write("stock/take.lua", countScript)
	write("stock/take_test.go", "package stock\n\nimport \"testing\"\n\nfunc TestTake(t *testing.T) {\n"+
		"\tt.Run(\"sub\", func(*testing.T) {})\n\tt.Run(\"broken\", func(t *testing.T) { t.Fatal(\"simply broken\") "+
		"})\n}\n")
	write("plain/plain.go", "package plain\n")
	write("tagged/a_test.go",
		"//go:build integration\n\npackage tagged\n\nimport \"testing\"\n\nfunc TestTagged(t *testing.T) {}\n")
	t.Chdir(dir)
	for name, test := range map[string]struct {
		args []string
		says string // stdout and stderr
	}{
		"a package without tests": {[]string{"-run", "TestTake/sub", "./..."}, "no test runs this condition"},
		"a tag":                   {[]string{"-tags", "integration", "./tagged"}, "no test runs this condition"},
		"no tests":                {[]string{"./plain"}, "./plain: no package has tests"},
		"no package":              {[]string{"./nosuch"}, "nosuch: directory not found"},
		"a failure":               {[]string{"./stock"}, "simply broken"},
	} {
		code, stdout, stderr := command(append([]string{"mutate", "stock/take.lua", "go", "test"}, test.args...)...)
		require.Equal(t, 1, code, name)
		require.Contains(t, stdout+stderr, test.says, name)
	}
}

func TestMutantsKeepTheLines(t *testing.T) {
	t.Parallel()
	all := marks.Mutants("if a == 1 or b then\n  x()\nelseif c then\n  y()\nelse\n  z()\nend\n")
	require.Len(t, all, 4)
	require.Equal(t, "if (a == 1 or b) and false then\n  x()\nelseif c then\n  y()\nelse\n  z()\nend\n", all[0].Text)
	require.Equal(t, 3, all[3].Line)
	require.Equal(t, 1, all[3].If)
	require.True(t, all[3].Holds)
	require.Empty(t, marks.Mutants("if"))
}

// No statement begins at an elseif: its mutants meet the tests that run the if.
func TestMutantsOfAnElseifMeetTests(t *testing.T) {
	t.Parallel()
	m := mutation{dir: t.TempDir(), parallel: 1}
	for _, mutant := range marks.Mutants("if a then\n  x()\nelseif b then\n  y()\nend\n") {
		tests := []mutantTest{{words: []string{"false"}, lines: map[string]map[int]bool{"digest": {1: true, 2: true}}}}
		got, err := m.survives(t.Context(), &mutated{digest: "digest"}, mutant, tests)
		require.NoError(t, err)
		require.Equal(t, fate{missed: false, ran: 1}, got, mutant.Cond)
	}
}

const guardScript = `do
  local lease, token = table.remove(KEYS), table.remove(ARGV)
  if redis.call('GET', lease) ~= token then
    return redis.error_reply('FENCED the lease is not held')
  end
end
`

type heldLease struct{ key, token string }

func (l heldLease) GuardKey() string   { return l.key }
func (l heldLease) GuardToken() string { return l.token }

// The child of the test below.
func TestGuardChild(t *testing.T) {
	t.Parallel()
	client, key := luatomictest.Client(t), "{"+luatomictest.Namespace(t)+"}"
	guard, source := guardScript, "redis.call('SET', KEYS[1], 'x')\n"
	script := lua.Script{Name: "write", SHA: marks.Digest(source), Source: &source,
		Guarded: lua.Text{SHA: marks.Digest(guard + source), Guard: &guard, Source: &source}}
	write := func(token string) error {
		call := lua.NewCall(&script, 1, 0)
		call.Key("n", key)
		call.EndKeys()
		_, err := lua.Run(t.Context(), lua.Guard(client, heldLease{key + "lease", token}), call,
			func(*lua.Reply) struct{} { return struct{}{} })
		return err
	}
	require.NoError(t, client.Set(t.Context(), key+"lease", "mine", 0).Err())
	require.NoError(t, write("mine"))
	if os.Getenv("LUAGEN_CHILD_FULL") != "" {
		require.ErrorIs(t, write("other"), lua.ErrFenced)
	}
}

// A guard has mutants as the scripts behind it have.
func TestMutantsOfAGuardMeetTests(t *testing.T) {
	shareServer(t)
	file := filepath.Join(t.TempDir(), "guard.lua")
	writeFile(t, file, guardScript)
	child := []string{"mutate", file, os.Args[0], "-test.run", "TestGuardChild"}
	code, stdout, stderr := command(child...)
	require.Equal(t, 1, code, stderr)
	require.Contains(t, stdout, "guard.lua:3: the tests pass when this condition is always false: ")
	require.Contains(t, stdout, "mutants 2, of which the tests miss 1\n")
	t.Setenv("LUAGEN_CHILD_FULL", "1")
	code, stdout, stderr = command(child...)
	require.Equal(t, 0, code, stdout+stderr)
}
