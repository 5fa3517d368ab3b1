package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/token"
	"io"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf16"

	"github.com/luatomic/luatomic/tools/luagen/luagen"
)

const vetUsage = `luagen vet judges Redis Lua scripts, with or without luagen's header.

usage: luagen vet [-strict] [-target names] [-exclude glob] [-global names] [-format text|json|sarif] FILE or FOLDER...

It reads .lua files, and in Go files the string literals that are scripts: those that NewScript, Eval and their like take.
Below a FOLDER, Lua without a header that uses none of redis, server, KEYS and ARGV is counted, not judged.

  -exclude glob  leave out files and folders below FOLDER: by name, *_spec.lua, or by path, test/*; may be repeated
  -format kind   text (default), json or sarif
  -global names  globals that a program puts before the scripts, joined by commas
  -strict        warnings, too, give exit code 1
  -target names  where the scripts have to run, joined by commas: TARGETS

exit codes: 0 no errors, 1 errors, 2 wrong usage
`

// vet runs the verb of that name.
func vet(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("vet", flag.ContinueOnError)
	strict, format := flags.Bool("strict", false, ""), flags.String("format", "text", "")
	target, globals := flags.String("target", "", ""), flags.String("global", "", "")
	var o luagen.VetOptions
	flags.Func("exclude", "", func(glob string) error {
		o.Exclude = append(o.Exclude, glob)
		return nil
	})
	paths, code, ok := parsePaths(flags, args, vetUsage, stdout, stderr)
	if !ok {
		return code
	}
	write := map[string]func(io.Writer, []luagen.Vetted) error{"text": vetText, "json": vetJSON,
		"sarif": vetSARIF}[*format]
	switch {
	case write == nil:
		return wrongUsage(stderr, "vet", vetUsage,
			fmt.Errorf("-format: %q is not a format: formats are text, json, sarif", *format))
	case len(paths) == 0:
		return wrongUsage(stderr, "vet", vetUsage, errors.New("name files or folders"))
	}
	if err := vetNames(&o, *target, *globals); err != nil {
		return wrongUsage(stderr, "vet", vetUsage, err)
	}
	files, err := luagen.VetPaths(paths, o)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	if err := write(stdout, files); err != nil {
		fmt.Fprintln(stderr, "luagen vet:", err)
		return 1
	}
	for _, f := range files {
		if f.Found.HasErrors() || *strict && len(f.Found) > 0 {
			return 1
		}
	}
	return 0
}

// vetNames takes the values of the flags apart that are lists.
func vetNames(o *luagen.VetOptions, target, globals string) (err error) {
	if o.Targets, err = targets(target); err != nil {
		return err
	}
	for name := range strings.SplitSeq(globals, ",") {
		switch {
		case globals == "":
		case !token.IsIdentifier(name):
			return fmt.Errorf("-global: %q is not the name of a global", name)
		default:
			o.Globals = append(o.Globals, name)
		}
	}
	return o.Check()
}

// parseFlags prints usage for -h, and what is wrong with flags; ok is false when the run is over.
func parseFlags(flags *flag.FlagSet, args []string, usage string, stdout, stderr io.Writer) (code int, ok bool) {
	flags.SetOutput(io.Discard)
	switch err := flags.Parse(args); {
	case err == flag.ErrHelp:
		fmt.Fprint(stdout, withTargets(usage))
		return 0, false
	case err != nil:
		return wrongUsage(stderr, flags.Name(), usage, err), false
	}
	return 0, true
}

// parsePaths is parseFlags for verbs that take files and folders: flags may stand before and behind them.
func parsePaths(
	flags *flag.FlagSet, args []string, usage string, stdout, stderr io.Writer,
) (paths []string, code int, ok bool) {
	for {
		if code, ok := parseFlags(flags, args, usage, stdout, stderr); !ok || flags.NArg() == 0 {
			return paths, code, ok
		}
		paths, args = append(paths, flags.Arg(0)), flags.Args()[1:]
	}
}

func withTargets(usage string) string {
	return strings.ReplaceAll(usage, "TARGETS", strings.Join(luagen.TargetNames(), " "))
}

// targets takes the value of -target apart.
func targets(list string) ([]string, error) {
	if list == "" {
		return nil, nil
	}
	names, known := strings.Split(list, ","), luagen.TargetNames()
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("-target: %q is not a target: targets are %s", name, strings.Join(known, " "))
		}
	}
	return names, nil
}

