package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/luatomic/luatomic/internal/show"
)

// topPicture draws a view.
type topPicture struct {
	server, prefix string
	colours        bool
	view           topView
	columns        int              // of the terminal
	widths         map[string][]int // of the columns of each table: they do not move to and fro
}

// lines are the picture, in at most so many columns and lines.
func (p *topPicture) lines(columns, lines int, now time.Time) []string {
	p.columns = columns
	var tables []topTable
	if !p.view.at.IsZero() {
		tables = []topTable{p.queueTable(), p.runningTable(now.Add(p.view.ahead)), p.lockTable(now), p.nodeTable()}
	}
	state := p.state(now)
	before, roomy := 1, lines >= 1+len(tables)+need(tables)
	if roomy || state != "" {
		before = 2
	}
	tables, without := choose(tables, lines-before)
	out := []string{p.title(now, without), state}[:before]
	for i, n := range rowsOf(tables, lines-before, roomy) {
		if roomy && i > 0 { // above the first one is the line of the state, even if it is empty
			out = append(out, "")
		}
		out = append(out, tables[i].fit(n)...)
	}
	out = out[:max(min(len(out), lines), 0)]
	for i := range out {
		out[i] = cut(out[i], columns)
	}
	return out
}

// need is how many lines the tables take at least: a head each, a row, and how many more there are.
func need(tables []topTable) (n int) {
	for _, t := range tables {
		n += 1 + min(len(t.rows), 2)
	}
	return n
}

// choose leaves tables out until the others have what they need in so many lines: the last of those that have no rows,
// then the last of all. It names those that say something.
func choose(tables []topTable, lines int) (chosen []topTable, without []string) {
	for len(tables) > 1 && need(tables) > lines {
		last := len(tables) - 1
		for i, t := range tables {
			if t.quiet {
				last = i
			}
		}
		if t := tables[last]; !t.quiet {
			without = append([]string{t.name}, without...)
		}
		tables = slices.Delete(slices.Clone(tables), last, last+1)
	}
	return tables, without
}

// rowsOf is how many rows each table gets. Each has a head, and an empty line between two where there is room.
func rowsOf(tables []topTable, lines int, roomy bool) []int {
	want := make([]int, len(tables))
	for i, t := range tables {
		want[i] = len(t.rows)
	}
	lines -= len(tables)
	if roomy {
		lines -= len(tables) - 1
	}
	return share(lines, want)
}

// title is the first line. It names the tables for which the terminal has too few lines.
func (p *topPicture) title(now time.Time, without []string) string {
	title := "luatomic top  "
	if len(without) > 0 {
		title += "no room for " + strings.Join(without, ", ") + "  "
	}
	title += show.Text(200, p.server)
	if p.prefix != "" {
		title += "  prefix " + show.Text(200, p.prefix)
	}
	return p.paint(bold, title+"  "+now.Format(time.TimeOnly)+"  q quits")
}

// state is the error of a server that does not answer, a loss of data, a restart, or empty.
func (p *topPicture) state(now time.Time) string {
	switch {
	case p.view.away == nil && p.view.at.IsZero():
		return "reading"
	case p.view.away == nil && p.view.history != "":
		return p.paint(red, p.view.history)
	case p.view.away == nil:
		return ""
	}
	text := fmt.Sprintf("%s: %s; it is asked again until it does", outageOf(p.view.away), oneLine(p.view.away))
	if !p.view.at.IsZero() {
		text += "; below is what it had " + ago(p.view.at, now)
	}
	return p.paint(red, "the server "+show.Text(500, text))
}

func (p *topPicture) paint(colour, text string) string {
	if !p.colours {
		return text
	}
	return coloured(text, colour)
}

// topTable is one part of the picture.
type topTable struct {
	name  string
	head  string
	rows  []string
	quiet bool // there is nothing of the kind
}

// fit is the table in so many lines below its head.
func (t topTable) fit(lines int) []string {
	rows := t.rows
	if hidden := len(rows) - lines; hidden > 0 && lines > 0 {
		rows = append(rows[:lines-1:lines-1], fmt.Sprintf("… %d more", hidden+1))
	}
	return append([]string{t.head}, rows[:min(len(rows), max(lines, 0))]...)
}

