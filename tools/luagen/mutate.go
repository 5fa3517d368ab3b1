package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/luatomic/luatomic/luatomictest/luacover"
	marks "github.com/luatomic/luatomic/tools/luagen/luacover"
	"github.com/luatomic/luatomic/tools/luagen/luagen"
)

const mutateUsage = `luagen mutate tells which conditions of a script, or of all scripts below a folder, no test would miss.

usage: luagen mutate [-known file] [-parallel n] FILE|DIR COMMAND...

For each condition of an if it runs the command twice, with the condition always and never true. Where the command passes all
the same, the condition is printed. Where the command is "go test", its packages are built once, each test is run alone to
see which statements it runs, and a mutant meets the tests that run its line. Test programs import luatomictest, as for
luagen cover.

  -known file  conditions that need no test; default: mutants.txt beside the script. A line is
               take.lua: left < n: false: the reason
               In place of the script it can name a fragment, as part/now.lua, for all scripts that have it.
  -parallel n  so many tests at a time; default 1. With more, a test that fails is run a second time

exit codes: 0 every mutant failed a test or has a reason, 1 some did not, or the command fails without any, 2 wrong usage
`

// mutate runs the verb of that name.
func mutate(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("mutate", flag.ContinueOnError)
	known := flags.String("known", "", "")
	parallel := flags.Int("parallel", 1, "")
	if code, ok := parseFlags(flags, args, mutateUsage, stdout, stderr); !ok {
		return code
	}
	if flags.NArg() < 2 {
		return wrongUsage(stderr, "mutate", mutateUsage, errors.New("name a script and a command"))
	}
	if *parallel < 1 {
		return wrongUsage(stderr, "mutate", mutateUsage, fmt.Errorf("-parallel is %d: name 1 or more", *parallel))
	}
	if isGoTest(flags.Args()[1:]) {
		if _, err := goTestOf(flags.Args()[3:]); err != nil {
			fmt.Fprintln(stderr, "luagen mutate:", err)
			return 2
		}
	}
	m := mutation{known: *known, parallel: *parallel}
	survivors, err := m.run(flags.Arg(0), flags.Args()[1:], stdout, stderr)
	if err != nil {
		fmt.Fprintln(stderr, "luagen mutate:", err)
		return 1
	}
	return min(survivors, 1)
}

// mutation runs the mutants of some scripts.
type mutation struct {
	known    string // a file in place of each script's own mutants.txt
	parallel int
	scripts  []*mutated
	dir      string // for the mutants and the test programs
	texts    string // where test programs ask for marked scripts
}

// mutated is a script under mutation.
type mutated struct {
	source  luagen.Runnable
	digest  string
	reasons map[string]string // by "file: condition: false"
}

// run prints the mutants that no test misses, and how many there are.
func (m *mutation) run(path string, command []string, stdout, stderr io.Writer) (survivors int, err error) {
	if err := m.read(path); err != nil {
		return 0, err
	}
	err = inFolder("luagen-mutate-", func(ctx context.Context, dir string) error {
		addr, stop, err := luacover.Serve(marks.Answer)
		if err != nil {
			return err
		}
		defer stop()
		m.dir, m.texts = dir, addr
		tests, err := m.tests(ctx, command, stderr)
		if err != nil {
			return err
		}
		for _, script := range m.scripts {
			missed, err := m.mutate(ctx, script, tests, stdout)
			if survivors += missed; err != nil {
				return err
			}
		}
		return nil
	})
	return survivors, err
}

// read reads the script, or those of a folder, and the reasons beside each.
func (m *mutation) read(path string) error {
	files := []string{path}
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		files, err = luagen.ScriptFiles(path)
	}
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("no scripts with a header below %s: name a script", path)
	}
	if err != nil {
		return err
	}
	for _, file := range files {
		source, err := readLua(file)
		if err != nil {
			return err
		}
		reasons, err := m.reasons(filepath.Dir(file))
		if err != nil {
			return err
		}
		m.scripts = append(m.scripts, &mutated{source, marks.Digest(source.Text), reasons})
	}
	return nil
}