func vetText(w io.Writer, files []luagen.Vetted) error {
	scripts, skipped, foreign, findings, warnings := 0, 0, 0, 0, 0
	for _, f := range files {
		scripts += f.Scripts
		skipped += f.Skipped
		foreign += f.Foreign
		for _, d := range f.Found {
			if d.Level() == luagen.Error {
				findings++
			} else {
				warnings++
			}
			if _, err := fmt.Fprintln(w, d.Format(f.Source)); err != nil {
				return err
			}
		}
	}
	text := fmt.Sprintf("luagen: scripts: %d, errors: %d, warnings: %d", scripts, findings, warnings)
	if skipped > 0 {
		text += fmt.Sprintf("; texts that something else completes, not read: %d", skipped)
	}
	if foreign > 0 {
		text += fmt.Sprintf("; Lua files that name nothing of Redis, not judged: %d", foreign)
	}
	_, err := fmt.Fprintln(w, text)
	return err
}

// finding is a diagnostic in JSON.
type finding struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Rule    string `json:"rule"`
	Level   string `json:"level"`
	Message string `json:"message"`
	Cure    string `json:"cure,omitempty"`
}

// vetJSON prints one array of findings.
func vetJSON(w io.Writer, files []luagen.Vetted) error {
	list := []finding{}
	for _, f := range files {
		for _, d := range f.Found {
			list = append(list, finding{d.File, d.Pos.Line, d.Pos.Col, d.Rule, d.Level().String(), d.Message, d.Cure})
		}
	}
	return indented(w, list)
}

func indented(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// The parts of SARIF 2.1.0 that a finding needs.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool       sarifTool     `json:"tool"`
		ColumnKind string        `json:"columnKind"`
		Results    []sarifResult `json:"results"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name           string      `json:"name"`
		InformationURI string      `json:"informationUri"`
		Rules          []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID string `json:"id"`
	}
	sarifResult struct {
		RuleID    string          `json:"ruleId"`
		Level     string          `json:"level"`
		Message   sarifText       `json:"message"`
		Locations []sarifLocation `json:"locations"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
	sarifLocation struct {
		PhysicalLocation sarifPlace `json:"physicalLocation"`
	}
	sarifPlace struct {
		ArtifactLocation sarifFile   `json:"artifactLocation"`
		Region           sarifRegion `json:"region"`
	}
	sarifFile struct {
		URI string `json:"uri"`
	}
	sarifRegion struct {
		StartLine   int `json:"startLine"`
		StartColumn int `json:"startColumn"`
	}
)

// vetSARIF prints what code hosts show beside the lines of a change.
func vetSARIF(w io.Writer, files []luagen.Vetted) error {
	run := sarifRun{ColumnKind: "utf16CodeUnits", Results: []sarifResult{}}
	run.Tool.Driver = sarifDriver{
		Name:           "luagen",
		InformationURI: "https://github.com/luatomic/luatomic/blob/main/docs/luagen.md",
		Rules:          []sarifRule{},
	}
	seen := map[string]bool{}
	for _, f := range files {
		lines := strings.Split(f.Source, "\n")
		for _, d := range f.Found {
			if !seen[d.Rule] {
				seen[d.Rule] = true
				run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, sarifRule{d.Rule})
			}
			file := url.URL{Path: filepath.ToSlash(d.File)}
			place := sarifPlace{sarifFile{file.String()}, sarifRegion{d.Pos.Line, columnIn(lines, d.Pos)}}
			run.Results = append(run.Results, sarifResult{d.Rule, d.Level().String(),
				sarifText{d.Message + ": " + d.Cure},
				[]sarifLocation{{place}}})
		}
	}
	return indented(w, sarifLog{"https://json.schemastore.org/sarif-2.1.0.json", "2.1.0", []sarifRun{run}})
}

// columnIn counts the column of a place in UTF-16 code units, as SARIF does; a Pos counts bytes.
func columnIn(lines []string, at luagen.Pos) int {
	if at.Line > len(lines) {
		return at.Col
	}
	line := lines[at.Line-1]
	return len(utf16.Encode([]rune(line[:min(at.Col-1, len(line))]))) + 1
}
