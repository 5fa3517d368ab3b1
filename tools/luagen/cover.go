package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/luatomic/luatomic/luatomictest/luacover"
	"github.com/luatomic/luatomic/tools/luagen/luaast"
	marks "github.com/luatomic/luatomic/tools/luagen/luacover"
	"github.com/luatomic/luatomic/tools/luagen/luagen"
)

const coverUsage = `luagen cover tells which statements of the scripts ran while a command, most often go test, was under way.

usage: luagen cover [-scripts dirs] [-o file] [-min percent] [COMMAND...]

The command is "go test ./..." by default. Its test programs import luatomictest or, for its effect alone,
github.com/luatomic/luatomic/luatomictest/luacover. Any client and a cluster will do.

  -scripts dirs  folders of the .lua files, joined by commas; default: all below this one that have a header
  -o file        write a profile, for go tool cover -html=file
  -min percent   exit with 1 when fewer of the statements ran

exit codes: that of the command if it fails, else 0, or 1 below -min; 2 wrong usage
`

// covered is a script and which of its statements ran.
type covered struct {
	digest     string // scripts of the same bytes are one to the server: what ran of one, ran of all
	unmarked   bool   // it has no room for marks
	source     luagen.Runnable
	statements []marks.Statement
	ran        map[int]bool
}

// cover runs the verb of that name.
func cover(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("cover", flag.ContinueOnError)
	scripts, out := flags.String("scripts", "", ""), flags.String("o", "", "")
	least := flags.Float64("min", 0, "")
	if code, ok := parseFlags(flags, args, coverUsage, stdout, stderr); !ok {
		return code
	}
	list, err := scriptsOf(*scripts)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	if err := checkOutput(*out); err != nil {
		fmt.Fprintln(stderr, "luagen cover:", err)
		return 1
	}
	code, err := runCovered(words(flags.Args()), list, stdout, stderr)
	if err == nil && *out != "" {
		err = os.WriteFile(*out, profile(list), 0o644)
	}
	if err != nil {
		fmt.Fprintln(stderr, "luagen cover:", err)
		return max(code, 1)
	}
	percent := printCoverage(list, stdout)
	if code == 0 && percent < *least {
		fmt.Fprintf(
			stderr,
			"luagen cover: %.1f %% of the statements ran, less than %g %%: test the lines above\n",
			percent,
			*least,
		)
		return 1
	}
	return code
}

// words is the command that the user asked for, or all tests.
func words(given []string) []string {
	if len(given) == 0 {
		return []string{"go", "test", "./..."}
	}
	return given
}

// scriptsOf reads the scripts of the folders, or of all below this one.
func scriptsOf(dirs string) ([]*covered, error) {
	var files []string
	for _, dir := range strings.Split(cmp.Or(dirs, "."), ",") {
		found, err := luagen.ScriptFiles(dir)
		if err != nil {
			return nil, err
		}
		files = append(files, found...)
	}
	slices.Sort(files)
	var list []*covered
	for _, file := range slices.Compact(files) {
		source, err := readLua(file)
		if err != nil {
			return nil, fmt.Errorf("luagen: %w", err)
		}
		list = append(list, coveredOf(source))
	}
	if len(list) == 0 {
		return nil, errors.New("luagen: no scripts with a header below these folders: name others with -scripts")
	}
	return list, nil
}

// readLua reads a script that parses: of another one there is nothing to mark or to mutate.
func readLua(file string) (luagen.Runnable, error) {
	source, err := luagen.ReadRunnable(file)
	if err != nil {
		return source, err
	}
	if _, err := luaast.Parse(source.Text); err != nil {
		return source, fmt.Errorf("%s:%w", file, err)
	}
	return source, nil
}

func coveredOf(source luagen.Runnable) *covered {
	text := source.Text
	c := &covered{source: source, digest: marks.Digest(text), statements: marks.Statements(text), ran: map[int]bool{}}
	c.unmarked = len(c.statements) > 0 && marks.Mark(text) == text
	return c
}

// inProfile names a file as go tool cover finds it.
func inProfile(file string) string {
	where, err := luagen.ImportPath(filepath.Dir(file))
	if err != nil {
		where = filepath.ToSlash(filepath.Dir(file))
	}
	return path.Join(where, filepath.Base(file))
}

