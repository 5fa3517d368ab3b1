package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/luatomic/luatomic/tools/luagen/luagen"
)

const docUsage = `luagen doc writes a reference of scripts in Markdown from their headers.

usage: luagen doc [-check] [-title text] [-o file] FILE or FOLDER...

  -check       write nothing; print a diff and exit 1 if the file is not up to date
  -o file      where it goes; default: standard output
  -title text  its first line; default: Scripts

exit codes: 0 done, 1 a script has errors or -check found a difference, 2 wrong usage
`

const editorUsage = `luagen editor writes what the Lua language server has to know of scripts of Redis: KEYS, ARGV and the calls of redis.

usage: luagen editor [-check] [-o file]

Put the file into the folder of the scripts' project, and name it in .luarc.json:
  {"runtime.version": "Lua 5.1", "workspace.library": ["redis.d.lua"]}

  -check   write nothing; print a diff and exit 1 if the file is not up to date
  -o file  where it goes; default: standard output

exit codes: 0 done, 1 -check found a difference, or the file cannot be written, 2 wrong usage
`

var errNoOutput = errors.New("-check compares a file: name it with -o")

// document runs the verb doc.
func document(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("doc", flag.ContinueOnError)
	check, out, title := flags.Bool("check", false, ""), flags.String("o", "", ""), flags.String("title", "Scripts", "")
	paths, code, ok := parsePaths(flags, args, docUsage, stdout, stderr)
	if !ok {
		return code
	}
	switch {
	case len(paths) == 0:
		return wrongUsage(stderr, "doc", docUsage, errors.New("name files or folders"))
	case *check && *out == "":
		return wrongUsage(stderr, "doc", docUsage, errNoOutput)
	}
	scripts, _, err := parsedScripts(paths)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return writeText(*out, luagen.Reference(*title, scripts), *check, stdout, stderr)
}

// editor runs the verb of that name.
func editor(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("editor", flag.ContinueOnError)
	check, out := flags.Bool("check", false, ""), flags.String("o", "", "")
	paths, code, ok := parsePaths(flags, args, editorUsage, stdout, stderr)
	switch {
	case !ok:
		return code
	case len(paths) > 0:
		return wrongUsage(stderr, "editor", editorUsage, fmt.Errorf("%q: it takes no files or folders", paths[0]))
	case *check && *out == "":
		return wrongUsage(stderr, "editor", editorUsage, errNoOutput)
	}
	return writeText(*out, luagen.EditorFile(), *check, stdout, stderr)
}

// writeText writes a file that is not up to date, or shows the difference.
func writeText(path, text string, check bool, stdout, stderr io.Writer) int {
	if path == "" {
		fmt.Fprint(stdout, text)
		return 0
	}
	if have, err := os.ReadFile(path); err == nil && string(have) == text {
		return 0
	}
	if err := checkOutput(path); err != nil {
		fmt.Fprintln(stderr, "luagen:", err)
		return 1
	}
	files := []luagen.File{{Path: path, Text: []byte(text)}}
	if check {
		return report(files, stdout)
	}
	if err := luagen.Apply(files); err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}
