package main

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// lapsedJob takes a job of that id, and ends its lease as if its worker had died long ago.
func (e *env) lapsedJob(name, id string, failures int) {
	e.t.Helper()
	e.push(name, queue.Job{ID: id, Body: []byte("1")})
	q, c := e.queue(name), luatomictest.Client(e.t)
	taken, err := q.Take(e.t.Context(), 1)
	require.NoError(e.t, err)
	require.Len(e.t, taken.Deliveries, 1)
	require.NoError(e.t, c.ZAdd(e.t.Context(), e.prefix+"{"+name+"}:l", redis.Z{Score: lab.Past, Member: id}).Err())
	require.NoError(e.t, c.HSet(e.t.Context(), e.prefix+"{"+name+"}:n", id, failures).Err())
}

// A fleet that died is seen: each list that shows the queue says how many leases have ended and that nobody consumes,
// and the jobs can be taken back. One that has failed often is not buried by a bound that the command does not know.
func TestADeadFleetIsSeen(t *testing.T) {
	t.Parallel()
	e := shared(t)
	e.lapsedJob("mail", "held", 1000)
	e.push("idle", queue.Job{ID: "waits"})
	e.push("quiet", queue.Job{ID: "later", Delay: time.Hour})

	holds(t, e.run("stats", "mail").exits(exitDone).object(), map[string]any{"leased": 1, "lapsed": 1, "consumers": 0})
	rows := make(map[string]map[string]any)
	for _, o := range e.run("queues", "ls").exits(exitDone).objects() {
		rows[o["queue"].(string)] = o
	}
	holds(t, rows["mail"], map[string]any{"leased": 1, "lapsed": 1, "consumers": 0})
	holds(t, rows["idle"], map[string]any{"ready": 1, "lapsed": 0, "consumers": 0})

	check := e.run("doctor").checks()["queues"]
	holds(t, check, map[string]any{"ok": false, "cure": "start a consumer, or luatomic jobs reclaim mail"})
	require.Contains(t, check["detail"], `the first "mail": 1; 1 queue with jobs that nobody consumes, the first "idle": 1`)

	r := newTopReader(luatomictest.Client(t), e.prefix)
	r.read(t.Context())
	p := topPicture{view: r.view}
	picture := strings.Join(p.lines(120, 40, time.Now()), "\n")
	require.Regexp(t, `(?m)^mail +1 lapsed +0 +0 `, picture)
	require.Regexp(t, `(?m)^idle +no consumer +1 +0 `, picture)
	require.Regexp(t, `(?m)^quiet +0 +0 `, picture)
	require.Regexp(t, `(?m)^no job is running$`, picture)

	holds(t, e.run("jobs", "reclaim", "mail").exits(exitDone).object(),
		map[string]any{"queue": "mail", "returned": 1, "cancelled": 0})
	st := e.stats("mail")
	require.Equal(t, []int{1, 0, 0}, []int{st.Ready, st.Lapsed, st.Dead})
	check = e.run("doctor").checks()["queues"]
	holds(t, check, map[string]any{"ok": true})
	require.Contains(t, check["cure"], "start a consumer", "a warning")
}

// While a process has not yet reported the jobs that it took, top does not say that none is running.
func TestTopDoesNotDenyWhatRuns(t *testing.T) {
	t.Parallel()
	p := topPicture{view: aView(1)}
	p.view.running.rows, p.view.queues.rows[0].Leased = nil, 1
	picture := strings.Join(p.lines(120, 40, time.Unix(1001, 0)), "\n")
	require.Contains(t, picture, "no process has reported a running job yet")
	require.NotContains(t, picture, "no job is running")
}