// lay makes a part of the view a table. The columns come in the order in which a narrow terminal keeps them.
func lay[T any](p *topPicture, name string, of topPart[T], none string, columns []string,
	cells func(T) []any) topTable {
	switch {
	case of.err != nil:
		return topTable{name: name, head: p.paint(yellow, columns[0]+": "+show.Text(500, oneLine(of.err)))}
	case len(of.rows) == 0 && of.part:
		none += " so far: the search ended before it had seen all keys"
		fallthrough
	case len(of.rows) == 0:
		return topTable{name: name, head: none, quiet: true}
	}
	t := table{columns: columns}
	for _, row := range of.rows {
		t.line(cells(row)...)
	}
	if p.widths == nil {
		p.widths = make(map[string][]int)
	}
	if p.widths[name] == nil {
		p.widths[name] = make([]int, len(columns))
	}
	t.measure(p.widths[name])
	partly := ""
	if of.part {
		partly = "  (not all)"
	}
	lines := t.draw(p.colours, t.fit(p.widths[name], p.columns-len(partly)))
	return topTable{name: name, head: lines[0] + partly, rows: lines[1:]}
}

// tagged is a queue with its tag: those of one name differ by it.
func tagged(name, tag label) string {
	if tag == "" {
		return name.String()
	}
	return "{" + tag.String() + "}" + name.String()
}

func (p *topPicture) queueTable() topTable {
	columns := []string{"QUEUE", "", "READY", "RUN", "DEAD", "SCHED", "OLDEST", "FAIL/S", "DONE/S", "PUSH/S"}
	return lay(p, "queues", p.view.queues, "no queue is in use", columns, func(q topQueue) []any {
		name, mark := tagged(q.Queue, q.Tag), any("")
		switch {
		case q.hidden: // luatomic stats says why
			return []any{name, painted{"hidden", yellow}, "-", "-", "-", "-", "-", "-", "-", "-"}
		case q.Paused:
			mark = painted{"paused", yellow}
		case q.Lapsed > 0:
			mark = painted{fmt.Sprint(q.Lapsed, " lapsed"), red}
		case q.idle:
			mark = painted{"no consumer", red}
		case q.late:
			mark = painted{"late", yellow}
		}
		return []any{name, mark, q.Ready, q.Leased - q.Lapsed, paint(q.Dead > 0, red, q.Dead), q.Scheduled,
			paint(q.late, yellow, q.oldest),
			orNone(q.queueRates.Failed), orNone(q.queueRates.Processed), orNone(q.Pushed)}
	})
}

func (p *topPicture) runningTable(now time.Time) topTable {
	columns := []string{"JOB", "QUEUE", "TAKEN", "PROCESS", "ATTEMPT", "KIND"}
	return lay(p, "jobs", p.view.running, p.noneRuns(), columns, func(j topJob) []any {
		return []any{label(j.holding.ID), j.queue, ago(j.holding.Since, now), j.process, j.holding.Attempt,
			j.holding.Kind}
	})
}

// noneRuns says what an empty table of running jobs means. A process reports its jobs every five seconds, and a program
// that only takes reports none.
func (p *topPicture) noneRuns() string {
	for _, q := range p.view.queues.rows {
		if q.Leased > q.Lapsed {
			return "no process has reported a running job yet"
		}
	}
	return "no job is running"
}

func (p *topPicture) lockTable(now time.Time) topTable {
	columns := []string{"LOCK", "HOLDER", "LEFT", "WAITING", "KIND"}
	since := now.Sub(p.view.locks.at)
	return lay(p, "locks", p.view.locks, "no lock is held", columns, func(l topLock) []any {
		return []any{label(l.name), l.holder, rounded(max(l.left-since, 0)), paint(l.waiting > 0, yellow, l.waiting),
			l.kind}
	})
}

func (p *topPicture) nodeTable() topTable {
	columns := []string{"NODE", "BUS", "METHODS", "RUNNING", "CALLS/S", "LEASE", "HANDLED"}
	return lay(p, "nodes", p.view.nodes, "no node serves calls", columns, func(n topNode) []any {
		running := fmt.Sprintf("%d of %d", n.node.Running, n.node.Concurrency)
		return []any{label(n.node.Node), label(n.bus), strings.Join(n.node.Methods, ", "), running, orNone(n.rate),
			rounded(n.node.Lease),
			n.node.Handled}
	})
}

// share gives each table lines in turn, until it has what it wants or none are left.
func share(lines int, want []int) []int {
	got := make([]int, len(want))
	for given := true; given; {
		given = false
		for i := range want {
			if got[i] < want[i] && lines > 0 {
				got[i]++
				lines--
				given = true
			}
		}
	}
	return got
}
