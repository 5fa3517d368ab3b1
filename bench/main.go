// Command bench measures luatomic beside raw Redis commands and its peers, on one server, in one run.
//
//	go run . run [-quick] [-url URL] [-rows REGEXP] [-out FILE]   measure, and write the result file and its table
//	go run . table FILE                                           print the table of a result file
//	go run . compare OLD NEW                                      print what changed between two result files
//	go run . plot FILE FOLDER                                     draw the plots of a result file as SVG
//	go run . publish                                              write plots, docs/benchmarks.md and the README
//	go run . instructions [-renew]                                count the server's instructions by callgrind
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

const (
	resultFile = "result.json" // what is published
	trialFile  = "trial.json"  // what is not
)

const usage = `usage: bench run [-quick] [-url URL] [-rows REGEXP] [-rounds N] [-slot LENGTH] [-out FILE]
       bench table FILE
       bench compare OLD NEW
       bench plot FILE FOLDER
       bench publish
       bench instructions [-renew] [-server PROGRAM] [-rows REGEXP] [-table FILE]`

func command(ctx context.Context, args []string) error {
	if len(args) == 0 {
		args = []string{"run"}
	}
	name, rest := args[0], args[1:]
	switch {
	case name == "run":
		return runCommand(ctx, rest)
	case name == "instructions":
		return instructionsCommand(ctx, rest)
	case name == "hold" && len(rest) == 4: // started by a run, which kills it
		waiters, err := strconv.Atoi(rest[3])
		if err != nil {
			return err
		}
		return hold(ctx, rest[0], rest[1], rest[2], waiters)
	case name == "table" && len(rest) == 1:
		r, err := load(rest[0])
		if err != nil {
			return err
		}
		return writeTable(os.Stdout, r)
	case name == "compare" && len(rest) == 2:
		older, err := load(rest[0])
		if err != nil {
			return err
		}
		newer, err := load(rest[1])
		if err != nil {
			return err
		}
		return writeComparison(os.Stdout, older, newer)
	case name == "plot" && len(rest) == 2:
		r, err := load(rest[0])
		if err != nil {
			return err
		}
		return drawAll(r, rest[1])
	case name == "publish" && len(rest) == 0: // in the folder bench
		return publishAll()
	}
	return fmt.Errorf("unknown command %q\n%s", args, usage)
}

// publishAll publishes what the folder of the benchmarks has.
func publishAll() error {
	r, err := load(resultFile)
	if err != nil {
		return err
	}
	first, err := load("first.json")
	if err != nil {
		return err
	}
	counts, err := loadInstructions(instructionsFile)
	if err != nil {
		return err
	}
	return publish(r, first, counts, "..")
}

func runCommand(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("run", flag.ContinueOnError)
	quick := fs.Bool("quick", false, "few short rounds: about 3 minutes; the result is not for publish")
	url := fs.String("url", "", "measure this server; default: a container, else a local server")
	rows := fs.String("rows", "", "only the rows whose name matches the `REGEXP`")
	rounds := fs.Int("rounds", 21, "rounds of a row, in each of which every entrant has one slot")
	slot := fs.Duration("slot", 100*time.Millisecond, "the `LENGTH` of a slot, 40 to 200 ms")
	out := fs.String("out", "", "the result `FILE` (default result.json, with -quick or -rows "+trialFile+")")
	if err := fs.Parse(args); err != nil {
		return err
	}
	pattern, err := regexp.Compile(*rows)
	if err != nil {
		return fmt.Errorf("-rows: %w", err)
	}
	if fs.NArg() > 0 || *rounds < 1 {
		return fmt.Errorf("run takes flags only, and at least 1 round\n%s", usage)
	}
	if *slot < 40*time.Millisecond || *slot > 200*time.Millisecond {
		return fmt.Errorf("-slot: %v is not within 40 to 200 ms", *slot)
	}
	o := options{Quick: *quick, Rounds: *rounds, Slot: *slot, Whole: 3, Rows: *rows, Span: time.Second}
	if o.Quick {
		o.Rounds, o.Slot, o.Whole, o.Span = 3, 40*time.Millisecond, 1, 150*time.Millisecond
	}
	why := o.trial()
	if *out == "" {
		*out = resultFile
		if why != "" {
			*out = trialFile
		}
	}
	if why != "" && filepath.Base(*out) == resultFile {
		return fmt.Errorf("-out %s: a result %s is not published; write it to %s", *out, why, trialFile)
	}
	r, err := measure(ctx, o, *url, pattern)
	if err != nil {
		return err
	}
	if err := r.save(*out); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%s written\n", *out)
	return writeTable(os.Stdout, r)
}
