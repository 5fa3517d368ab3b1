package main

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// known makes the queues known to the server, empty.
func (e *env) known(names ...string) {
	e.t.Helper()
	for _, name := range names {
		e.run("consume", name, "--drain", "--", "true").exits(exitDone)
	}
}

// buried makes a job of that id dead.
func (e *env) buried(name, id string) {
	e.t.Helper()
	e.push(name, queue.Job{ID: id, Body: []byte(`{"to":"ann"}`), Kind: "mail.send",
		Headers: map[string]string{"trace": "1"}})
	taken, err := e.queue(name).Take(e.t.Context(), 1)
	require.NoError(e.t, err)
	require.Len(e.t, taken.Deliveries, 1)
	require.NoError(e.t, taken.Deliveries[0].Bury(e.t.Context(), "smtp: 550"))
}

// Dead jobs are listed, shown, made ready and deleted, by id and all at once.
func TestDeadJobsFromTheCommandLine(t *testing.T) {
	t.Parallel()
	e := shared(t)
	e.buried("mail", "one")
	e.buried("mail", "two")
	e.push("mail", queue.Job{ID: "ready"})
	c := e.run("jobs", "ls", "mail", "--state", "dead").exits(exitDone)
	require.Len(t, c.objects(), 2)
	holds(t, c.objects()[0], map[string]any{"id": "one", "state": "dead", "failures": 1, "reason": "smtp: 550",
		"kind": "mail.send", "bytes": 12})
	require.Len(t, e.run("jobs", "ls", "mail").exits(exitDone).objects(), 3)
	require.Len(t, e.run("jobs", "ls", "mail", "--limit", "1").exits(exitDone).objects(), 2, "one of each state")
	holds(t, e.run("jobs", "show", "mail", "one").exits(exitDone).object(),
		map[string]any{"id": "one", "state": "dead", "body": `{"to":"ann"}`, "reason": "smtp: 550"})

	c = e.run("jobs", "requeue", "mail", "one", "ready").exits(exitFailed)
	require.Contains(t, c.stderr.String(),
		`job "ready" is ready, and jobs requeue is for jobs that are dead; nothing is changed`)
	require.Equal(t, 2, e.stats("mail").Dead)
	c = e.run("jobs", "requeue", "mail", "unknown").exits(exitFailed)
	require.Contains(t, c.stderr.String(), `queue "mail" has no job "unknown"`)
	holds(t, e.run("jobs", "requeue", "mail", "one").exits(exitDone).object(),
		map[string]any{"queue": "mail", "requeued": 1})
	holds(t, e.run("jobs", "delete", "mail", "--all").exits(exitDone).object(), map[string]any{"deleted": 1})
	require.Zero(t, e.stats("mail").Dead)
	holds(t, e.run("jobs", "delete", "mail", "--all", "--state", "ready").exits(exitDone).object(),
		map[string]any{"deleted": 2})
	holds(t, e.run("jobs", "requeue", "mail", "--all").exits(exitDone).object(), map[string]any{"requeued": 0})
}

// Jobs that wait are cancelled and rescheduled; a leased one gets a mark, which its worker learns at its next extend.
func TestWaitingJobsFromTheCommandLine(t *testing.T) {
	t.Parallel()
	e := shared(t)
	e.push("mail", queue.Job{ID: "leased"})
	taken, err := e.queue("mail").Take(t.Context(), 1)
	require.NoError(t, err)
	e.push("mail", queue.Job{ID: "ready"}, queue.Job{ID: "later", Delay: time.Hour})
	c := e.run("jobs", "reschedule", "mail", "later", "leased", "--in", "0s").exits(exitFailed)
	require.Contains(t, c.stderr.String(),
		`job "leased" is leased, and jobs reschedule is for jobs that are scheduled; nothing is changed`)
	holds(t, e.run("jobs", "cancel", "mail", "leased").exits(exitDone).object(), map[string]any{"cancelled": 1})
	require.ErrorIs(t, taken.Deliveries[0].Extend(t.Context(), time.Minute), queue.ErrCancelled)
	require.Equal(t, 1, e.stats("mail").Ready)
	holds(t, e.run("jobs", "reschedule", "mail", "later", "--in", "2h").exits(exitDone).object(),
		map[string]any{"rescheduled": 1})
	due := e.stats("mail").NextDue.Or(time.Time{})
	require.WithinDuration(t, time.Now().Add(2*time.Hour), due, 5*time.Minute)
	holds(t, e.run("jobs", "reschedule", "mail", "--all", "--at", "2100-01-01T00:00:00Z").exits(exitDone).object(),
		map[string]any{"rescheduled": 1})
	require.Equal(t, 2100, e.stats("mail").NextDue.Or(time.Time{}).UTC().Year())
	holds(t, e.run("jobs", "cancel", "mail", "later").exits(exitDone).object(), map[string]any{"cancelled": 1})
	holds(t, e.run("jobs", "cancel", "mail", "--all").exits(exitDone).object(), map[string]any{"cancelled": 1})
	require.NoError(t, taken.Deliveries[0].Ack(t.Context()))
}

