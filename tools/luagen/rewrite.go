package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/luatomic/luatomic/tools/luagen/luagen"
)

const initUsage = `luagen init drafts the header of scripts that have none.

usage: luagen init [-w] FILE...

Names come from the script's locals, types from its commands and conversions, the reply from its returns. Contract, retry and
what is marked "check:" are guesses, and so are the types: read the whole header once. luagen warns until the words "check: ..."
and the description of the draft are gone (H011). The script's own lines stay as they are.

  -w   write the files; without it the change is printed as a diff

exit codes: 0 done, 1 a file has a header, does not parse or cannot be written, 2 wrong usage
`

const fixUsage = `luagen fix binds KEYS and ARGV to the names of the header, and renames locals that differ from it.

usage: luagen fix [-w] FILE...

It writes lines such as "local lock, fence = KEYS[1], KEYS[2]" at the top, puts the names in place of the entries, and leaves
an entry alone where its name is taken. Nothing else changes.

  -w   write the files; without it the change is printed as a diff

exit codes: 0 done, 1 a file has no header, does not parse or cannot be written, 2 wrong usage
`

// initialize and fix run the verbs init and fix.
func initialize(args []string, stdout, stderr io.Writer) int {
	return rewrite("init", initUsage, luagen.Draft, args, stdout, stderr)
}

func fix(args []string, stdout, stderr io.Writer) int {
	return rewrite("fix", fixUsage, luagen.Fix, args, stdout, stderr)
}

// rewrite changes each file, or prints what would change.
func rewrite(
	verb, usage string,
	change func(file, source string) (string, error),
	args []string,
	stdout, stderr io.Writer,
) int {
	flags := flag.NewFlagSet(verb, flag.ContinueOnError)
	write := flags.Bool("w", false, "")
	paths, code, ok := parsePaths(flags, args, usage, stdout, stderr)
	if !ok {
		return code
	}
	if len(paths) == 0 {
		return wrongUsage(stderr, verb, usage, errors.New("name one file or more"))
	}
	for _, file := range paths {
		if err := rewriteOne(file, change, *write, stdout); err != nil {
			fmt.Fprintln(stderr, err)
			code = 1
		}
	}
	return code
}

func rewriteOne(file string, change func(file, source string) (string, error), write bool, stdout io.Writer) error {
	text, err := os.ReadFile(file)
	if info, e := os.Stat(file); e == nil && info.IsDir() {
		return fmt.Errorf("luagen: %q is a folder: name its files, %s", file, filepath.Join(file, "*.lua"))
	} else if err != nil {
		return fmt.Errorf("luagen: %w", err)
	}
	changed, err := change(file, string(text))
	switch {
	case err != nil:
		return err
	case changed == string(text):
		return nil
	case write:
		return luagen.Apply([]luagen.File{{Path: file, Text: []byte(changed)}})
	}
	_, err = fmt.Fprint(stdout, luagen.Diff(luagen.File{Path: file, Text: []byte(changed)}))
	return err
}
