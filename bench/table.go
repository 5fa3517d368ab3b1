package main

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
)

// writeTable prints a result as Markdown, a table for each family of rows: the median of each figure with its
// quartiles, and the ratios by round of the metric that a row is about to its raw twin and to the best peer. A ratio
// above 1 is luatomic ahead.
func writeTable(w io.Writer, r *result) error {
	fmt.Fprintf(w, "%s; %s; %s. %s\n\n", r.Date.Format("2006-01-02 15:04 UTC"), r.Server, r.Machine, r.how())
	_, err := fmt.Fprintf(w, "Versions: %s.%s\n", list(r.Peers), absent(r.Absent))
	for _, family := range r.families() {
		name, _, _ := strings.Cut(family[0].Name, "/")
		fmt.Fprintf(w, "\n### %s\n\n", name)
		writeNotes(w, family)
		fmt.Fprintln(w, "\n| row | rounds | | figure | x raw | x best peer | server us | Lua us | commands | allocs |")
		fmt.Fprintln(w, "|---|---|---|---|---|---|---|---|---|---|")
		for _, m := range family {
			err = m.write(w)
		}
	}
	return err
}

// families are the rows by the part of their name before the slash, in the order of their first rows.
func (r *result) families() [][]*measured {
	var all [][]*measured
	at := map[string]int{}
	for i := range r.Rows {
		name, _, _ := strings.Cut(r.Rows[i].Name, "/")
		place, known := at[name]
		if !known {
			place = len(all)
			at[name], all = place, append(all, nil)
		}
		all[place] = append(all[place], &r.Rows[i])
	}
	return all
}

// writeNotes says what each row of a family measures, and once for all what is to be known of each entrant.
func writeNotes(w io.Writer, family []*measured) {
	var seen, names []string
	for i, m := range family {
		names = append(names, "`"+m.Name+"`")
		if i+1 == len(family) || family[i+1].What != m.What {
			fmt.Fprintf(w, "- %s: %s.\n", strings.Join(names, ", "), m.What)
			names = nil
		}
	}
	for _, m := range family {
		if note := "not alternated: " + m.Apart; m.Apart != "" && !slices.Contains(seen, note) {
			seen = append(seen, note)
			fmt.Fprintf(w, "- The entrants did not alternate: %s.\n", m.Apart)
		}
	}
	for _, m := range family {
		for _, e := range m.Entrants {
			if note := e.Name + ": " + e.Note; e.Note != "" && !slices.Contains(seen, note) {
				seen = append(seen, note)
				fmt.Fprintf(w, "- %s.\n", note)
			}
		}
	}
}

func (m *measured) write(w io.Writer) (err error) {
	title := fmt.Sprintf("%s | %d", m.Name, m.rounds())
	for i := range m.Entrants {
		e := &m.Entrants[i]
		toRaw, toPeer := "", ""
		if e.Kind == ours {
			toRaw, toPeer = ratio(m, e, raw), ratio(m, e, peer)
		}
		_, err = fmt.Fprintf(w, "| %s | %s | %s %s | %s | %s | %s | %s | %s | %s |\n", title, e.Name,
			e.quartiles(m.Main).text(), units[m.Main].label, toRaw, toPeer, cell(e, "server_us"),
			cell(e, "lua_us"), cell(e, "commands"), cell(e, "allocs"))
		title = "|"
	}
	return err
}

func (r *result) how() string {
	how := "The entrants of a row took turns, each in a run of its own."
	if r.Options.Slot > 0 {
		how = fmt.Sprintf("The entrants of a row alternated in slots of about %v.", r.Options.Slot)
	}
	if r.Options.Quick {
		how = "A quick run: shapes, not figures. " + how
	}
	if r.Options.Pinned {
		return how + " In rows of one caller, server and client each have a core."
	}
	return how + " Server and client were not pinned to cores."
}

// noTwin is measured and not compared with: a list without ids is no twin of a queue.
const noTwin = "LPUSH"

