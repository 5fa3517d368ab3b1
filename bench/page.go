package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// writePage writes docs/benchmarks.md from a result: the plots, each with the command that repeats it, and the table.
func writePage(w io.Writer, r *result, plots string) error {
	fmt.Fprint(w, `# Benchmarks

Written by `+"`make bench-page`"+` from [bench/result.json](../bench/result.json); do not edit.
[bench/README.md](../bench/README.md) says what is measured and how. The dashed grey line is the raw command, the thick
one luatomic. Where luatomic is behind, the plot and the table say so.

`)
	for _, f := range figures {
		if _, err := os.Stat(filepath.Join(plots, f.file+".svg")); err != nil {
			continue
		}
		fmt.Fprintf(w, "## %s\n\n![%s](plots/%s.svg)\n\n`make bench-all ARGS='-rows ^(%s)'`\n\n", f.title, f.title, f.file, f.pattern())
	}
	fmt.Fprint(w, "## All rows\n\n")
	return writeTable(w, r)
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