// Waiting jobs are buried with a reason, by id and all at once; a leased one is not, and then nothing is changed.
func TestJobsAreBuriedFromTheCommandLine(t *testing.T) {
	t.Parallel()
	e := shared(t)
	e.push("mail", queue.Job{ID: "leased"})
	_, err := e.queue("mail").Take(t.Context(), 1)
	require.NoError(t, err)
	e.push("mail", queue.Job{ID: "a"}, queue.Job{ID: "b"}, queue.Job{ID: "later", Delay: time.Hour})
	c := e.run("jobs", "bury", "mail", "a", "leased").exits(exitFailed)
	require.Contains(t, c.stderr.String(),
		`job "leased" is leased, and jobs bury is for jobs that are ready or scheduled; nothing is changed`)
	require.Zero(t, e.stats("mail").Dead)
	holds(t, e.run("jobs", "bury", "mail", "a", "--reason", "wrong address").exits(exitDone).object(),
		map[string]any{"queue": "mail", "buried": 1})
	holds(t, e.run("jobs", "show", "mail", "a").exits(exitDone).object(),
		map[string]any{"state": "dead", "failures": 0, "reason": "wrong address"})
	c = e.run("jobs", "bury", "mail", "a").exits(exitFailed)
	require.Contains(t, c.stderr.String(), `job "a" is dead`)
	holds(t, e.run("jobs", "bury", "mail", "--all").exits(exitDone).object(), map[string]any{"buried": 1})
	holds(t, e.run("jobs", "bury", "mail", "--all", "--state", "scheduled").exits(exitDone).object(),
		map[string]any{"buried": 1})
	holds(t, e.run("jobs", "show", "mail", "b").exits(exitDone).object(), map[string]any{"reason": "buried by hand"})
	require.Equal(t, 3, e.stats("mail").Dead)
	holds(t, e.run("jobs", "requeue", "mail", "--all").exits(exitDone).object(), map[string]any{"requeued": 3})
}

