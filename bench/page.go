package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// publish writes all that shows a result, below root: the plots, docs/benchmarks.md and the figures of the README.
func publish(r, first *result, counts *instructions, root string) error {
	if why := r.Options.trial(); why != "" {
		return fmt.Errorf("the result of %s, %s is not published: make bench-all without -quick and ROWS writes one "+
			"that is", r.Date.Format("2006-01-02 15:04"), why)
	}
	if err := drawAll(r, filepath.Join(root, "docs", "plots")); err != nil {
		return err
	}
	var page bytes.Buffer
	if err := writePage(&page, r, first, counts, filepath.Join(root, "docs", "plots")); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(root, "docs", "benchmarks.md"), page.Bytes(), 0o644); err != nil {
		return err
	}
	readme := filepath.Join(root, "README.md")
	text, err := os.ReadFile(readme)
	if err != nil {
		return err
	}
	shown, err := withFigures(string(text), r)
	if err != nil {
		return err
	}
	return os.WriteFile(readme, []byte(shown), 0o644)
}

// writePage writes docs/benchmarks.md from a result: the plots, each with the command that repeats it, the table, and
// the instructions of the server, and what has changed since the first result.
func writePage(w io.Writer, r, first *result, counts *instructions, plots string) error {
	fmt.Fprint(w, `# Benchmarks

`+"`make bench-page`"+` writes this page from [bench/result.json](../bench/result.json) and
[bench/instructions.json](../bench/instructions.json); do not edit it. [bench/README.md](../bench/README.md) says what
is measured and how. In the plots, the dashed grey line is the raw command and the thick line is luatomic. The plots and
the tables also show where luatomic is behind.

`)
	for _, f := range figures {
		if _, err := os.Stat(filepath.Join(plots, f.file+".svg")); err != nil {
			continue
		}
		fmt.Fprintf(w, "## %s\n\n![%s](plots/%s.svg)\n\n`make bench-all ROWS='^%s'`\n\n", f.title, f.title, f.file,
			f.pattern())
	}
	fmt.Fprint(w, "## All rows\n\n")
	if err := writeTable(w, r); err != nil {
		return err
	}
	counts.write(w)
	if first.Date.Equal(r.Date) {
		return nil
	}
	fmt.Fprint(w,
		"\n## Since the first result\n\n[bench/first.json](../bench/first.json) is a result from before calls "+
			"shared round trips.\n\n")
	return writeComparison(w, first, r)
}

// shown are the rows of the README.
var shown = []struct{ row, title string }{
	{"push/batch=1000", "jobs pushed, 1000 a call"},
	{"push/callers=64", "jobs pushed one by one by 64 callers"},
	{"work/inflight=0", "jobs taken and acked by 10 handlers that do nothing"},
	{"lock/goroutines=1", "a lock pair, one caller"},
	{"lock/goroutines=64", "lock pairs, 64 goroutines"},
	{"handover/working/waiters=100", "hand-over to one of 100 waiters"},
	{"call/callers=256", "calls, 256 callers"},
}

const figuresTitle, figuresEnd = "## Figures\n\n", "\n\nAll rows"

// withFigures replaces the figures of the README: what stands between their title and the sentence that follows.
func withFigures(readme string, r *result) (string, error) {
	before, rest, ok := strings.Cut(readme, figuresTitle)
	_, after, found := strings.Cut(rest, figuresEnd)
	if !ok || !found {
		return "", fmt.Errorf("the README has no figures between %q and %q", strings.TrimSpace(figuresTitle),
			strings.TrimSpace(figuresEnd))
	}
	lines := []string{
		fmt.Sprintf("%s, on %d cores that client and server share; medians of one run.\n", r.Server, r.Machine.Cores),
		"| | luatomic | beside it |\n|---|---|---|",
	}
	for _, s := range shown {
		if m := r.row(s.row); m != nil {
			lines = append(lines, "| "+s.title+" | "+m.cells()+" |")
		}
	}
	return before + figuresTitle + strings.Join(lines, "\n") + figuresEnd + after, nil
}

// cells are luatomic's figure, and those of the others.
func (m *measured) cells() string {
	mine, others := "", []string{}
	for i := range m.Entrants {
		e := &m.Entrants[i]
		value, ok := e.median(m.Main)
		if !ok {
			continue
		}
		if e.Kind == ours {
			mine = "**" + strings.ReplaceAll(human(value)+" "+units[m.Main].label, " /s", "/s") + "**"
			continue
		}
		others = append(others, e.Name+" "+human(value))
	}
	return mine + " | " + strings.Join(others, ", ")
}

// pattern matches the rows of the figure.
func (f *figure) pattern() string {
	short := f.rows[0]
	for i := range short {
		for _, row := range f.rows {
			if len(row) <= i || row[i] != short[i] {
				return short[:i]
			}
		}
	}
	return short
}
