package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/luatomic/luatomic/internal/show"
)

// topPicture draws a view.
type topPicture struct {
	server, prefix string
	colours        bool
	view           topView
	widths         map[string][]int // of the columns of each table: they do not move to and fro
}

// lines are the picture, in at most so many columns and lines.
func (p *topPicture) lines(columns, lines int, now time.Time) []string {
	out := []string{p.title(now), p.state(now)}
	v := &p.view
	if !v.at.IsZero() {
		tables := []topTable{p.queueTable(), p.runningTable(now), p.lockTable(now), p.nodeTable()}
		want := make([]int, len(tables))
		for i, t := range tables {
			want[i] = len(t.rows)
		}
		// Each table has a head and an empty line before it.
		for i, n := range share(lines-len(out)-2*len(tables), want) {
			out = append(append(out, ""), tables[i].fit(n)...)
		}
	}
	out = out[:max(min(len(out), lines), 0)]
	for i := range out {
		out[i] = cut(out[i], columns)
	}
	return out
}

func (p *topPicture) title(now time.Time) string {
	title := "luatomic top  " + show.Text(200, p.server)
	if p.prefix != "" {
		title += "  prefix " + show.Text(200, p.prefix)
	}
	return p.paint(bold, title+"  "+now.Format(time.TimeOnly)+"  q quits")
}

// state is the error of a server that does not answer, or empty.
func (p *topPicture) state(now time.Time) string {
	switch {
	case p.view.away == nil && p.view.at.IsZero():
		return "reading"
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
	head string
	rows []string
}

// fit is the table in so many lines below its head.
func (t topTable) fit(lines int) []string {
	rows := t.rows
	if hidden := len(rows) - lines; hidden > 0 && lines > 0 {
		rows = append(rows[:lines-1:lines-1], fmt.Sprintf("… %d more", hidden+1))
	}
	return append([]string{t.head}, rows[:min(len(rows), max(lines, 0))]...)
}

// lay makes a part of the view a table.
func lay[T any](p *topPicture, of topPart[T], none string, columns []string, cells func(T) []any) topTable {
	switch {
	case of.err != nil:
		return topTable{head: p.paint(yellow, columns[0]+": "+show.Text(500, oneLine(of.err)))}
	case len(of.rows) == 0 && of.part:
		return topTable{head: none + " so far: the search ended before it had seen all keys"}
	case len(of.rows) == 0:
		return topTable{head: none}
	}
	t := table{columns: columns}
	for _, row := range of.rows {
		t.line(cells(row)...)
	}
	if p.widths == nil {
		p.widths = make(map[string][]int)
	}
	if p.widths[columns[0]] == nil {
		p.widths[columns[0]] = make([]int, len(columns))
	}
	lines := t.lines(p.colours, p.widths[columns[0]])
	if of.part {
		lines[0] += "  (not all)"
	}
	return topTable{head: lines[0], rows: lines[1:]}
}

func (p *topPicture) queueTable() topTable {
	columns := []string{"QUEUE", "READY", "SCHEDULED", "RUNNING", "DEAD", "PUSHED/S", "DONE/S", "FAILED/S", "OLDEST", ""}
	return lay(p, p.view.queues, "no queue is in use", columns, func(q topQueue) []any {
		name, paused := q.Queue, any("")
		if q.Tag != "" {
			name = "{" + q.Tag + "}" + name
		}
		if q.Paused {
			paused = painted{"paused", yellow}
		}
		return []any{name, q.Ready, q.Scheduled, q.Leased, paint(q.Dead > 0, red, q.Dead), orNone(q.Pushed),
			orNone(q.queueRates.Processed), orNone(q.queueRates.Failed), q.oldest, paused}
	})
}

func (p *topPicture) runningTable(now time.Time) topTable {
	columns := []string{"JOB", "QUEUE", "KIND", "ATTEMPT", "TAKEN", "PROCESS"}
	return lay(p, p.view.running, "no job is running", columns, func(j topJob) []any {
		return []any{j.holding.ID, j.queue, j.holding.Kind, j.holding.Attempt, ago(j.holding.Since, now), j.process}
	})
}

func (p *topPicture) lockTable(now time.Time) topTable {
	columns := []string{"LOCK", "KIND", "HOLDER", "LEFT", "WAITING"}
	since := now.Sub(p.view.locks.at)
	return lay(p, p.view.locks, "no lock is held", columns, func(l topLock) []any {
		return []any{l.name, l.kind, l.holder, rounded(max(l.left-since, 0)), paint(l.waiting > 0, yellow, l.waiting)}
	})
}

func (p *topPicture) nodeTable() topTable {
	columns := []string{"NODE", "BUS", "METHODS", "RUNNING", "HANDLED", "CALLS/S", "LEASE"}
	return lay(p, p.view.nodes, "no node serves calls", columns, func(n topNode) []any {
		running := fmt.Sprintf("%d of %d", n.node.Running, n.node.Concurrency)
		return []any{n.node.Node, n.bus, strings.Join(n.node.Methods, ", "), running, n.node.Handled, orNone(n.rate),
			rounded(n.node.Lease)}
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
