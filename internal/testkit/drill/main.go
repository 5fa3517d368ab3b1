// Command drill checks and shrinks the histories of the drill, which is the test of this folder: processes of all kinds
// work on one server while connections break, processes die and the server restarts, and write down what they do.
// Package history has the records and the rules.
//
//	go test ./internal/testkit/drill -run TestDrill                      seconds, as in go test
//	LUATOMIC_DRILL=1 go test ./internal/testkit/drill -run TestDrill -v  long; -drill.operations, -drill.seed
//	go run ./internal/testkit/drill FILE                                 checks what a failed drill has left
//	go run ./internal/testkit/drill -shrink OUT FILE                     and writes what shows the first violation
package main

import (
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/luatomic/luatomic/internal/testkit/drill/history"
)

func main() { os.Exit(check(os.Args[1:], os.Stdout, os.Stderr)) }

// check prints the violations in the history of a file: exit code 0 for none, 1 for some, 2 for wrong usage.
func check(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("drill", flag.ContinueOnError)
	flags.SetOutput(stderr)
	out := flags.String("shrink", "", "write the smallest part that shows the first violation to this file")
	if flags.Parse(args) != nil {
		return 2
	}
	if flags.NArg() != 1 {
		fmt.Fprintln(stderr, "usage: drill [-shrink OUT] FILE")
		return 2
	}
	all, torn, err := history.ReadFile(flags.Arg(0))
	if err != nil {
		fmt.Fprintln(stderr, "drill:", err)
		return 2
	}
	found := history.Check(all)
	for _, v := range found {
		fmt.Fprintln(stdout, v)
	}
	fmt.Fprintf(stdout, "%d records, %d half-written; violations: %d\n", len(all), torn, len(found))
	if len(found) == 0 {
		return 0
	}
	if *out != "" {
		if err := writeShrunk(*out, all, found[0], stdout); err != nil {
			fmt.Fprintln(stderr, "drill:", err)
		}
	}
	return 1
}

func writeShrunk(path string, all []history.Record, v history.Violation, stdout io.Writer) error {
	small := history.Shrink(all, v)
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	fmt.Fprintf(stdout, "%d of them show the first, in %s:\n", len(small), path)
	return history.WriteAll(io.MultiWriter(file, stdout), small)
}
