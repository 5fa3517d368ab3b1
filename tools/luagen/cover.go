package main

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/luatomic/luatomic/luatomictest/luacover"
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
	file       string // as given
	profile    string // the name in a profile
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
func scriptsOf(dirs string) (map[string]*covered, error) {
	list, files := map[string]*covered{}, []string(nil)
	for _, dir := range strings.Split(cmp.Or(dirs, "."), ",") {
		found, err := luagen.ScriptFiles(dir)
		if err != nil {
			return nil, err
		}
		files = append(files, found...)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("luagen: %w", err)
		}
		where, err := luagen.ImportPath(filepath.Dir(file))
		if err != nil {
			where = filepath.ToSlash(filepath.Dir(file))
		}
		list[marks.Digest(string(text))] = &covered{file: file, profile: path.Join(where, filepath.Base(file)),
			statements: marks.Statements(string(text)), ran: map[int]bool{}}
	}
	if len(list) == 0 {
		return nil, errors.New("luagen: no scripts with a header below these folders: name others with -scripts")
	}
	return list, nil
}

// runCovered runs the command and reads what its test programs wrote.
func runCovered(words []string, list map[string]*covered, stdout, stderr io.Writer) (code int, err error) {
	dir, err := os.MkdirTemp("", "luagen-cover-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	code, err = runWith(words, stdout, stderr, luacover.DirVar+"="+dir)
	if err != nil {
		return code, err
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return 1, err
	}
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			return 1, err
		}
		readMarks(string(text), list)
	}
	return code, nil
}

// runWith runs a command with more variables, tests anew.
func runWith(words []string, stdout, stderr io.Writer, variables ...string) (code int, err error) {
	if len(words) > 1 && words[0] == "go" && words[1] == "test" {
		words = slices.Insert(slices.Clone(words), 2, "-count=1") // a result of before has run nothing
	}
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), variables...), stdout, stderr
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

func readMarks(text string, list map[string]*covered) {
	for line := range strings.Lines(text) {
		digest, number, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.Atoi(number)
		if c := list[digest]; c != nil && err == nil && n >= 0 && n < len(c.statements) {
			c.ran[n] = true
		}
	}
}

// sorted lists the scripts by file.
func sorted(list map[string]*covered) []*covered {
	return slices.SortedFunc(maps.Values(list), func(a, b *covered) int { return strings.Compare(a.file, b.file) })
}

// profile writes what go tool cover reads.
func profile(list map[string]*covered) []byte {
	var b bytes.Buffer
	b.WriteString("mode: set\n")
	for _, c := range sorted(list) {
		for i, s := range c.statements {
			hit := 0
			if c.ran[i] {
				hit = 1
			}
			fmt.Fprintf(&b, "%s:%d.%d,%d.%d 1 %d\n", c.profile, s.Start.Line, s.Start.Col, s.End.Line, s.End.Col, hit)
		}
	}
	return b.Bytes()
}

// printCoverage prints a line for each script, with the lines that did not run, and returns the share of all statements
// in per cent.
func printCoverage(list map[string]*covered, w io.Writer) float64 {
	ran, all := 0, 0
	for _, c := range sorted(list) {
		var missed []string
		for i, s := range c.statements {
			if !c.ran[i] {
				missed = append(missed, strconv.Itoa(s.Start.Line))
			}
		}
		missed = slices.Compact(missed)
		ran, all = ran+len(c.ran), all+len(c.statements)
		line := fmt.Sprintf("%6.1f %%  %s", percentOf(len(c.ran), len(c.statements)), c.file)
		switch {
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
