package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/show"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
	"github.com/luatomic/luatomic/rpc"
)

func TestTopNeedsATerminal(t *testing.T) {
	t.Parallel()
	c := (&env{t: t}).run("top").exits(exitFailed)
	require.Equal(t, "luatomic: stdout is no terminal, and top draws on one; for lines of JSON use "+
		"luatomic stats QUEUE --watch\n", c.stderr.String())
	require.Empty(t, c.stdout.String())
}

// aView has many rows in each table, and texts that a terminal would obey.
func aView(rows int) (v topView) {
	v.at = time.Unix(1000, 0)
	v.locks.at = v.at
	hostile := "\x1b[2J\u202e\n漢\u0301" + strings.Repeat("字", 10_000)
	for i := range rows {
		name := fmt.Sprint(i, hostile)
		v.queues.rows = append(v.queues.rows,
			topQueue{queueRow: queueRow{Queue: label(name), Tag: label(hostile), Dead: i, Paused: true}, oldest: "-"})
		v.running.rows = append(v.running.rows, topJob{name, queue.Holding{ID: name, Kind: hostile, Since: v.at},
			hostile})
		v.locks.rows = append(v.locks.rows, topLock{"lock", name, hostile, time.Minute, i})
		v.nodes.rows = append(v.nodes.rows, topNode{name, rpc.Node{Node: name, Methods: []string{hostile}}, nil})
	}
	return v
}

// visible is a line without the colours of the program.
func visible(line string) string {
	for _, colour := range []string{"0", bold, red, green, yellow} {
		line = strings.ReplaceAll(line, "\x1b["+colour+"m", "")
	}
	return line
}

// The picture fits into a terminal of any size, and what is of others cannot draw on it.
func TestTopFits(t *testing.T) {
	t.Parallel()
	for _, rows := range []int{0, 1, 20} {
		for _, away := range []error{nil, errors.New("\x1b[2J away " + strings.Repeat("y漢", 1000))} {
			p := topPicture{server: "redis://h", prefix: "app:", colours: true, view: aView(rows)}
			p.view.away = away
			for _, lines := range []int{0, 1, 2, 3, 9, 10, 11, 24, 60} {
				for _, columns := range []int{0, 1, 10, 80, 200} {
					picture := p.lines(columns, lines, time.Unix(1001, 0))
					require.LessOrEqual(t, len(picture), lines)
					text := visible(strings.Join(picture, "\n"))
					require.NotContains(t, text, "\x1b")
					require.NotContains(t, text, "\u202e")
					for line := range strings.SplitSeq(text, "\n") {
						require.LessOrEqual(t, show.Width(line), columns, line)
					}
				}
			}
		}
	}
}

// A narrow terminal shortens names in their middle and leaves out the last columns: no number loses digits.
func TestTopInFewColumns(t *testing.T) {
	t.Parallel()
	p := topPicture{view: aView(1)}
	rate, name := 1234.5, "mail-"+strings.Repeat("x", 50)+"-eu"
	q := topQueue{queueRow: queueRow{Queue: label(name), Ready: 1234567, Scheduled: 12345, Leased: 123, Dead: 10000,
		Paused: true}, oldest: "16m45s"}
	q.Pushed, q.queueRates.Processed, q.queueRates.Failed = &rate, &rate, &rate
	p.view.queues.rows = []topQueue{q}
	row := func(columns int) []string {
		lines := p.lines(columns, 40, time.Unix(1001, 0))
		at := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, "QUEUE") })
		return strings.Fields(lines[at+1])
	}
	whole := row(200)
	require.Equal(t, []string{name, "paused", "1234567", "123", "10000", "12345", "16m45s", "1234.5", "1234.5",
		"1234.5"}, whole)
	short := row(80)
	require.Equal(t, whole[1:], short[1:])
	require.Regexp(t, `^mail-x+…x+-eu$`, short[0])
	for columns := 20; columns < 80; columns++ {
		for i, text := range row(columns)[1:] {
			require.Equal(t, whole[i+1], text, columns)
		}
	}
}

// Where the lines do not suffice for all tables the first ones have rows, and the title names those that are left out.
func TestTopInFewLines(t *testing.T) {
	t.Parallel()
	p := topPicture{view: aView(20)}
	for lines, want := range map[int]struct {
		title string
		heads []string
	}{
		24: {"", []string{"QUEUE", "JOB", "LOCK", "NODE"}},
		13: {"", []string{"QUEUE", "JOB", "LOCK", "NODE"}},
		12: {"no room for nodes", []string{"QUEUE", "JOB", "LOCK"}},
		7:  {"no room for locks, nodes", []string{"QUEUE", "JOB"}},
		4:  {"no room for jobs, locks, nodes", []string{"QUEUE"}},
	} {
		picture := p.lines(80, lines, time.Unix(1001, 0))
		require.Contains(t, picture[0], want.title)
		require.Equal(t, want.title != "", strings.Contains(picture[0], "no room"), lines)
		var heads []string
		for i, line := range picture {
			if head := strings.Fields(line + " x")[0]; head == strings.ToUpper(head) && i > 0 &&
				!strings.HasPrefix(line, "…") && line[0] >= 'A' {
				heads = append(heads, head)
				require.Regexp(t, `^[{0]`, picture[i+1], "a row follows: %d", lines)
			}
		}
		require.Equal(t, want.heads, heads, lines)
	}
	p.view.locks.rows, p.view.running.rows = nil, nil
	picture := strings.Join(p.lines(80, 7, time.Unix(1001, 0)), "\n")
	require.Contains(t, picture, "NODE", "tables without rows go first")
	require.NotContains(t, picture, "no room")
}

