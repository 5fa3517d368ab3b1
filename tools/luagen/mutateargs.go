package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// goTest is a command line of go test, as its parts are used: the packages are built once, and their tests run alone.
type goTest struct {
	packages []string
	build    []string // flags of go list and go test -c
	run      string   // of -run, the pattern of the tests
	subtests string   // and that of their subtests, with the slash before it
	test     []string // flags and arguments of the test programs
}

// Flags of go test: those that build, those of a test program, and those that would change nothing here. The ones that
// take a value have an = behind their name.
var (
	buildFlags = []string{"a", "asan", "asmflags=", "buildvcs", "gcflags=", "ldflags=", "mod=", "modfile=", "msan",
		"overlay=", "p=", "race", "tags=", "trimpath"}
	programFlags = []string{"cpu=", "failfast", "parallel=", "short", "shuffle=", "skip="}
	idleFlags    = []string{"count=", "json", "timeout=", "v", "vet="}
)

// goTestOf takes the arguments of go test apart. A flag that it does not know is an error: the mutants would meet other
// tests than the command has.
func goTestOf(args []string) (g goTest, err error) {
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		if !strings.HasPrefix(arg, "-") {
			g.packages = append(g.packages, arg)
			continue
		}
		name, value, hasValue := strings.Cut(strings.TrimPrefix(strings.TrimLeft(arg, "-"), "test."), "=")
		if name == "args" {
			g.test = append(g.test, args...)
			break
		}
		in := func(flags []string) bool {
			takes := slices.Contains(flags, name+"=")
			if takes && !hasValue && len(args) > 0 {
				value, args, hasValue = args[0], args[1:], true
			}
			return takes && hasValue || slices.Contains(flags, name)
		}
		flag := func(prefix string) string {
			if hasValue {
				return prefix + name + "=" + value
			}
			return prefix + name
		}
		switch {
		case in([]string{"run="}):
			first, rest, found := strings.Cut(value, "/")
			if g.run = first; found {
				g.subtests = "/" + rest
			}
		case in(buildFlags):
			g.build = append(g.build, flag("-"))
		case in(programFlags):
			g.test = append(g.test, flag("-test."))
		case !in(idleFlags):
			return g, fmt.Errorf("go test %s: luagen mutate does not know this flag, or its value is missing: "+
				"leave it out, or name the command of a script, as sh -c", arg)
		}
	}
	if len(g.packages) == 0 {
		g.packages = []string{"."}
	}
	return g, nil
}

// testPackage is a package that has tests.
type testPackage struct{ path, dir string }

// list resolves the patterns. Packages without tests are left out.
func (g goTest) list(ctx context.Context) ([]testPackage, error) {
	const format = "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}\t{{.Dir}}{{end}}"
	cmd := commandOf(ctx, slices.Concat([]string{"go", "list", "-f", format}, g.build, g.packages))
	var says strings.Builder
	cmd.Stderr = &says
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w: %s", strings.Join(g.packages, " "), err,
			strings.TrimSpace(says.String()))
	}
	var found []testPackage
	for line := range strings.Lines(string(out)) {
		if path, dir, ok := strings.Cut(strings.TrimSpace(line), "\t"); ok {
			found = append(found, testPackage{path, dir})
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%s: no package has tests: name one that has", strings.Join(g.packages, " "))
	}
	return found, nil
}

// program builds the tests of a package.
func (g goTest) program(ctx context.Context, p testPackage, file string) error {
	build := commandOf(ctx, slices.Concat([]string{"go", "test", "-c", "-o", file}, g.build, []string{p.path}))
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("go test -c %s: %w: %s", p.path, err, strings.TrimSpace(string(out)))
	}
	return nil
}
