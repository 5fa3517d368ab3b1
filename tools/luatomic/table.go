package main

import (
	"fmt"
	"io"
	"os"
	"slices"
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

// endOr writes the table, or on stderr that there is none of what it lists.
func (r *rows) endOr(none string) error {
	if r.s.tables && len(r.cells) == 0 {
		r.s.note("luatomic: %s", none)
		return nil
	}
	return r.end()
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
	t.measure(widths)
	return t.draw(colours, widths)
}

// all are the cells with the names of the columns first.
func (t *table) all() [][]cell {
	head := make([]cell, len(t.columns))
	for i, name := range t.columns {
		head[i] = cell{name, bold, len(t.cells) > 0 && t.cells[0][i].right}
	}
	return append([][]cell{head}, t.cells...)
}

// measure makes the widths at least what the cells need.
func (t *table) measure(widths []int) {
	for _, line := range t.all() {
		for i, c := range line {
			widths[i] = max(widths[i], show.Width(c.text))
		}
	}
}

// draw are the lines at these widths; columns beyond them are left out.
func (t *table) draw(colours bool, widths []int) []string {
	var out []string
	for _, line := range t.all() {
		text := ""
		for i, width := range widths {
			if width > 0 {
				text += line[i].padded(width, i == len(widths)-1, colours)
			}
		}
		out = append(out, strings.TrimRight(text, " "))
	}
	return out
}

// narrowest is how narrow a column of texts becomes in a terminal with few columns.
const narrowest = 12

// fit are widths at which a line has at most so many columns of the terminal. The widest texts become shorter, then the
// last columns are left out: no number loses digits, as it would be another one.
func (t *table) fit(widths []int, most int) []int {
	for n := len(widths); n > 1; n-- {
		if fitted := t.narrow(widths[:n], most); across(fitted) <= most {
			return fitted
		}
	}
	return []int{min(widths[0], max(most, 1))}
}

func (t *table) narrow(widths []int, most int) []int {
	out := slices.Clone(widths)
	for over := across(out) - most; over > 0; over-- {
		widest := -1
		for i, w := range out {
			if w > narrowest && t.isText(i) && (widest < 0 || w > out[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		out[widest]--
	}
	return out
}

func (t *table) isText(column int) bool {
	return !slices.ContainsFunc(t.cells, func(line []cell) bool { return line[column].right })
}

// across is how many columns of the terminal a line of these widths takes.
func across(widths []int) (n int) {
	for _, w := range widths {
		if w > 0 {
			n += w + gap
		}
	}
	return n - gap
}

// gap is between two columns.
const gap = 2

// padded is the cell at the width of its column.
func (c cell) padded(width int, last, colours bool) string {
	text := shortened(c.text, width)
	space := strings.Repeat(" ", width-show.Width(text))
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
		text += strings.Repeat(" ", gap)
	}
	return text
}

// shortened is a text of at most so many columns of the terminal. It loses its middle: names that begin alike often
// differ at the end.
func shortened(text string, most int) string {
	if show.Width(text) <= most {
		return text
	}
	all := []rune(text)
	from, tail := len(all), (most-1)/2
	for ; show.RuneWidth(all[from-1]) <= tail; from-- {
		tail -= show.RuneWidth(all[from-1])
	}
	for from < len(all) && show.RuneWidth(all[from]) == 0 {
		from++ // what combines with a character that is left out
	}
	return cut(text, most-1-(most-1)/2) + "…" + string(all[from:])
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
	if at.After(now) {
		return "in " + rounded(at.Sub(now))
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
