package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/luatomic/luatomic/luatomictest/luacover"
	marks "github.com/luatomic/luatomic/tools/luagen/luacover"
)

// mutantTest is a command that a mutant has to fail.
type mutantTest struct {
	words []string
	dir   string
	took  time.Duration
	lines map[string]map[int]bool // by digest, those of the scripts that it runs; nil for any
}

// run reports whether the command fails, as it does when it takes ten times as long as before and ten seconds more.
func (t mutantTest) run(out io.Writer, variables ...string) (failed bool, err error) {
	ctx := context.Background()
	if t.took > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, 10*t.took+10*time.Second)
		defer cancel()
	}
	cmd := exec.CommandContext(ctx, t.words[0], t.words[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = t.dir, append(os.Environ(), variables...), out, out
	cmd.WaitDelay = time.Second
	err = cmd.Run()
	var code *exec.ExitError
	if errors.As(err, &code) || ctx.Err() != nil {
		return true, nil
	}
	return err != nil, err
}

// tests are the command itself or, for go test, each test of its packages, which must pass without a mutant.
func (m *mutation) tests(command []string, stdout, stderr io.Writer) ([]mutantTest, error) {
	whole := mutantTest{words: command}
	if len(command) < 2 || command[0] != "go" || command[1] != "test" {
		start := time.Now()
		failed, err := whole.run(stderr, luacover.MutantVar+"=")
		if failed {
			err = fmt.Errorf("the command fails without a mutant: mend it first")
		}
		whole.took = time.Since(start)
		return []mutantTest{whole}, err
	}
	packages, run := testArguments(command[2:])
	var all []mutantTest
	for i, pkg := range packages {
		found, err := m.packageTests(pkg, run, filepath.Join(m.dir, fmt.Sprintf("%d.test", i)), stderr)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	slices.SortStableFunc(all, func(a, b mutantTest) int { return int(a.took - b.took) })
	return all, nil
}

// testArguments are the packages of go test, and its -run.
func testArguments(args []string) (packages []string, run string) {
	for i := 0; i < len(args); i++ {
		switch name, value, hasValue := strings.Cut(strings.TrimLeft(args[i], "-"), "="); {
		case !strings.HasPrefix(args[i], "-"):
			packages = append(packages, args[i])
		case name == "run" && hasValue:
			run = value
		case slices.Contains([]string{"run", "parallel", "timeout", "count", "tags"}, name) && !hasValue && i+1 < len(args):
			if i++; name == "run" {
				run = args[i]
			}
		}
	}
	if len(packages) == 0 {
		packages = []string{"."}
	}
	return packages, run
}

// packageTests builds the tests of a package and runs each once: which lines of the script it runs, and how long.
func (m *mutation) packageTests(pkg, run, program string, stderr io.Writer) ([]mutantTest, error) {
	dir, err := exec.Command("go", "list", "-f", "{{.Dir}}", pkg).Output()
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w", pkg, err)
	}
	build := exec.Command("go", "test", "-c", "-o", program, pkg)
	build.Stdout, build.Stderr = stderr, stderr
	if err := build.Run(); err != nil {
		return nil, fmt.Errorf("go test -c %s: %w", pkg, err)
	}
	names := exec.Command(program, "-test.list", cmp.Or(run, "."))
	names.Dir = strings.TrimSpace(string(dir))
	list, err := names.Output()
	if err != nil {
		return nil, fmt.Errorf("the tests of %s: %w", pkg, err)
	}
	var all []mutantTest
	for name := range strings.FieldsSeq(string(list)) {
		if strings.HasPrefix(name, "Test") || strings.HasPrefix(name, "Example") {
			all = append(all, mutantTest{words: []string{program, "-test.run", "^" + name + "$"}, dir: names.Dir})
		}
	}
	failed := make([]bool, len(all))
	err = m.each(len(all), func(i int) (err error) {
		for range min(m.parallel, 2) { // beside others a test can also fail for want of time
			if failed[i], err = m.observe(&all[i]); err != nil {
				return fmt.Errorf("%s: %w", strings.Trim(all[i].words[2], "^$"), err)
			}
			if !failed[i] {
				break
			}
		}
		return nil
	})
	for i, test := range all {
		if failed[i] {
			fmt.Fprintf(stderr, "luagen mutate: %s is left out: it fails where scripts have another digest\n", strings.Trim(test.words[2], "^$"))
		}
	}
	return slices.DeleteFunc(all, func(test mutantTest) bool { return len(test.lines) == 0 }), err
}

// observe runs a test without a mutant. One that fails is left out: it would fail with each.
func (m *mutation) observe(test *mutantTest) (failed bool, err error) {
	dir, err := os.MkdirTemp(m.dir, "cover-")
	if err != nil {
		return false, err
	}
	start := time.Now()
	failed, err = test.run(io.Discard, luacover.DirVar+"="+dir)
	if test.took = time.Since(start); err != nil {
		return false, err
	}
	test.lines = map[string]map[int]bool{}
	if failed {
		return true, nil
	}
	list := map[string]*covered{}
	for _, script := range m.scripts {
		list[script.digest] = &covered{statements: marks.Statements(script.text), ran: map[int]bool{}}
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return false, err
		}
		readMarks(string(text), list)
	}
	for digest, c := range list {
		if len(c.ran) > 0 {
			test.lines[digest] = c.lines()
		}
	}
	return false, err
}

// lines are those of the statements that ran.
func (c *covered) lines() map[int]bool {
	out := map[int]bool{}
	for i := range c.ran {
		for line := c.statements[i].Start.Line; line <= c.statements[i].End.Line; line++ {
			out[line] = true
		}
	}
	return out
}
