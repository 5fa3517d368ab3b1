// Command medians reads the output of go test -bench -count=N and writes the median
// of each figure as a Markdown table, one row for each benchmark.
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "medians:", err)
		os.Exit(1)
	}
}

// row is one benchmark: its units in the order of their first run, and their values.
type row struct {
	name   string
	units  []string
	values map[string][]float64
}

func run(in io.Reader, out io.Writer) error {
	rows, err := read(in)
	if err != nil {
		return err
	}
	if len(rows) == 0 {
		return fmt.Errorf("no benchmark in the input; pipe the output of go test -bench into this")
	}
	fmt.Fprintln(out, "| benchmark | median of each figure |")
	fmt.Fprintln(out, "|---|---|")
	for _, r := range rows {
		cells := make([]string, len(r.units))
		for i, u := range r.units {
			cells[i] = round(median(r.values[u])) + " " + u
		}
		if _, err := fmt.Fprintf(out, "| %s | %s |\n", r.name, strings.Join(cells, ", ")); err != nil {
			return err
		}
	}
	return nil
}

func read(in io.Reader) ([]*row, error) {
	// The number at the end of a name is GOMAXPROCS.
	procs := regexp.MustCompile(`-\d+$`)
	var rows []*row
	byName := make(map[string]*row)
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) < 4 || !strings.HasPrefix(words[0], "Benchmark") {
			continue
		}
		name := strings.TrimPrefix(procs.ReplaceAllString(words[0], ""), "Benchmark")
		r, ok := byName[name]
		if !ok {
			r = &row{name: name, values: make(map[string][]float64)}
			byName[name], rows = r, append(rows, r)
		}
		if err := r.add(words[2:]); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return rows, lines.Err()
}

// add takes the pairs of value and unit of one run.
func (r *row) add(words []string) error {
	for pair := range slices.Chunk(words, 2) {
		if len(pair) < 2 {
			return fmt.Errorf("value %q without a unit", pair[0])
		}
		v, err := strconv.ParseFloat(pair[0], 64)
		if err != nil {
			return err
		}
		if _, ok := r.values[pair[1]]; !ok {
			r.units = append(r.units, pair[1])
		}
		r.values[pair[1]] = append(r.values[pair[1]], v)
	}
	return nil
}

// median is the middle value, the lower one of two.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[(len(sorted)-1)/2]
}

// round keeps three digits of what is below 1000.
func round(v float64) string {
	if v >= 1000 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}