func TestTopSharesTheLines(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ want, got []int }{
		{[]int{1, 1, 1, 1}, []int{1, 1, 1, 1}},
		{[]int{100, 0, 2, 0}, []int{8, 0, 2, 0}},
		{[]int{100, 100, 100, 1}, []int{3, 3, 3, 1}},
	} {
		require.Equal(t, test.got, share(10, test.want))
	}
	require.Equal(t, []int{0, 0}, share(-3, []int{5, 5}))
	p := topPicture{view: aView(9)}
	picture := strings.Join(p.lines(80, 25, time.Unix(1001, 0)), "\n")
	require.Equal(t, 4, strings.Count(picture, "… 6 more"), picture)
	require.NotContains(t, picture, "\n\n\n", "two empty lines")
}

// A queue with a job that has been ready for minutes has a mark, with and without colours.
func TestTopMarksAQueueThatIsLate(t *testing.T) {
	t.Parallel()
	e := shared(t)
	now, err := luatomictest.Client(t).Time(t.Context()).Result()
	require.NoError(t, err)
	for name, age := range map[string]time.Duration{"aaa": lateAfter / 2, "zzz": 2 * lateAfter} {
		at := now.Add(-age).UnixMilli()
		e.push(name, queue.Job{ID: "one"})
		ready := e.prefix + "{" + name + "}:r"
		entry := luatomictest.Client(t).LIndex(t.Context(), ready, 0).Val()
		entry = regexp.MustCompile(`^[0-9]+`).ReplaceAllString(entry, fmt.Sprint(at))
		require.NoError(t, luatomictest.Client(t).LSet(t.Context(), ready, 0, entry).Err())
	}
	r := newTopReader(luatomictest.Client(t), e.prefix)
	r.read(t.Context())
	p := topPicture{view: r.view, colours: true}
	for i := range p.view.queues.rows {
		p.view.queues.rows[i].idle = false
	}
	picture := strings.Join(p.lines(120, 40, time.Now()), "\n")
	require.Regexp(t, `(?m)^zzz +late +1 +0 .* 10m0s `, visible(picture))
	require.Contains(t, picture, "\x1b["+yellow+"m", "it is in colour")
	require.Equal(t, 1, strings.Count(visible(picture), "late"))
}

func TestTopNamesWhatItCannotRead(t *testing.T) {
	t.Parallel()
	p := topPicture{view: aView(1)}
	p.view.locks.err, p.view.nodes.rows, p.view.nodes.part = errors.New("NOPERM scan"), nil, true
	picture := strings.Join(p.lines(80, 26, time.Unix(1001, 0)), "\n")
	require.Contains(t, picture, "LOCK: NOPERM scan")
	require.Contains(t, picture, "no node serves calls so far: the search ended")
}

// The rates of a queue that is filled, worked off, and of which consumers report each 5 s.
func TestQueueRates(t *testing.T) {
	t.Parallel()
	r := newRates()
	var last queueRates
	at := func(sec int) time.Time { return time.Unix(int64(sec), 0) }
	for sec := range 21 { // 30 a second come, 20 are processed, 1 fails
		reported := sec / 5 * 5
		st := queue.Stats{Ready: 9 * sec, Scheduled: 1 * sec}
		last = r.at(at(sec), "q", st, queue.DayCounts{Day: "d", Processed: 20 * reported, Failed: reported})
		require.Equal(t, sec >= 4, last.Processed != nil, sec)
	}
	require.Equal(t, []float64{30, 20, 1}, []float64{*last.Pushed, *last.Processed, *last.Failed})
	for sec := range 21 { // nothing comes, 20 are processed
		reported := (sec + 20) / 5 * 5
		st := queue.Stats{Ready: 1000 - 20*(sec+20)}
		last = r.at(at(sec+20), "drained", st, queue.DayCounts{Day: "d", Processed: 20 * reported})
	}
	require.Equal(t, []float64{0, 20}, []float64{*last.Pushed, *last.Processed})
	last = r.at(at(41), "drained", queue.Stats{}, queue.DayCounts{Day: "the next"})
	require.Nil(t, last.Processed, "the counts of a day begin at 0")
}
