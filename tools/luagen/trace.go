package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/luatomic/luatomic/luatomictest/luacover"
	marks "github.com/luatomic/luatomic/tools/luagen/luacover"
)

const traceUsage = `luagen trace prints what scripts do while a command, most often go test, is under way.

usage: luagen trace [-only names] [-o file] COMMAND...

For each call of a script it prints the keys and arguments, then a line for each redis.call with its place and arguments, and
one with the reply and the time by the server's clock. A call without a reply has ended the script. The
test program imports luatomictest, as for luagen cover.

  -o file      where it goes; default: standard output, when the command has ended
  -only names  of scripts, without .lua, joined by commas; default: all

exit codes: that of the command, 1 if it cannot be run or a script was not traced, 2 wrong usage
`

// trace runs the verb of that name.
func trace(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("trace", flag.ContinueOnError)
	only, out := flags.String("only", "", ""), flags.String("o", "", "")
	if code, ok := parseFlags(flags, args, traceUsage, stdout, stderr); !ok {
		return code
	}
	if flags.NArg() == 0 {
		return wrongUsage(stderr, "trace", traceUsage, errors.New("name a command, such as go test -run Stock ./stock"))
	}
	var text bytes.Buffer
	code, err := 0, checkOutput(*out)
	if err == nil {
		code, err = traced(flags.Args(), *only, stdout, stderr, &text)
	}
	if err == nil {
		err = errors.Join(printTrace(*out, text.Bytes(), stdout), missing(*only, text.String()))
	}
	if err != nil {
		fmt.Fprintln(stderr, "luagen trace:", err)
		return max(code, 1)
	}
	return code
}

func printTrace(file string, text []byte, stdout io.Writer) error {
	if file != "" {
		return os.WriteFile(file, text, 0o644)
	}
	_, err := stdout.Write(text)
	return err
}

// missing is an error that names the scripts that were asked for and have not run.
func missing(only, text string) error {
	if only == "" && text == "" {
		return errors.New("no script ran, or the test programs do not import luatomictest")
	}
	var none []string
	for _, name := range strings.Split(only, ",") {
		if only != "" && !strings.Contains("\n"+text, "\n"+name+" KEYS {") {
			none = append(none, strconv.Quote(name))
		}
	}
	if none == nil {
		return nil
	}
	return fmt.Errorf("no script of the name %s ran: -only takes names as in take of take.lua",
		strings.Join(none, " or "))
}

// traced runs the command and prints what its test programs wrote, one program after the other.
func traced(words []string, only string, stdout, stderr io.Writer, out *bytes.Buffer) (code int, err error) {
	err = inFolder("luagen-trace-", func(ctx context.Context, dir string) (err error) {
		names := strings.FieldsFunc(only, func(r rune) bool { return r == ',' })
		addr, stop, err := luacover.Serve(marks.Tracer(names...))
		if err != nil {
			return err
		}
		defer stop()
		code, err = runWith(ctx, words, stdout, stderr, luacover.TraceVar+"="+dir, luacover.TextsVar+"="+addr)
		if err != nil {
			return err
		}
		sayRefused(stderr, "trace", dir)
		files, err := filepath.Glob(filepath.Join(dir, "*.txt"))
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			out.Write(text)
		}
		return err
	})
	return code, err
}
