package luagen

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Pos is a place in a script: 1-based line and byte column.
type Pos struct{ Line, Col int }

// Diagnostic is one finding. Its Level is that of its rule.
type Diagnostic struct {
	File    string // the script's file name
	Pos     Pos
	Width   int    // bytes to underline, at least 1
	Rule    string // "K001"
	Message string
	Cure    string // what to do about it
}

// Error renders the finding on one line.
func (d Diagnostic) Error() string {
	level := ""
	if d.Level() == Warning {
		level = "warning: "
	}
	return fmt.Sprintf("%s:%d:%d: %s %s%s", visible(d.File), d.Pos.Line, d.Pos.Col, d.Rule, level, visible(d.Message))
}

// Format renders the finding with its source line, a caret under the place and the cure.
func (d Diagnostic) Format(source string) string {
	var b strings.Builder
	b.WriteString(d.Error())
	b.WriteByte('\n')
	if line, ok := lineOf(source, d.Pos.Line); ok {
		gutter := fmt.Sprintf("%4d | ", d.Pos.Line)
		fmt.Fprintf(
			&b,
			"%s%s\n%s%s\n",
			gutter,
			visible(line),
			underPad(gutter, line, d.Pos.Col),
			strings.Repeat("^", d.caretWidth(line)),
		)
	}
	if d.Cure != "" {
		fmt.Fprintf(&b, "     = %s\n", d.Cure)
	}
	return b.String()
}

// visible replaces what a terminal would act on instead of showing it: names and lines of scripts are anybody's text.
func visible(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return utf8.RuneError
	}, text)
}

func (d Diagnostic) caretWidth(line string) int {
	left := len(line) - d.Pos.Col + 1
	return max(1, min(d.Width, left))
}

// underPad keeps tabs, so that the caret stands under the place in any tab width.
func underPad(gutter, line string, col int) string {
	pad := []byte(strings.Repeat(" ", len(gutter)-2) + "| ")
	for i := 0; i < col-1; i++ {
		c := byte(' ')
		if i < len(line) && line[i] == '\t' {
			c = '\t'
		}
		pad = append(pad, c)
	}
	return string(pad)
}

func lineOf(source string, n int) (string, bool) {
	for line := range strings.SplitSeq(source, "\n") {
		if n--; n == 0 {
			return strings.TrimSuffix(line, "\r"), true
		}
	}
	return "", false
}

// Diagnostics is the result of a run that found faults. As an error it prints one line for each.
type Diagnostics []Diagnostic

// Error joins the findings, one a line.
func (ds Diagnostics) Error() string {
	lines := make([]string, len(ds))
	for i, d := range ds {
		lines[i] = d.Error()
	}
	return strings.Join(lines, "\n")
}

// sorted orders findings by file and place, so that output does not depend on the order of the checks.
func (ds Diagnostics) sorted() Diagnostics {
	slices.SortStableFunc(ds, func(a, b Diagnostic) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Pos.Line, b.Pos.Line),
			cmp.Compare(a.Pos.Col, b.Pos.Col), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Message, b.Message))
	})
	return slices.Compact(ds)
}