// reasons are those of mutants.txt beside a script and in the folder above, which domains share.
func (m *mutation) reasons(dir string) (map[string]string, error) {
	if m.known != "" {
		return reasonsOf(m.known)
	}
	all := map[string]string{}
	for _, dir := range []string{filepath.Join(dir, ".."), dir} {
		some, err := reasonsOf(filepath.Join(dir, "mutants.txt"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		maps.Copy(all, some)
	}
	return all, nil
}

// mutate prints those of a script, and how many there are.
func (m *mutation) mutate(
	ctx context.Context, script *mutated, tests []mutantTest, stdout io.Writer,
) (survivors int, err error) {
	mutants, accepted := marks.Mutants(script.source.Text), 0
	fates := make([]fate, len(mutants))
	err = m.each(ctx, len(mutants), func(i int) (err error) {
		fates[i], err = m.survives(ctx, script, mutants[i], tests)
		return err
	})
	if err != nil {
		return 0, err
	}
	for i, mutant := range mutants {
		cond := oneLine(mutant.Cond)
		reason, at := script.reason(mutant), script.source.At(mutant.Line)
		switch {
		case !fates[i].missed:
		case reason != "":
			accepted++
			fmt.Fprintf(stdout, "%s: always %v is no fault: %s\n", at, mutant.Holds, reason)
		case fates[i].ran == 0:
			survivors++
			fmt.Fprintf(stdout, "%s: no test runs this condition: %s\n", at, cond)
		default:
			survivors++
			fmt.Fprintf(stdout, "%s: the tests pass when this condition is always %v: %s\n", at, mutant.Holds,
				cond)
		}
	}
	fmt.Fprintf(stdout, "%s: mutants %d, of which the tests miss %d", script.source.File, len(mutants), survivors)
	if accepted > 0 {
		fmt.Fprintf(stdout, ", and %d have a reason", accepted)
	}
	fmt.Fprintln(stdout)
	return survivors, nil
}

// reason returns why a mutant needs no test: that of the script, or of the fragment that its line is from.
func (m *mutated) reason(mutant marks.Mutant) string {
	for _, name := range []string{m.source.Part(mutant.Line), filepath.Base(m.source.File)} {
		if reason := m.reasons[fmt.Sprintf("%s: %s: %v", name, oneLine(mutant.Cond), mutant.Holds)]; reason != "" {
			return reason
		}
	}
	return ""
}

// each calls do with the numbers below n, some at a time, and returns its errors.
func (m *mutation) each(ctx context.Context, n int, do func(i int) error) error {
	errs := make([]error, n)
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(n, m.parallel) {
		workers.Go(func() {
			for i := next.Add(1) - 1; i < int64(n) && ctx.Err() == nil; i = next.Add(1) - 1 {
				errs[i] = do(int(i))
			}
		})
	}
	workers.Wait()
	return errors.Join(append(errs, ctx.Err())...)
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// reasonsOf reads the conditions that need no test, "file: condition: false", each with its reason.
func reasonsOf(file string) (map[string]string, error) {
	text, err := os.ReadFile(file)
	out := map[string]string{}
	for line := range strings.Lines(string(text)) {
		for _, holds := range []string{": true: ", ": false: "} {
			if what, reason, ok := strings.Cut(strings.TrimSpace(line), holds); ok {
				out[what+strings.TrimSuffix(holds, ": ")] = reason
			}
		}
	}
	return out, err
}

// fate is what the tests made of a mutant.
type fate struct {
	missed bool
	ran    int // tests
}

// survives runs the tests of a mutant's line, the shortest first, until one fails.
func (m *mutation) survives(
	ctx context.Context, script *mutated, mutant marks.Mutant, tests []mutantTest,
) (f fate, err error) {
	file, err := os.CreateTemp(m.dir, "mutant-*.lua")
	if err != nil {
		return fate{}, err
	}
	defer os.Remove(file.Name())
	_, err = file.WriteString(script.digest + "\n" + mutant.Text)
	if err = errors.Join(err, file.Close()); err != nil {
		return fate{}, err
	}
	for _, test := range tests {
		if !test.meets(script.digest, mutant.If) {
			continue
		}
		f.ran++
		// Beside others a test can also fail for want of time.
		failed := true
		for range min(m.parallel, 2) {
			if failed, err = test.run(ctx, io.Discard, luacover.MutantVar+"="+file.Name()); err != nil || !failed {
				break
			}
		}
		if err != nil || failed {
			return f, err
		}
	}
	f.missed = true
	return f, nil
}
