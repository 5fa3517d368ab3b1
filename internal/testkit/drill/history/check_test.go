package history_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/drill/history"
)

// parse reads a history of lines "process kind thing[/span] [n] [held] [text]"; record i was written at i ms.
func parse(text string) (all []history.Record) {
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		r := history.Record{At: int64(len(all)) * 1000, By: words[0], Kind: history.Kind(words[1])}
		if len(words) > 2 {
			of, span, _ := strings.Cut(words[2], "/")
			r.Of = strings.Replace(of, ":", " ", 1)
			_, _ = fmt.Sscan(span, &r.Span)
		}
		for _, word := range words[min(3, len(words)):] {
			if _, err := fmt.Sscan(word, &r.N); err == nil {
				continue
			}
			if word == "held" {
				r.Held = true
			} else {
				r.Text = word
			}
		}
		all = append(all, r)
	}
	return all
}

// A history that breaks no rule, with everything that may happen in one.
const good = `
	p push job:a 0
	p push job:b 5
	p pushed job:a ok
	p pushed job:b unknown
	c start job:a/1 1
	c live job:a/1 held
	x fault - kill
	d start job:a/1 2
	d done job:a/1 held
	d acked job:a
	c done job:a/1
	d start job:b/2 1
	o cancel job:b
	o cancelled job:b leased
	h acquire lock:l/1
	i acquire lock:l/1
	h grant lock:l/1 10
	h write lock:l/1 10 held
	h release lock:l/1 held
	i grant lock:l/1 12
	i write lock:l/1 12 held
	h write lock:l/1 10
	i release lock:l/1 held
	u call call:1 once
	n run call:1 1
	u end call:1 ok
	u call call:2 again
	n run call:2 1
	m run call:2 2
	u end call:2 unknown
	u call call:3 once
	u end call:3 not
	s schedule jid:j
	s scheduled jid:j ok
	s found jid:j
	p push job:c 0
	p pushed job:c not
	p push job:d 0
	p pushed job:d ok
	o cancel job:d
	o cancelled job:d ready
	x drained -`

// insert returns the good history with lines behind the first one that begins with the text.
func insert(t *testing.T, behind, lines string) []history.Record {
	before, after, ok := strings.Cut(good, behind)
	require.True(t, ok, behind)
	return parse(before + behind + "\n" + lines + after)
}

// without returns the good history without a line.
func without(t *testing.T, line string) []history.Record {
	require.Contains(t, good, line)
	return parse(strings.Replace(good, line+"\n", "", 1))
}

func TestAGoodHistoryHasNoViolation(t *testing.T) {
	t.Parallel()
	require.Empty(t, history.Check(parse(good)))
}

// Each rule finds what breaks it, and only that; the part that shows it is small, and shows the same.
func TestEachRuleFindsItsViolation(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		rule history.Rule
		of   string
		all  []history.Record
		most int // records of the part that shows it
	}{
		"a job that nobody gets": {history.Lost, "job a", parse(`
			p push job:a 0
			p pushed job:a ok
			x drained -`), 2},
		"a job that nobody finishes": {history.Lost, "job b", parse(`
			p push job:b 0
			d start job:b/1 1
			o cancel job:b
			o cancelled job:b absent
			x drained -`), 3},
		"a refused push": {history.NotPushed, "job c",
			insert(t, "p pushed job:c not", "c start job:c/3 1\nc done job:c/3\n"), 2},
		"two workers": {history.Shared, "job a", insert(t, "d start job:a/1 2",
			"d live job:a/1 held\nc live job:a/1 held\nc live job:a/1 held\n"), 6},
		"a job after its ack": {history.Returned, "job a",
			insert(t, "c done job:a/1", "e start job:a/1 1\ne live job:a/1 held\n"), 3},
		"a worker that is acked away": {history.Returned, "job a",
			insert(t, "d acked job:a", "x live job:a/7\nx live job:a/7 held\n"), 3},
		"a job after its cancel": {history.Returned, "job d", insert(t, "o cancelled job:d ready",
			"e start job:d/1 1\ne live job:d/1 held\ne done job:d/1\n"), 3},
		"a replicated job that a failover loses": {history.Lost, "job a", parse(`
			p push job:a 0
			p pushed job:a ok
			f replicated - 1
			f replicated - 1 ok
			f failover -
			f failover -
			x drained -`), 2},
		"a replicated end that a failover forgets": {history.Returned, "job a", parse(`
			p push job:a 0
			p pushed job:a ok
			c start job:a/1 1
			c done job:a/1 held
			c acked job:a
			f replicated - 1
			f replicated - 1 ok
			f failover -
			f failover -
			d start job:a/1 1
			d done job:a/1 held
			x drained -`), 3},
		"a job before its time": {history.Early, "job e", parse("p push job:e 3\nc start job:e/1 1"), 2},
		"two holders": {history.Shared, "lock l", insert(t, "h grant lock:l/1 10",
			"k acquire lock:l/1\nk grant lock:l/1 11\nk write lock:l/1 11 held\n"), 6},
		"one fence": {history.SameFence, "lock l",
			insert(t, "h release lock:l/1 held", "k acquire lock:l/1\nk grant lock:l/1 10\n"), 2},
		"an old fence": {history.OldFence, "lock l",
			insert(t, "h release lock:l/1 held", "k acquire lock:l/1\nk grant lock:l/1 9\n"), 3},
		"a refused write": {history.Refused, "lock m", parse(`
			a acquire lock:m/1
			b acquire lock:m/1
			b grant lock:m/1 12
			b write lock:m/1 12
			a grant lock:m/1 11
			a write lock:m/1 11
			a release lock:m/1 held`), 3},
		"a second run":        {history.Twice, "call 1", insert(t, "n run call:1 1", "m run call:1 2\n"), 2},
		"a run by no caller":  {history.Twice, "call 4", parse("m run call:4 1\nn run call:4 2"), 2},
		"an attempt twice":    {history.Twice, "call 2", insert(t, "m run call:2 2", "n run call:2 2\n"), 2},
		"a result of nothing": {history.Nothing, "call 1", without(t, "n run call:1 1"), 1},
		"a refused call":      {history.RanAfter, "call 3", insert(t, "u end call:3 not", "n run call:3 1\n"), 2},
		"an end of no call":   {history.Ended, "call 5", insert(t, "u end call:3 not", "u end call:5 EOF\n"), 1},
		"a lost JID":          {history.Unmoved, "jid j", without(t, "s found jid:j"), 3},
		"a JID twice":         {history.Doubled, "jid j", insert(t, "s found jid:j", "s found jid:j\n"), 2},
		"a JID of no push":    {history.NotPushed, "jid k", parse("s scheduled jid:k not\ns found jid:k"), 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := history.Check(test.all)
			other := func(v history.Violation) bool { return v.Rule != test.rule || v.Of != test.of }
			found = slices.DeleteFunc(found, other)
			require.Len(t, found, 1)
			small := history.Shrink(test.all, found[0])
			require.LessOrEqual(t, len(small), test.most, "%v", small)
			require.NotEmpty(t, slices.DeleteFunc(history.Check(small), other))
		})
	}
}