// The settings of a queue are changed, with a tag too. A queue that nobody knows is an error, not zeros.
func TestQueueSettingsFromTheCommandLine(t *testing.T) {
	t.Parallel()
	e := shared(t)
	e.push("mail", queue.Job{ID: "a"})
	holds(t, e.run("queue", "pause", "mail").exits(exitDone).object(),
		map[string]any{"queue": "mail", "paused": true, "limit": nil})
	holds(t, e.run("queue", "limit", "mail", "10").exits(exitDone).object(),
		map[string]any{"paused": true, "limit": 10})
	holds(t, e.run("queue", "resume", "mail").exits(exitDone).object(), map[string]any{"paused": false, "limit": 10})
	holds(t, e.run("queue", "limit", "mail", "0").exits(exitDone).object(), map[string]any{"limit": nil})
	e.buried("trimmed", "x")
	e.buried("trimmed", "y")
	holds(t, e.run("queue", "trim", "trimmed", "--keep", "1").exits(exitDone).object(),
		map[string]any{"deleted": 1, "dead": 1, "dead_bytes": 12})

	holds(t, e.run("queue", "audit", "mail").exits(exitDone).object(), map[string]any{"ok": true, "checked": 1})
	q := e.queue("mail")
	require.NoError(t, luatomictest.Client(t).Del(t.Context(), e.prefix+"{mail}:r").Err())
	c := e.run("queue", "audit", "mail").exits(exitFailed)
	holds(t, c.object(), map[string]any{"ok": false, "lost": 1, "repaired": 0})
	holds(t, e.run("queue", "audit", "mail", "--repair").exits(exitDone).object(),
		map[string]any{"lost": 1, "repaired": 1})
	found, err := q.Find(t.Context(), "a")
	require.NoError(t, err)
	require.Equal(t, queue.Ready, found[0].State)

	tagged, err := queue.New(luatomictest.Client(t), "bill", &queue.Options{Prefix: e.prefix, Tag: "orders"})
	require.NoError(t, err)
	_, err = tagged.Push(t.Context(), queue.Job{ID: "b"})
	require.NoError(t, err)
	require.Len(t, e.run("jobs", "ls", "bill", "--tag", "orders").exits(exitDone).objects(), 1)
	for _, args := range [][]string{{"stats", "bill"}, {"jobs", "ls", "bill"}, {"jobs", "show", "bill", "b"},
		{"jobs", "requeue", "bill", "--all"}} {
		c := e.run(args...).exits(exitFailed)
		require.Contains(t, c.stderr.String(), `there is no queue "bill"; luatomic queues ls lists them`, args)
	}
	holds(t, e.run("stats", "bill", "--tag", "orders").exits(exitDone).object(), map[string]any{"ready": 1})
	listed := e.run("queues", "ls").exits(exitDone).objects()
	require.Len(t, listed, 3)
	holds(t, listed[0], map[string]any{"queue": "mail", "tag": "", "ready": 1})
	require.Empty(t, e.run("queues", "workers").exits(exitDone).stdout.String())
}

// A running consumer is listed with the job that it has, and with the tag of its queue: queues of one name differ by
// it.
func TestWorkersFromTheCommandLine(t *testing.T) {
	t.Parallel()
	e := shared(t)
	e.with(`{"body":1,"id":"held"}`).run("push", "mail", "--tag", "blue").exits(exitDone)
	c := e.start("consume", "mail", "--tag", "blue", "--grace", "10ms", "--", "sh", "-c", "echo begun >&2; sleep 1000")
	c.shows("begun")
	var listed *cli
	luatomictest.Eventually(t, within, "the consumer is listed with its job", func() bool {
		listed = e.run("queues", "workers").exits(exitDone)
		return strings.Contains(listed.stdout.String(), `"id":"held"`)
	})
	holds(t, listed.object(), map[string]any{"pid": c.cmd.Process.Pid})
	running, _, err := newTopReader(luatomictest.Client(t), e.prefix).readRunning(t.Context())
	require.NoError(t, err)
	require.Len(t, running, 1)
	require.Equal(t, "{blue}mail", running[0].queue)
	c.signal(os.Interrupt)
	c.exits(exitInterrupted)
}

// A list without an entry is an empty one: a program that goes over it need not know that it can be missing.
func TestEmptyListsAreLists(t *testing.T) {
	t.Parallel()
	e := shared(t)
	c := e.start("consume", "mail", "--", "true")
	luatomictest.Eventually(t, within, "the idle consumer is listed", func() bool {
		return strings.Contains(e.run("queues", "workers").exits(exitDone).stdout.String(), `"holding":[]`)
	})
	e.run("locks", "steal", "nightly", "--ttl", "10m").exits(exitDone)
	require.Contains(t, e.run("locks", "show", "nightly").exits(exitDone).stdout.String(), `"waiters":[]`)
	c.signal(syscall.SIGTERM)
	c.exits(exitDone)
}

