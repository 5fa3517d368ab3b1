package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
)

// instructions are the counts of one run: how many instructions a server executes for a call, by the name of its row.
type instructions struct {
	Server string             `json:"server"` // version and build: another compiler makes other instructions
	Peers  map[string]string  `json:"peers"`  // module or program: version
	Rows   map[string]float64 `json:"rows"`
	absent map[string]string  // rows of peers that are not installed here: why
}

const (
	instructionsFile = "instructions.json"
	mayDiffer        = 0.01 // of a script
	mayDifferLoose   = 0.06 // of what a client does, with ids and timers of its own
)

func instructionsCommand(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("instructions", flag.ContinueOnError)
	renew := fs.Bool("renew", false, "write the table anew, and the page that shows it")
	rows := fs.String("rows", "", "only the rows whose name matches the `REGEXP`")
	server := fs.String("server", "redis-server", "the `PROGRAM` that is counted")
	file := fs.String("table", instructionsFile, "the `FILE` with the table")
	if err := fs.Parse(args); err != nil {
		return err
	}
	pattern, err := regexp.Compile(*rows)
	if err != nil {
		return fmt.Errorf("-rows: %w", err)
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("instructions takes flags only\n%s", usage)
	}
	table, err := loadInstructions(*file)
	if err != nil && (!*renew || !errors.Is(err, os.ErrNotExist)) {
		return err
	}
	is, err := countAll(ctx, *server, pattern, table.Rows)
	if err != nil {
		return err
	}
	if !*renew {
		return table.compare(os.Stdout, is, pattern)
	}
	if err := table.renew(is, pattern); err != nil {
		return err
	}
	if err := table.save(*file); err != nil || *file != instructionsFile {
		return err
	}
	return publishAll()
}

// countAll counts every row that matches on one server. A row that differs from the known one is counted again: a
// change differs twice.
func countAll(ctx context.Context, program string, pattern *regexp.Regexp, known map[string]float64) (*instructions,
	error) {
	all := slices.DeleteFunc(countedRows(), func(r counted) bool { return !pattern.MatchString(r.name) })
	if len(all) == 0 {
		return nil, fmt.Errorf("no row matches %q; without -rows all are counted", pattern)
	}
	c, err := startCounter(ctx, program)
	if err != nil {
		return nil, err
	}
	defer c.stop()
	fmt.Fprintf(os.Stderr, "bench: %s\n", c.version)
	is := &instructions{Server: c.version, Peers: peerVersions(), Rows: make(map[string]float64),
		absent: make(map[string]string)}
	for _, row := range all {
		if row.absent != "" {
			is.absent[row.name] = row.absent
			continue
		}
		n, err := c.row(row)
		if was := known[row.name]; err == nil && was > 0 && differs(row.name, was, n) {
			var again float64
			if again, err = c.row(row); math.Abs(again-was) < math.Abs(n-was) {
				n = again
			}
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", row.name, err)
		}
		is.Rows[row.name] = significant(n)
		fmt.Fprintf(os.Stderr, "bench: %s: %.0f\n", row.name, n)
	}
	return is, nil
}

// significant rounds to four digits, so that a table that is written again shows no change where there is none.
func significant(n float64) float64 {
	if n == 0 {
		return 0
	}
	unit := math.Pow(10, math.Floor(math.Log10(n))-3)
	return math.Round(math.Round(n/unit) * unit)
}

func loadInstructions(file string) (*instructions, error) {
	table := &instructions{Peers: make(map[string]string), Rows: make(map[string]float64)}
	text, err := os.ReadFile(file)
	if err != nil {
		return table, err
	}
	if err := json.Unmarshal(text, table); err != nil {
		return nil, fmt.Errorf("%s is no table of instructions: %w", file, err)
	}
	return table, nil
}

