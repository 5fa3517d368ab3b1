package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// pushMany pushes n jobs, whose ids begin so.
func (e *env) pushMany(name, id string, n int, job queue.Job) {
	e.t.Helper()
	jobs := make([]queue.Job, n)
	for i := range jobs {
		jobs[i] = job
		jobs[i].ID = fmt.Sprintf("%s-%04d", id, i)
	}
	for _, err := range e.queue(name).PushSeq(e.t.Context(), func(yield func(queue.Job) bool) {
		for _, j := range jobs {
			if !yield(j) {
				return
			}
		}
	}) {
		require.NoError(e.t, err)
	}
}

// allBeside are all jobs of the state, as read while others work: f runs after each command that reads some.
func (e *env) allBeside(name string, state queue.State, f func()) []string {
	e.t.Helper()
	client := redis.NewClient(luatomictest.Client(e.t).Options())
	e.t.Cleanup(func() { _ = client.Close() })
	client.AddHook(beside(func(command string) {
		if slices.Contains([]string{"lrange", "zrange", "evalsha", "evalsha_ro"}, command) {
			f()
		}
	}))
	q, err := queue.New(client, name, &queue.Options{Prefix: e.prefix})
	require.NoError(e.t, err)
	found, err := allJobs(e.t.Context(), client, q, e.prefix, state)
	require.NoError(e.t, err)
	once := map[string]bool{}
	for _, id := range found {
		require.False(e.t, once[id], id)
		once[id] = true
	}
	return found
}

// stay are the ids of the jobs that are still in the state.
func (e *env) stay(name string, state queue.State) (ids []string) {
	e.t.Helper()
	q := e.queue(name)
	err := eachJob(e.t.Context(), q, state, countOf(e.stats(name), state), 1<<20, func(p queue.Peeked) error {
		ids = append(ids, p.ID)
		return nil
	})
	require.NoError(e.t, err)
	return ids
}

// All ready jobs are found while a consumer takes some from the head, and in the order in which they come up.
func TestAllJobsAreFoundBesideAConsumer(t *testing.T) {
	t.Parallel()
	e := shared(t)
	e.pushMany("busy", "job", 2600, queue.Job{})
	q := e.queue("busy")
	found := e.allBeside("busy", queue.Ready, func() {
		_, err := q.Take(context.Background(), 20)
		require.NoError(t, err)
		_, err = q.Push(context.Background(), queue.Job{})
		require.NoError(t, err)
	})
	cameMeanwhile := func(id string) bool { return !strings.HasPrefix(id, "job-") }
	found = slices.DeleteFunc(found, cameMeanwhile)
	kept := slices.DeleteFunc(e.stay("busy", queue.Ready), cameMeanwhile)
	require.Greater(t, len(kept), 1000)
	require.Equal(t, kept, found[len(found)-len(kept):])
}

// All scheduled jobs are found while a promoter moves those that are due. Many are due at the same time.
func TestAllJobsAreFoundBesideAPromoter(t *testing.T) {
	t.Parallel()
	e := shared(t)
	e.pushMany("busy", "due", 400, queue.Job{Delay: time.Millisecond})
	e.pushMany("busy", "same", 2600, queue.Job{At: time.Now().Add(time.Hour)})
	e.pushMany("busy", "later", 300, queue.Job{Delay: 2 * time.Hour})
	luatomictest.Eventually(t, within, "all of them are due", func() bool {
		due, err := e.queue("busy").Find(t.Context(), "due-0399")
		require.NoError(t, err)
		return e.stats("busy").Now.After(due[0].At)
	})
	q, reads := e.queue("busy"), 0
	found := e.allBeside("busy", queue.Scheduled, func() {
		if reads++; reads == 1 { // some are read by then
			moved, err := q.Promote(context.Background())
			require.NoError(t, err)
			require.Equal(t, 400, moved.Moved)
		}
	})
	kept := e.stay("busy", queue.Scheduled)
	require.Len(t, kept, 2900)
	require.Equal(t, kept, slices.DeleteFunc(found, func(id string) bool { return strings.HasPrefix(id, "due-") }))
}

// What was cancelled or buried while it was ready has its entry in the list still, and is no ready job.
func TestAllReadyJobsAreThoseThatAreReady(t *testing.T) {
	t.Parallel()
	e := shared(t)
	e.push("mail", queue.Job{ID: "cancelled"}, queue.Job{ID: "buried"}, queue.Job{ID: "ready"})
	e.run("jobs", "cancel", "mail", "cancelled").exits(exitDone)
	e.run("jobs", "bury", "mail", "buried").exits(exitDone)
	holds(t, e.run("jobs", "cancel", "mail", "--all").exits(exitDone).object(), map[string]any{"cancelled": 1})
	require.Equal(t, []string{"buried"}, e.stay("mail", queue.Dead))
}

// A change of all jobs of a state leaves those that a worker has taken since they were found: they run to their end.
func TestAChangeOfAllLeavesJobsThatAreTakenMeanwhile(t *testing.T) {
	t.Parallel()
	e := shared(t)
	q := e.queue("mail")
	for _, id := range []string{"a", "b"} {
		e.push("mail", queue.Job{ID: id})
		taken, err := q.Take(t.Context(), 1)
		require.NoError(t, err)
		n, err := cancelJobs(t.Context(), q, []queue.State{queue.Ready}, []string{id})
		require.NoError(t, err)
		require.Zero(t, n)
		require.NoError(t, q.Extend(t.Context(), time.Minute, taken.Deliveries...))
	}
}

// A change of all jobs needs their ids: the bodies of a large queue stay on the server.
func TestAChangeOfAllReadsNoBodies(t *testing.T) {
	t.Parallel()
	body := make([]byte, 40<<10)
	for verb, job := range map[string]queue.Job{
		"cancel": {Body: body}, "bury": {Body: body, Delay: time.Hour}, "delete": {Body: body},
		"requeue": {Body: body}, "reschedule": {Body: body, Delay: time.Hour},
	} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			server := luatomictest.StartServer(t)
			e := &env{t: t, url: server.URL(), prefix: "app:"}
			client := redis.NewClient(&redis.Options{Addr: server.Addr()})
			defer client.Close()
			q, err := queue.New(client, "mail", &queue.Options{Prefix: e.prefix})
			require.NoError(t, err)
			state := map[bool]string{true: "scheduled", false: "dead"}[job.Delay > 0]
			for i := range 20 {
				job.ID = fmt.Sprint("job-", i)
				_, err := q.Push(t.Context(), job)
				require.NoError(t, err)
				if verb == "delete" || verb == "requeue" {
					_, err = q.BuryJobs(t.Context(), "boom", job.ID)
					require.NoError(t, err)
				}
			}
			if verb == "cancel" {
				state = "ready"
			}
			args := []string{"jobs", verb, "mail", "--all", "--state", state}
			if verb == "reschedule" {
				args = append(args, "--in", "2h")
			}
			before := sentBy(t, client)
			e.run(args...).exits(exitDone)
			require.Less(t, sentBy(t, client)-before, 200<<10, "bytes that the server sent, of 800 KB of bodies")
		})
	}
}

// sentBy is how many bytes the server has sent.
func sentBy(t *testing.T, client *redis.Client) int {
	t.Helper()
	_, rest, found := strings.Cut(client.Info(t.Context(), "stats").Val(), "total_net_output_bytes:")
	require.True(t, found)
	n, err := strconv.Atoi(strings.TrimSpace(strings.SplitN(rest, "\n", 2)[0]))
	require.NoError(t, err)
	return n
}
