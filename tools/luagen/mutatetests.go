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
)

// mutantTest is a command that a mutant has to fail.
type mutantTest struct {
	name  string
	words []string
	dir   string
	took  time.Duration
	lines map[string]map[int]bool // by digest, those of the scripts that it runs; nil for any, also of one script
}

// run reports whether the command fails, as it does when it takes ten times as long as before and ten seconds more.
func (t mutantTest) run(all context.Context, out io.Writer, variables ...string) (failed bool, err error) {
	ctx := all
	if t.took > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, 10*t.took+10*time.Second)
		defer cancel()
	}
	cmd := commandOf(ctx, t.words, variables...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = t.dir, out, out
	cmd.WaitDelay = time.Second
	err = cmd.Run()
	var code *exec.ExitError
	switch {
	case all.Err() != nil:
		return false, all.Err() // it has not failed, but was ended
	case errors.As(err, &code) || ctx.Err() != nil:
		return true, nil
	}
	return err != nil, err
}

func isGoTest(command []string) bool {
	return len(command) >= 2 && command[0] == "go" && command[1] == "test"
}

// tests are the command itself or, for go test, each test of its packages, which must pass without a mutant.
func (m *mutation) tests(ctx context.Context, command []string, stderr io.Writer) ([]mutantTest, error) {
	whole := mutantTest{words: command}
	if !isGoTest(command) {
		start := time.Now()
		failed, err := whole.run(ctx, stderr, luacover.MutantVar+"=")
		if failed && err == nil {
			err = fmt.Errorf("the command fails without a mutant: mend it first")
		}
		whole.took = time.Since(start)
		return []mutantTest{whole}, err
	}
	args, err := goTestOf(command[2:])
	if err != nil {
		return nil, err
	}
	packages, err := args.list(ctx)
	if err != nil {
		return nil, err
	}
	var all []mutantTest
	for i, pkg := range packages {
		found, err := m.packageTests(ctx, args, pkg, filepath.Join(m.dir, fmt.Sprintf("%d.test", i)), stderr)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	slices.SortStableFunc(all, func(a, b mutantTest) int { return int(a.took - b.took) })
	return all, nil
}

// packageTests builds the tests of a package and runs each once: which lines of the script it runs, and how long.
func (m *mutation) packageTests(
	ctx context.Context, args goTest, pkg testPackage, program string, stderr io.Writer) ([]mutantTest, error) {
	if err := args.program(ctx, pkg, program); err != nil {
		return nil, err
	}
	names := commandOf(ctx, []string{program, "-test.list", cmp.Or(args.run, ".")})
	names.Dir = pkg.dir
	list, err := names.Output()
	if err != nil {
		return nil, fmt.Errorf("the tests of %s: %w", pkg.path, err)
	}
	var all []mutantTest
	for name := range strings.FieldsSeq(string(list)) {
		if strings.HasPrefix(name, "Test") || strings.HasPrefix(name, "Example") {
			words := append([]string{program, "-test.run", "^" + name + "$" + args.subtests}, args.test...)
			all = append(all, mutantTest{name: name, words: words, dir: pkg.dir})
		}
	}
	failed := make([]bool, len(all))
	err = m.each(ctx, len(all), func(i int) (err error) {
		for range min(m.parallel, 2) { // beside others a test can also fail for want of time
			if failed[i], err = m.observe(ctx, &all[i]); err != nil {
				return fmt.Errorf("%s: %w", all[i].name, err)
			}
			if !failed[i] {
				break
			}
		}
		return nil
	})
	for i, test := range all {
		if !failed[i] || err != nil {
			continue
		}
		if err = test.passes(ctx); err == nil {
			fmt.Fprintf(stderr, "luagen mutate: %s is left out: it fails where scripts have another digest\n",
				test.name)
		}
	}
	return slices.DeleteFunc(all, func(test mutantTest) bool { return len(test.lines) == 0 }), err
}

// passes is an error where the test fails as it is, with what it printed.
func (t mutantTest) passes(ctx context.Context) error {
	var out strings.Builder
	failed, err := t.run(ctx, &out)
	if failed {
		err = fmt.Errorf("%s fails without a mutant: mend it first:\n%s", t.name, strings.TrimSpace(out.String()))
	}
	return err
}

// observe runs a test without a mutant. One that fails is left out: it would fail with each.
func (m *mutation) observe(ctx context.Context, test *mutantTest) (failed bool, err error) {
	dir, err := os.MkdirTemp(m.dir, "cover-")
	if err != nil {
		return false, err
	}
	start := time.Now()
	failed, err = test.run(ctx, io.Discard, luacover.DirVar+"="+dir, luacover.TextsVar+"="+m.texts)
	if test.took = time.Since(start); err != nil {
		return false, err
	}
	test.lines = map[string]map[int]bool{}
	if failed {
		return true, nil
	}
	list := make([]*covered, len(m.scripts))
	for i, script := range m.scripts {
		list[i] = coveredOf(script.source)
	}
	if err := readFolder(dir, list); err != nil {
		return false, err
	}
	unknown := len(refusals(dir)) > 0
	for _, c := range list {
		switch {
		case c.unmarked || unknown:
			test.lines[c.digest] = nil
		case len(c.ran) > 0:
			test.lines[c.digest] = c.lines()
		}
	}
	return false, nil
}

// meets reports whether the test runs a line of a script, or may.
func (t mutantTest) meets(digest string, line int) bool {
	lines, runs := t.lines[digest]
	return t.lines == nil || runs && (lines == nil || lines[line])
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
