// Luagen turns annotated Redis Lua scripts into typed Go functions.
//
// Run it with go tool luagen -h for usage.
package main

import (
	"errors"
	"flag"
	"fmt"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/luatomic/luatomic/tools/internal/spelling"
	"github.com/luatomic/luatomic/tools/luagen/luagen"
)

const usage = `luagen turns annotated Redis Lua scripts into typed Go functions.

usage: luagen [-check] [-strict] [-interface] [-target names] [-pkg name] [dir]
       luagen [-check] [-strict] [-interface] [-target names] [-pkg name] [-domain name] -scripts dir [-out dir]
       luagen VERB ...      vet, init, fix, prove, cover, trace, mutate, doc, editor; luagen VERB -h says more

With dir (default "."), each x.lua gets its x.lua.go beside it; src/x.lua, which has fragments, its x.lua, too.
With -scripts, the Go goes to -out (default "."), and the texts that it embeds.
A line "--< part/y.lua" of a script stands for the text of part/y.lua, beside it or in the folder above.

  -domain name  of the scripts, of several; it begins their names, as in queue_push
  -check        write nothing; print a diff and exit 1 if a generated file is not up to date
  -interface    print calls.go, too: the functions as an interface, and a fake for unit tests
  -out dir      folder of the generated Go
  -pkg name     package of the generated Go; default: as the Go files there say, else the folder's name
  -scripts dir  folder of the .lua files
  -strict       warnings stop the run, too
  -target names where the scripts have to run, joined by commas: TARGETS

examples:
  //go:generate go tool luagen
  //go:generate go tool luagen -scripts ../scripts -out .
  //go:generate go tool luagen -domain queue -scripts ../../scripts/queue -out .
  go tool luagen -check -scripts scripts -out gen      (in CI)

exit codes: 0 done, 1 the scripts have errors or -check found a difference, 2 wrong usage
`

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// verbs are what luagen does besides generating.
var verbs = map[string]func(args []string, stdout, stderr io.Writer) int{
	"vet": vet, "init": initialize, "fix": fix, "prove": prove, "cover": cover, "mutate": mutate,
	"trace": trace, "doc": document, "editor": editor,
}

func run(args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 && verbs[args[0]] != nil {
		return verbs[args[0]](args[1:], stdout, stderr)
	}
	if len(args) > 0 && args[0] == "help" {
		return help(args[1:], stdout, stderr)
	}
	cfg, check, err := parseArgs(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, withTargets(usage))
		return 0
	case err != nil:
		return wrongUsage(stderr, "", usage, err)
	}
	res, err := luagen.Generate(cfg)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	for _, d := range res.Found {
		printFinding(stderr, cfg, res, d)
	}
	if cfg.Stops(res.Found) {
		fmt.Fprintf(stderr, "luagen: findings: %d; nothing written\n", len(res.Found))
		return 1
	}
	if check {
		return report(res.Changes, stdout)
	}
	if err := luagen.Apply(res.Changes); err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

// help prints the usage, or that of a verb.
func help(words []string, stdout, stderr io.Writer) int {
	switch {
	case len(words) == 0:
		return run([]string{"-h"}, stdout, stderr)
	case verbs[words[0]] != nil:
		return run([]string{words[0], "-h"}, stdout, stderr)
	}
	return wrongUsage(stderr, "", usage, noFolder(words[0]))
}

// printFinding names the file as it is found from the working directory, as the diff and luagen vet do.
func printFinding(w io.Writer, cfg luagen.Config, res luagen.Result, d luagen.Diagnostic) {
	source := res.Sources[d.File]
	d.File = filepath.Join(cfg.Scripts, filepath.FromSlash(d.File))
	fmt.Fprintln(w, d.Format(source))
}

// wrongUsage prints an error, one line of usage, and where there is more.
func wrongUsage(stderr io.Writer, verb, usage string, err error) int {
	program := strings.TrimSpace("luagen " + verb)
	_, after, _ := strings.Cut(withTargets(usage), "usage: ")
	line, _, _ := strings.Cut(after, "\n")
	fmt.Fprintf(stderr, "%s: %v\nusage: %s\nmore:  %s -h\n", program, err, line, program)
	return 2
}

func report(files []luagen.File, stdout io.Writer) int {
	for _, f := range files {
		fmt.Fprint(stdout, luagen.Diff(f))
	}
	if len(files) > 0 {
		return 1
	}
	return 0
}

func parseArgs(args []string) (cfg luagen.Config, check bool, err error) {
	flags := flag.NewFlagSet("luagen", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.BoolVar(&check, "check", false, "")
	flags.StringVar(&cfg.Out, "out", "", "")
	flags.StringVar(&cfg.Package, "pkg", "", "")
	flags.StringVar(&cfg.Domain, "domain", "", "")
	flags.StringVar(&cfg.Scripts, "scripts", "", "")
	flags.BoolVar(&cfg.Calls, "interface", false, "")
	flags.BoolVar(&cfg.Strict, "strict", false, "")
	target := flags.String("target", "", "")
	dirs, err := folders(flags, args)
	if err != nil {
		return cfg, false, err
	}
	if cfg.Targets, err = targets(*target); err != nil {
		return cfg, false, err
	}
	if p := cfg.Package; p != "" && (!token.IsIdentifier(p) || p == "_") {
		return cfg, false, fmt.Errorf("-pkg: %q is not a package name", p)
	}
	switch {
	case len(dirs) > 1:
		return cfg, false, fmt.Errorf("there are %d folders: name one folder; run luagen once for each", len(dirs))
	case len(dirs) == 1 && (cfg.Scripts != "" || cfg.Out != ""):
		return cfg, false, errors.New("a folder together with -scripts or -out")
	case len(dirs) == 1:
		cfg.Scripts, cfg.Out = dirs[0], dirs[0]
	}
	if cfg.Scripts == "" {
		cfg.Scripts = "."
	}
	if cfg.Out == "" {
		cfg.Out = "."
	}
	return cfg, check, nil
}

// folders parses the flags, which may stand before and behind the folders.
func folders(flags *flag.FlagSet, args []string) (dirs []string, err error) {
	for {
		if err := flags.Parse(args); err != nil || flags.NArg() == 0 {
			return dirs, err
		}
		dir := flags.Arg(0)
		switch info, err := os.Stat(dir); {
		case errors.Is(err, fs.ErrNotExist):
			return nil, noFolder(dir)
		case err == nil && !info.IsDir():
			return nil, fmt.Errorf("%s is a file: name its folder, %s", dir, filepath.Dir(dir))
		}
		dirs, args = append(dirs, dir), flags.Args()[1:]
	}
}

// noFolder is the error of an argument that is no folder: a verb behind flags, or most often a mistyped one.
func noFolder(word string) error {
	if verbs[word] != nil {
		return fmt.Errorf("the verb %s comes first, its flags behind it", word)
	}
	if strings.HasSuffix(word, "...") {
		return fmt.Errorf("%s is no folder: name one folder; go generate ./... runs luagen for each that asks for it",
			word)
	}
	names := slices.Sorted(maps.Keys(verbs))
	if near := spelling.Nearest(word, names); near != "" {
		return fmt.Errorf("there is no folder and no verb %q: the nearest verb is %s", word, near)
	}
	return fmt.Errorf("there is no folder and no verb %q: verbs are %s", word, strings.Join(names, ", "))
}
