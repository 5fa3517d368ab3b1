package history_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/drill/history"
)

// Jobs that only the old master had are lost, ends that only it had are forgotten, and its leases are not known to the
// new one. That is counted, and no violation.
func TestWhatAFailoverUndoesIsNoViolation(t *testing.T) {
	t.Parallel()
	all := parse(`
		p push job:kept 0
		p pushed job:kept ok
		f replicated - 1
		f replicated - 1 ok
		f replicated - 2
		p push job:a 0
		p pushed job:a ok
		p push job:b 0
		p pushed job:b unknown
		c start job:b/1 1
		c start job:kept/2 1
		h acquire lock:l/1
		h grant lock:l/1 10
		f failover -
		c done job:kept/2 held
		f failover -
		c acked job:kept
		d start job:kept/1 1
		i acquire lock:l/1
		h write lock:l/1 10 held
		i grant lock:l/1 12
		i write lock:l/1 12 held
		h write lock:l/1 10 held
		h release lock:l/1 held
		d done job:kept/1 held
		x drained -`)
	require.Empty(t, history.Check(all))
	require.Equal(t, history.Losses{Failovers: 1, Pushed: 2, Lost: 1, Again: 1, Window: 9 * time.Millisecond},
		history.LossesOf(all))
	for i, r := range all { // without the failover each of them is one
		if r.Kind == history.Failover {
			all[i].Kind = history.Fault
		}
	}
	rules := map[history.Rule]int{}
	for _, v := range history.Check(all) {
		rules[v.Rule]++
	}
	require.Equal(t, map[history.Rule]int{history.Lost: 2, history.Returned: 1, history.Shared: 1, history.Refused: 1},
		rules)
}

// The old master ran a push and gave the job to a worker, then it was replaced. The new one does not know the job, so
// the worker's ack succeeds, and the push, sent again, adds the job.
func TestPushThatAFailoverUndoesMayRepeatAJobThatIsOver(t *testing.T) {
	t.Parallel()
	const undone = `
		f replicated - 1
		f replicated - 1 ok
		f failover -
		p push job:a 0
		c start job:a/1 1
		f failover -
		c done job:a/1 held
		c acked job:a
		p pushed job:a ok
		d start job:a/1 1
		d done job:a/1 held
		x drained -`
	require.Empty(t, history.Check(parse(undone)))
	push, pushed := "p push job:a 0\n", "p pushed job:a ok\n"
	known := push + pushed + strings.NewReplacer(push, "", pushed, "").Replace(undone)
	found := history.Check(parse(known))
	require.Len(t, found, 1)
	require.Equal(t, history.Returned, found[0].Rule)
}
