// Luagen turns annotated Redis Lua scripts into typed Go functions.
//
// Run it with go tool luagen -h for usage.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/luatomic/luatomic/tools/luagen/luagen"
)

const usage = `luagen turns annotated Redis Lua scripts into typed Go functions.

usage: luagen [-check] [-pkg name] [dir]
       luagen [-check] [-pkg name] -scripts dir [-out dir]

With dir (default "."), each x.lua gets its x.lua.go beside it.
With -scripts, the Go goes to -out (default ".") and scripts.go, which embeds the texts, to the scripts' folder.
Between the lines "--< part/y.lua" and "-->" of a script luagen writes the text of part/y.lua beside it.

  -check        write nothing; print a diff and exit 1 if a generated file is not up to date
  -out dir      folder of the generated Go
  -pkg name     package of the generated Go; default: as the Go files there say, else the folder's name
  -scripts dir  folder of the .lua files

examples:
  //go:generate go tool luagen
  //go:generate go tool luagen -scripts ../scripts -out .
  go tool luagen -check -scripts scripts -out gen      (in CI)

exit codes: 0 done, 1 the scripts have faults or -check found a difference, 2 wrong usage
`

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	cfg, check, err := parseArgs(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, usage)
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "luagen: %v\n\n%s", err, usage)
		return 2
	}
	res, err := luagen.Generate(cfg)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	if len(res.Found) > 0 {
		for _, d := range res.Found {
			fmt.Fprintln(stderr, d.Format(res.Sources[d.File]))
		}
		fmt.Fprintf(stderr, "luagen: findings: %d; nothing written\n", len(res.Found))
		return 1
	}
	if check {
		for _, d := range res.Drift {
			fmt.Fprintln(stderr, d.Format(res.Sources[d.File]))
		}
		return report(res.Changes, stdout)
	}
	if err := luagen.Apply(res.Changes); err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
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
	flags.StringVar(&cfg.Scripts, "scripts", "", "")
	if err := flags.Parse(args); err != nil {
		return cfg, false, err
	}
	switch {
	case flags.NArg() > 1:
		return cfg, false, errors.New("more than one folder")
	case flags.NArg() == 1 && (cfg.Scripts != "" || cfg.Out != ""):
		return cfg, false, errors.New("a folder together with -scripts or -out")
	case flags.NArg() == 1:
		cfg.Scripts, cfg.Out = flags.Arg(0), flags.Arg(0)
	}
	if cfg.Scripts == "" {
		cfg.Scripts = "."
	}
	if cfg.Out == "" {
		cfg.Out = "."
	}
	return cfg, check, nil
}
