package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/luatomic/luatomic/luatomictest/luacover"
)

const traceUsage = `luagen trace prints what scripts do while a command, most often go test, is under way.

usage: luagen trace [-only names] [-o file] COMMAND...

For each call of a script it prints the keys and arguments, then a line for each redis.call with its place and arguments, and
one with the reply and the time by the server's clock. A call without a reply has ended the script. The
test program imports luatomictest, as for luagen cover.

  -o file      where it goes; default: standard output, when the command has ended
  -only names  of scripts, without .lua, joined by commas; default: all

exit codes: that of the command, 1 if it cannot be run, 2 wrong usage
`

// trace runs the verb of that name.
func trace(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("trace", flag.ContinueOnError)
	only, out := flags.String("only", "", ""), flags.String("o", "", "")
	if code, ok := parseFlags(flags, args, traceUsage, stdout, stderr); !ok {
		return code
	}
	if flags.NArg() == 0 {
		fmt.Fprintf(stderr, "luagen trace: name a command, such as go test -run Stock ./stock\n\n%s", traceUsage)
		return 2
	}
	code, err := traced(flags.Args(), *only, *out, stdout, stderr)
	if err != nil {
		fmt.Fprintln(stderr, "luagen trace:", err)
		return max(code, 1)
	}
	return code
}

// traced runs the command and prints what its test programs wrote, one program after the other.
func traced(words []string, only, out string, stdout, stderr io.Writer) (code int, err error) {
	dir, err := os.MkdirTemp("", "luagen-trace-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	code, err = runWith(words, stdout, stderr, luacover.TraceVar+"="+dir, luacover.OnlyVar+"="+only)
	if err != nil {
		return code, err
	}
	if out != "" {
		f, err := os.Create(out)
		if err != nil {
			return 1, err
		}
		defer f.Close()
		stdout = f
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return 1, err
		}
		if _, err := stdout.Write(text); err != nil {
			return 1, err
		}
	}
	return code, err
}