// ratio is how far e is ahead of the best entrant of a kind, "" where there is none.
func ratio(m *measured, e *entrants, of kind) string {
	if ratios := ahead(m, e, of); len(ratios) > 0 {
		return quartilesOf(ratios).text()
	}
	return ""
}

func cell(e *entrants, metric string) string {
	value, ok := e.median(metric)
	if !ok || math.IsNaN(value) || math.IsInf(value, 0) {
		return ""
	}
	return human(value)
}

// human is a number with three digits that count.
func human(v float64) string {
	switch a := math.Abs(v); {
	case a >= 1e6:
		return fmt.Sprintf("%.2f M", v/1e6)
	case a >= 1e5:
		return fmt.Sprintf("%.0f k", v/1e3)
	case a >= 1e4:
		return fmt.Sprintf("%.1f k", v/1e3)
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

func list(versions map[string]string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(versions)) {
		parts = append(parts, name+" "+strings.TrimPrefix(versions[name], "v"))
	}
	return strings.Join(parts, ", ")
}

func absent(reasons map[string]string) string {
	if len(reasons) == 0 {
		return ""
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(reasons)) {
		parts = append(parts, fmt.Sprintf("%s (%s)", name, reasons[name]))
	}
	return " Absent: " + strings.Join(parts, ", ") + "."
}

// writeComparison prints the rows of luatomic that both files have, the later beside the earlier. A change that is
// smaller than the spreads of the two is marked as noise. Of two machines it compares each figure with that of the raw
// commands in the same run.
func writeComparison(w io.Writer, older, newer *result) error {
	fmt.Fprintf(w, "%s on %s, and %s on %s.", older.Date.Format("2006-01-02 15:04"), older.Server,
		newer.Date.Format("2006-01-02 15:04"), newer.Server)
	moved := older.Machine.CPU != newer.Machine.CPU
	if moved {
		fmt.Fprintf(w,
			" The machines differ, %s and %s. So a figure here is the row's rate divided by that of the raw commands "+
				"of its run.",
			older.Machine.CPU, newer.Machine.CPU)
	}
	fmt.Fprint(w, "\n\n| row | before | after | change | |\n|---|---|---|---|---|\n")
	for i := range newer.Rows {
		m := &newer.Rows[i]
		before := older.row(m.Name)
		if before == nil {
			continue
		}
		for j := range m.Entrants {
			e := &m.Entrants[j]
			was := before.entrant(e.Name)
			if e.Kind != ours || was == nil {
				continue
			}
			if err := (change{before, m, was, e}).write(w, moved); err != nil {
				return err
			}
		}
	}
	return nil
}

// change is a row of luatomic in two results.
type change struct {
	before, after *measured
	was, is       *entrants
}

func (c change) write(w io.Writer, moved bool) error {
	metric := c.after.Main
	more, unit := units[metric].more, " "+units[metric].label
	a, okA := c.was.median(metric)
	b, okB := c.is.median(metric)
	noise := max(spreadOf(c.was.Metrics[metric]), spreadOf(c.is.Metrics[metric]), 0.02)
	if moved {
		was, is := ahead(c.before, c.was, raw), ahead(c.after, c.is, raw)
		a, okA, b, okB = quartilesOf(was).median, len(was) > 0, quartilesOf(is).median, len(is) > 0
		more, unit = true, " x raw"
		noise = max(spreadOf(was), spreadOf(is), 0.02)
	}
	if !okA || !okB || a == 0 {
		return nil
	}
	by, verdict := b/a-1, "better"
	if (by > 0) != more {
		verdict = "worse"
	}
	if math.Abs(by) <= noise {
		verdict = "noise"
	}
	_, err := fmt.Fprintf(w, "| %s | %s%s | %s | %+.0f %% | %s |\n", c.after.Name, human(a), unit, human(b),
		100*by, verdict)
	return err
}