// runCovered runs the command and reads what its test programs wrote.
func runCovered(words []string, list []*covered, stdout, stderr io.Writer) (code int, err error) {
	err = inFolder("luagen-cover-", func(ctx context.Context, dir string) (err error) {
		addr, stop, err := luacover.Serve(marks.Answer)
		if err != nil {
			return err
		}
		defer stop()
		code, err = runWith(ctx, words, stdout, stderr, luacover.DirVar+"="+dir, luacover.TextsVar+"="+addr)
		if err != nil {
			return err
		}
		sayRefused(stderr, "cover", dir)
		return readFolder(dir, list)
	})
	return code, err
}

// refusals are the errors of users who may not publish or not subscribe, each once.
func refusals(dir string) (all []string) {
	files, _ := filepath.Glob(filepath.Join(dir, "*"+luacover.RefusedExt))
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil {
			all = append(all, string(text))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func sayRefused(stderr io.Writer, verb, dir string) {
	for _, text := range refusals(dir) {
		fmt.Fprintf(stderr, "luagen %s: what some scripts ran is not known: %s: allow the user of the tests to "+
			"publish and subscribe to luagen:*\n", verb, text)
	}
}

// runWith runs a command with more variables, tests anew.
func runWith(ctx context.Context, words []string, stdout, stderr io.Writer, variables ...string) (code int, err error) {
	cmd := commandOf(ctx, testsAnew(words), variables...)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	err = cmd.Run()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		return max(1, failed.ExitCode()), nil
	}
	if err != nil {
		return 1, err
	}
	return 0, nil
}

// readFolder reads what the test programs of a run wrote.
func readFolder(dir string, list []*covered) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		readMarks(string(text), list)
	}
	return err
}

func readMarks(text string, list []*covered) {
	byDigest := map[string][]*covered{}
	for _, c := range list {
		byDigest[c.digest] = append(byDigest[c.digest], c)
	}
	for line := range strings.Lines(text) {
		digest, number, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.Atoi(number)
		for _, c := range byDigest[digest] {
			if err == nil && n >= 0 && n < len(c.statements) {
				c.ran[n] = true
			}
		}
	}
}

// profile writes what go tool cover reads.
func profile(list []*covered) []byte {
	var b bytes.Buffer
	b.WriteString("mode: set\n")
	for _, c := range list {
		for i, s := range c.statements {
			hit := 0
			if c.ran[i] {
				hit = 1
			}
			file, from, to := c.span(s)
			fmt.Fprintf(&b, "%s:%d.%d,%d.%d 1 %d\n", inProfile(file), from.Line, from.Col, to.Line, to.Col, hit)
		}
	}
	return b.Bytes()
}

// span is the place of a statement in its source. One that ends in another file ends there where its first line does.
func (c *covered) span(s marks.Statement) (file string, from, to luagen.Pos) {
	file, line := c.source.Place(s.Start.Line)
	from = luagen.Pos{Line: line, Col: max(1, s.Start.Col-c.source.Shift(s.Start.Line))}
	end, line := c.source.Place(s.End.Line)
	if to = (luagen.Pos{Line: line, Col: max(1, s.End.Col-c.source.Shift(s.End.Line))}); end != file {
		to = luagen.Pos{Line: from.Line, Col: from.Col + 1}
	}
	return file, from, to
}

// place is the line of a statement, or the file and the line of a fragment.
func (c *covered) place(s marks.Statement) string {
	file, line := c.source.Place(s.Start.Line)
	if file == c.source.File {
		return strconv.Itoa(line)
	}
	return fmt.Sprintf("%s:%d", file, line)
}

// printCoverage prints a line for each script, with the lines that did not run, and returns the share of all statements
// in per cent.
func printCoverage(list []*covered, w io.Writer) float64 {
	ran, all := 0, 0
	for _, c := range list {
		var missed []string
		for i, s := range c.statements {
			if !c.ran[i] {
				missed = append(missed, c.place(s))
			}
		}
		missed = slices.Compact(missed)
		ran, all = ran+len(c.ran), all+len(c.statements)
		line := fmt.Sprintf("%6.1f %%  %s", percentOf(len(c.ran), len(c.statements)), c.source.File)
		switch {
		case c.unmarked:
			line += "  not known: no room for one more upvalue, which marks need"
		case len(c.ran) == 0:
			line += "  never ran"
		case len(missed) > 0:
			line += "  not run: line " + strings.Join(missed, ", ")
		}
		fmt.Fprintln(w, line)
	}
	fmt.Fprintf(w, "%6.1f %%  of %d statements in %d scripts\n", percentOf(ran, all), all, len(list))
	return percentOf(ran, all)
}

func percentOf(n, of int) float64 {
	if of == 0 {
		return 100
	}
	return 100 * float64(n) / float64(of)
}