// save writes a row a line, sorted, so that a change is a line of a diff.
func (t *instructions) save(file string) error {
	text, err := json.MarshalIndent(t, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// renew replaces the rows that match. A table has the counts of one build only, so another build renews all rows. What
// the peers that are absent had stays.
func (t *instructions) renew(is *instructions, pattern *regexp.Regexp) error {
	if pattern.String() != "" && t.Server != is.Server && len(t.Rows) > 0 {
		return fmt.Errorf("the table is of %s, this is %s: renew all rows, without -rows", t.Server, is.Server)
	}
	t.Server = is.Server
	maps.Copy(t.Peers, is.Peers)
	maps.DeleteFunc(t.Rows, func(row string, _ float64) bool {
		_, absent := is.absent[row]
		return !absent && pattern.MatchString(row)
	})
	maps.Copy(t.Rows, is.Rows)
	return nil
}

// compare fails if a row is not what the table says.
func (t *instructions) compare(w io.Writer, is *instructions, pattern *regexp.Regexp) error {
	rows := maps.Clone(is.Rows)
	for row, n := range t.Rows {
		if why, absent := is.absent[row]; absent {
			fmt.Fprintf(w, "%s: not counted: %s\n", row, why)
		} else if _, counted := rows[row]; !counted && pattern.MatchString(row) {
			rows[row] = n
		}
	}
	var wrong []string
	for _, row := range slices.Sorted(maps.Keys(rows)) {
		was, inTable := t.Rows[row]
		is, counted := is.Rows[row]
		switch {
		case !counted:
			wrong = append(wrong, fmt.Sprintf("%s: %.0f in the table, and no such row", row, was))
		case !inTable:
			wrong = append(wrong, fmt.Sprintf("%s: %.0f, and not in the table", row, is))
		case differs(row, was, is):
			wrong = append(wrong, fmt.Sprintf("%s: %.0f instead of %.0f, %+.1f %%", row, is, was, 100*(is/was-1)))
		}
	}
	if len(wrong) == 0 {
		fmt.Fprintf(w, "%d rows are as in the table of %s.\n", len(is.Rows), t.Server)
		return nil
	}
	another := ""
	if t.Server != is.Server {
		another = fmt.Sprintf("\nThe table is of %s. Another build executes other instructions of the same source.",
			t.Server)
	}
	return fmt.Errorf("instructions of %s are not those of the table:\n  %s%s\nIf that is meant: "+
		"make instructions ARGS=-renew", is.Server, strings.Join(wrong, "\n  "), another)
}

// differs is whether a row is not what it was.
func differs(row string, was, is float64) bool {
	may := mayDifferLoose
	if strings.HasPrefix(row, "script: ") {
		may = mayDiffer
	}
	return math.Abs(is-was) > may*was
}

// write is the section of the page. A row whose name says of how many is beside that of one.
func (t *instructions) write(w io.Writer) {
	fmt.Fprintf(w, "\n## Instructions of the server\n\n%s, under callgrind; `make instructions` compares, "+
		"[bench/README.md](../bench/README.md#instructions) says how. In thousands, a call; `x 36` is a call of 36 "+
		"jobs or callers, and the last column a 36th of it. Scripts may differ by 1 %%, what clients do by 6 %%.\n\n"+
		"Versions: %s.\n", t.Server, list(t.Peers))
	family, many := "", fmt.Sprint(times, batched)
	for _, row := range slices.Sorted(maps.Keys(t.Rows)) {
		of, name, _ := strings.Cut(strings.TrimSuffix(row, many), ": ")
		if _, single := t.Rows[of+": "+name]; single && strings.HasSuffix(row, many) {
			continue
		}
		if of != family {
			family = of
			fmt.Fprintf(w, "\n### %s\n\n| call | 1 | x %d | a 36th |\n|---|---|---|---|\n", of, batched)
		}
		one, batch := thousands(t.Rows[row]), [2]string{}
		if strings.HasSuffix(row, many) {
			one = ""
		}
		if n, ok := t.Rows[of+": "+name+many]; ok {
			batch = [2]string{thousands(n), thousands(n / batched)}
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s |\n", name, one, batch[0], batch[1])
	}
}

// thousands has four digits at most.
func thousands(n float64) string { return human(n / 1000) }
