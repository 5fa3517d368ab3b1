package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/luatomic/luatomic/internal/show"
)

// rows is the output of a command that lists things: JSON, one object a line, or a table where stdout is a terminal.
type rows struct {
	s *session
	table
}

// rows begins a list with these columns.
func (s *session) rows(columns ...string) *rows { return &rows{s: s, table: table{columns: columns}} }

// add writes one object, or keeps its cells for the table.
func (r *rows) add(v any, cells ...any) error {
	if !r.s.tables {
		return r.s.emit(v)
	}
	r.line(cells...)
	return nil
}

// end writes the table.
func (r *rows) end() error {
	if !r.s.tables {
		return nil
	}
	head := r.s.headed[strings.Join(r.columns, " ")]
	if head == nil {
		head = &heading{widths: make([]int, len(r.columns)), due: true}
		if r.s.headed == nil {
			r.s.headed = make(map[string]*heading)
		}
		r.s.headed[strings.Join(r.columns, " ")] = head
	}
	lines := r.lines(r.s.colours, head.widths)
	return r.s.print(head.above(lines))
}

// heading is what is known of a table that is printed again and again: how wide its columns have been, and how many
// tables of one line there were since its head.
type heading struct {
	widths []int
	lines  int
	due    bool
}

// above leaves the head of a table out while the one before is in sight.
func (h *heading) above(lines []string) []string {
	const inSight = 20
	h.lines++
	if one := len(lines) == 2; one && !h.due && h.lines <= inSight {
		return lines[1:]
	}
	h.due, h.lines = false, 0
	return lines
}

// print writes lines of text to stdout.
func (s *session) print(lines []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, line := range lines {
		if _, err := fmt.Fprintln(s.out, line); err != nil {
			err = fmt.Errorf("stdout: %w", err)
			s.lose(err)
			return err
		}
	}
	return nil
}

// The colours of a terminal, as its own settings have them.
const (
	bold   = "1"
	red    = "31"
	green  = "32"
	yellow = "33"
)

// painted is a value in a colour.
type painted struct {
	value  any
	colour string
}

// paint gives the value the colour where that is due.
func paint(due bool, colour string, v any) any {
	if !due {
		return v
	}
	return painted{v, colour}
}

// table is text in columns. Numbers are on the right of theirs.
type table struct {
	columns []string
	cells   [][]cell
}

type cell struct {
	text, colour string
	right        bool
}

// cellText is how many columns of the terminal a text of others can take in a table.
const cellText = 60

func (t *table) line(values ...any) {
	line := make([]cell, len(values))
	for i, v := range values {
		p, ok := v.(painted)
		if !ok {
			p.value = v
		}
		_, number := p.value.(int)
		_, long := p.value.(int64)
		_, real := p.value.(float64)
		line[i] = cell{show.Cell(cellText, fmt.Sprint(p.value)), p.colour, number || long || real}
	}
	t.cells = append(t.cells, line)
}

// lines are the lines of the table, the names of the columns first. The columns are at least as wide as widths, which
// becomes what they are.
func (t *table) lines(colours bool, widths []int) []string {
	head := make([]cell, len(t.columns))
	for i, name := range t.columns {
		head[i] = cell{name, bold, len(t.cells) > 0 && t.cells[0][i].right}
	}
	all := append([][]cell{head}, t.cells...)
	for _, line := range all {
		for i, c := range line {
			widths[i] = max(widths[i], show.Width(c.text))
		}
	}
	out := make([]string, len(all))
	for n, line := range all {
		for i, c := range line {
			out[n] += c.padded(widths[i], i == len(line)-1, colours)
		}
		out[n] = strings.TrimRight(out[n], " ")
	}
	return out
}

// padded is the cell at the width of its column.
func (c cell) padded(width int, last, colours bool) string {
	space := strings.Repeat(" ", width-show.Width(c.text))
	text := c.text
	if colours {
		text = coloured(text, c.colour)
	}
	switch {
	case c.right:
		text = space + text
	case !last:
		text += space
	}
	if !last {
		text += "  "
	}
	return text
}

func coloured(text, colour string) string {
	if colour == "" || text == "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// ago is a time as a table shows it.
func ago(at, now time.Time) string {
	if at.IsZero() {
		return "-"
	}
	if d := now.Sub(at); d < 0 {
		return "in " + rounded(-d)
	}
	return rounded(now.Sub(at)) + " ago"
}

func rounded(d time.Duration) string {
	switch {
	case d >= time.Hour:
		return d.Round(time.Minute).String()
	case d >= time.Second:
		return d.Round(time.Second).String()
	}
	return d.Round(time.Millisecond).String()
}

// isTable reports that w is a terminal, which gets tables.
func isTable(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && isTerminal(f)
}

// isColoured reports that a terminal shows colours and its user wants them.
func isColoured() bool { return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" }