// A job is taken from its worker: by the fence that was shown, or whichever lease it has. The worker's ack is refused.
func TestAJobIsReleasedFromTheCommandLine(t *testing.T) {
	t.Parallel()
	e := shared(t)
	e.push("mail", queue.Job{ID: "held"}, queue.Job{ID: "ready"})
	taken, err := e.queue("mail").Take(t.Context(), 1)
	require.NoError(t, err)
	shown := e.run("jobs", "show", "mail", "held").exits(exitDone).object()
	fence := strconv.FormatInt(int64(shown["fence"].(float64)), 10)
	require.NoError(t, taken.Deliveries[0].Extend(t.Context(), time.Hour))
	c := e.run("jobs", "release", "mail", "held", "--fence", fence).exits(exitFailed)
	require.Contains(t, c.stderr.String(), "it was renewed, or another worker has the job; nothing is changed")
	c = e.run("jobs", "release", "mail", "ready").exits(exitFailed)
	require.Contains(t, c.stderr.String(), `job "ready" is ready, and jobs release is for jobs that are leased`)
	holds(t, e.run("jobs", "release", "mail", "held").exits(exitDone).object(),
		map[string]any{"queue": "mail", "id": "held", "released": true})
	require.ErrorIs(t, taken.Deliveries[0].Ack(t.Context()), queue.ErrLeaseLost)
	again, err := e.queue("mail").Take(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, "held", again.Deliveries[0].ID, "it is at the head")
	e.run("jobs", "release", "mail").exits(exitUsage)
	e.run("jobs", "release", "mail", "held", "--fence", "0").exits(exitUsage)
}

// A server that came back empty is named, as soon as a process finds that its reports are gone.
func TestAServerThatLostItsDataIsNamed(t *testing.T) {
	t.Parallel()
	e := shared(t)
	e.push("mail", queue.Job{ID: "one"})
	require.Contains(t, e.run("doctor").checks()["data"]["detail"], "no consumer has found a loss")
	c := luatomictest.Client(t)
	now, err := c.Time(t.Context()).Result()
	require.NoError(t, err)
	about := fmt.Sprint(now.UnixMicro(), " ", now.UnixMilli())
	require.NoError(t, c.HSet(t.Context(), keys.NewFleet(e.prefix).About, "", about).Err())
	const says = "the server has lost data: "
	check := e.run("doctor").checks()["data"]
	holds(t, check, map[string]any{"ok": true})
	require.Contains(t, check["detail"], says)
	require.Contains(t, check["detail"], "the server was started ")
	require.NotNil(t, check["cure"])
	ls := e.run("queues", "ls").exits(exitDone)
	require.Contains(t, ls.stderr.String(), says)
	require.Equal(t, "mail", ls.object()["queue"])
	r := newTopReader(c, e.prefix)
	r.read(t.Context())
	p := topPicture{view: r.view}
	require.Contains(t, strings.Join(p.lines(200, 40, time.Now()), "\n"), says)
	about = fmt.Sprint(now.UnixMicro(), " ", now.Add(-25*time.Hour).UnixMilli())
	require.NoError(t, c.HSet(t.Context(), keys.NewFleet(e.prefix).About, "", about).Err())
	require.Nil(t, e.run("doctor").checks()["data"]["cure"], "that is long ago")
}

// A server that was restarted with its data is named: by doctor, queues ls and top.
func TestARestartedServerIsNamed(t *testing.T) {
	t.Parallel()
	e := shared(t)
	require.NoError(t, luatomictest.Client(t).HSet(t.Context(), keys.NewFleet(e.prefix).About, "", "1000000 0").Err())
	const says = "the server was restarted "
	check := e.run("doctor").checks()["data"]
	holds(t, check, map[string]any{"ok": true})
	require.Contains(t, check["detail"], says)
	require.Contains(t, check["cure"], "read its log")
	require.Contains(t, e.run("queues", "ls").exits(exitDone).stderr.String(), says)
	r := newTopReader(luatomictest.Client(t), e.prefix)
	r.read(t.Context())
	p := topPicture{view: r.view}
	require.Contains(t, strings.Join(p.lines(120, 40, time.Now()), "\n"), says)
}