// A terminal gets a table in which nothing that others wrote can move the cursor.
func TestListsAreTablesOnATerminal(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s := newSession(&out, &out)
	s.tables = true
	r := s.rows("ID", "REASON")
	require.NoError(t, r.add(nil, "one", "a\x1b[2Jb"))
	require.NoError(t, r.add(nil, "twenty-two", strings.Repeat("x", 70)))
	require.NoError(t, r.end())
	require.Equal(t, "ID          REASON\none         a\\x1b[2Jb\ntwenty-two  "+strings.Repeat("x", 60)+"…\n",
		out.String())
	require.Equal(t, "in 1m0s", ago(time.Unix(60, 0), time.Unix(0, 0)))
	require.Equal(t, "1h1m0s ago", ago(time.Unix(0, 0), time.Unix(3660, 0)))
	require.Equal(t, "in 2562047h47m0s", ago(time.Unix(1<<40, 0), time.Unix(0, 0)), "the longest duration")
	require.Equal(t, "-", ago(time.Time{}, time.Now()))
}

// Columns stand below each other where characters take two columns of the terminal, or none, and in colours.
func TestTablesAlignWideCharacters(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s := newSession(&out, &out)
	s.tables = true
	r := s.rows("NAME", "READY", "KIND")
	for _, name := range []string{"mail", "メール", "🚀🚀", "e\u0301te\u0301", "\u1112\u1161\u11ab", "ｍ"} {
		require.NoError(t, r.add(nil, name, 7, painted{"x", red}))
	}
	require.NoError(t, r.add(nil, strings.Repeat("漢", 29)+"xyz", 10, ""))
	require.NoError(t, r.end())
	gap := strings.Repeat(" ", 55)
	require.Equal(t, []string{
		"NAME    " + gap + "READY  KIND",
		"mail    " + gap + "    7  x",
		"メール  " + gap + "    7  x",
		"🚀🚀    " + gap + "    7  x",
		"e\u0301te\u0301     " + gap + "    7  x",
		"\u1112\u1161\u11ab      " + gap + "    7  x",
		"ｍ      " + gap + "    7  x",
		strings.Repeat("漢", 29) + "xy…     10",
	}, strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n"))
	coloured := (&table{columns: []string{"A", "B"},
		cells: [][]cell{{{text: "漢", colour: red}, {text: "b"}}}}).lines(true, []int{0, 0})
	require.Equal(t, []string{"\x1b[1mA\x1b[0m   \x1b[1mB\x1b[0m", "\x1b[31m漢\x1b[0m  b"}, coloured)
	require.Equal(t, "漢", cut("漢字b", 3))
	require.Equal(t, "漢字b", cut("漢字b", 5))
	require.Equal(t, "e\u0301", cut("e\u0301e\u0301", 1))
	require.Equal(t, "\x1b[31m漢\x1b[0m", cut("\x1b[31m漢字\x1b[0m", 3))
}

// Wrong words are wrong usage, with what to write.
func TestUsageOfTheQueueCommands(t *testing.T) {
	t.Parallel()
	for text, args := range map[string]string{
		"write the queue and the ids of its jobs, or --all":   "jobs requeue mail",
		"either ids or --all":                                 "jobs requeue mail a --all",
		"--state goes with --all":                             "jobs delete mail a --state dead",
		"jobs cancel is for jobs that are ready or scheduled": "jobs cancel mail --all --state dead",
		"jobs bury is for jobs that are ready or scheduled":   "jobs bury mail --all --state leased",
		`no job is "lost"`:                                    "jobs ls mail --state lost",
		"both --in and --at": "jobs reschedule mail a --in 1s --at " +
			"2100-01-01T00:00:00Z",
		"write --in D or --at T; --in 0s is now": "jobs reschedule mail a",
		"is not a number of jobs":                "queue limit mail many",
		"write the queue and its limit":          "queue limit mail",
		"say what stays":                         "queue trim mail",
		"--limit 0 is below 1":                   "jobs ls mail --limit 0",
	} {
		_, cmd, err := parseCommand(strings.Fields(args), &bytes.Buffer{}, &bytes.Buffer{})
		require.NotNil(t, cmd, args)
		require.ErrorContains(t, err, text, args)
		var usage *usageError
		require.True(t, errors.As(err, &usage), args)
	}
}
