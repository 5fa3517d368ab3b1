package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/luatomictest"
)

// The jobs of one queue of a Sidekiq are listed, shown, requeued, rescheduled and deleted, and no others.
func TestJobsOfSidekiq(t *testing.T) {
	t.Parallel()
	e, r, ctx := shared(t), luatomictest.Client(t), t.Context()
	verb := func(line string) *cli { return e.run(append(strings.Fields(line), "--dialect=sidekiq7")...) }
	e.with(`{"class":"A","queue":"a","jid":"r1"}
{"class":"A","queue":"a","jid":"r2"}
{"class":"A","queue":"b","jid":"other"}
{"class":"A","queue":"a","jid":"s1","delay":"1h"}`).run("push", "q", "--dialect=sidekiq7").exits(exitDone)
	failed := func(set, queue, jid string, score float64) {
		payload := `{"class":"Wrapper","wrapped":"Mail","queue":"` + queue + `","jid":"` + jid +
			`","args":[],"retry_count":1,"error_class":"E","error_message":"no"}`
		require.NoError(t, r.ZAdd(ctx, e.prefix+set, redis.Z{Score: score, Member: payload}).Err())
	}
	failed("retry", "a", "t1", 4e9)
	failed("retry", "b", "t2", 4e9)
	failed("dead", "a", "d1", 1.5)
	failed("dead", "a", "d2", 2)

	queues := verb("queues ls").exits(exitDone).objects()
	require.Len(t, queues, 2)
	holds(t, queues[0], map[string]any{"queue": "a", "ready": 2})
	states := func() (all []string) {
		for _, o := range verb("jobs ls a").exits(exitDone).objects() {
			all = append(all, o["id"].(string)+" "+o["state"].(string))
		}
		return all
	}
	require.Equal(t, []string{"r1 ready", "r2 ready", "s1 scheduled", "t1 retry", "d1 dead", "d2 dead"}, states())
	holds(t, verb("jobs ls a --state dead --limit 1").exits(exitDone).object(),
		map[string]any{"id": "d1", "at": 1500, "failures": 2, "kind": "Mail", "reason": "E: no"})
	require.Len(t, verb("jobs ls a --state dead --limit 1 --all").exits(exitDone).objects(), 2)
	shown := verb("jobs show a d1 r1").exits(exitDone).objects()
	require.Len(t, shown, 2)
	require.Contains(t, shown[0]["body"], `"error_class":"E"`)
	holds(t, shown[1], map[string]any{"id": "r1", "state": "ready"})

	holds(t, verb("jobs requeue a d1 t1").exits(exitDone).object(), map[string]any{"queue": "a", "requeued": 2})
	require.Equal(t, []string{"r1 ready", "r2 ready", "d1 ready", "t1 ready", "s1 scheduled", "d2 dead"}, states())
	holds(t, verb("jobs requeue a --all").exits(exitDone).object(), map[string]any{"requeued": 1})
	holds(t, verb("jobs requeue b --all --state retry").exits(exitDone).object(), map[string]any{"requeued": 1})
	before := r.ZScore(ctx, e.prefix+"schedule", r.ZRange(ctx, e.prefix+"schedule", 0, 0).Val()[0]).Val()
	holds(t, verb("jobs reschedule a s1 --in 3h").exits(exitDone).object(), map[string]any{"rescheduled": 1})
	after := r.ZRangeWithScores(ctx, e.prefix+"schedule", 0, 0).Val()[0].Score
	require.InDelta(t, before+7200, after, 60)
	holds(t, verb("jobs reschedule a --all --at 1900000000500").exits(exitDone).object(),
		map[string]any{"rescheduled": 1})
	require.InDelta(t, 1900000000.5, r.ZRangeWithScores(ctx, e.prefix+"schedule", 0, 0).Val()[0].Score, 0.01)
	holds(t, verb("jobs delete a r2 s1").exits(exitDone).object(), map[string]any{"deleted": 2})
	require.Equal(t, []string{"r1 ready", "d1 ready", "t1 ready", "d2 ready"}, states())
	holds(t, verb("jobs delete a --all").exits(exitDone).object(), map[string]any{"deleted": 0})
	holds(t, verb("jobs delete a --all --state ready").exits(exitDone).object(), map[string]any{"deleted": 4})
	require.Len(t, verb("jobs ls b").exits(exitDone).objects(), 2, "the other queue has what it had")

	// An id that is nowhere changes nothing.
	c := verb("jobs delete b other nowhere").exits(exitFailed)
	require.Contains(t, c.stderr.String(), `queue "b" has no job "nowhere" that is dead or retry or scheduled or ready`)
	require.Len(t, verb("jobs ls b").exits(exitDone).objects(), 2)
	c = verb("jobs ls none").exits(exitFailed)
	require.Contains(t, c.stderr.String(), `there is no queue "none"; luatomic queues ls --dialect sidekiq7 lists them`)
}

// beside calls do after each command that reads jobs.
type beside func(command string)

func (h beside) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h beside) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		h(cmd.Name())
		return err
	}
}

func (h beside) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// Jobs that are named, and all of a state, are found while workers take others and due ones leave.
func TestJobsOfABusySidekiqAreFound(t *testing.T) {
	t.Parallel()
	r, ctx, ns := luatomictest.Client(t), t.Context(), luatomictest.Namespace(t)
	var payloads []any
	var due []redis.Z
	for i := range 1000 {
		job := fmt.Sprintf(`{"class":"W","queue":"a","args":[],"jid":"job-%04d"}`, i)
		payloads = append(payloads, job)
		due = append(due, redis.Z{Score: float64(i), Member: strings.Replace(job, "job-", "due-", 1)})
	}
	require.NoError(t, r.LPush(ctx, ns+":queue:a", payloads...).Err())
	require.NoError(t, r.ZAdd(ctx, ns+":retry", due...).Err())
	client := redis.NewClient(r.Options())
	t.Cleanup(func() { _ = client.Close() })
	client.AddHook(beside(func(command string) {
		switch command {
		case "lrange":
			require.NoError(t, r.RPopCount(ctx, ns+":queue:a", 20).Err())
		case "zrange", "zscan":
			require.NoError(t, r.ZPopMin(ctx, ns+":retry", 20).Err())
		}
	}))
	d, err := sidekiq.New(client, &sidekiq.Options{Namespace: ns})
	require.NoError(t, err)
	j := &sidekiqJobs{d: d, queue: "a", verb: sidekiqVerbs["jobs delete"],
		s: &session{args: []string{"a", "job-0210", "due-0210", "job-0600", "due-0980"}}}
	found, err := j.jobs(ctx)
	require.NoError(t, err)
	require.Len(t, found, 4)
	for state, kept := range map[string]string{"retry": "due-", "ready": "job-"} {
		j.state, j.s.args = state, []string{"a"}
		found, err = j.jobs(ctx)
		require.NoError(t, err)
		var all []string
		for _, f := range found {
			all = append(all, f.JID)
		}
		for i := 600; i < 1000; i++ {
			require.Contains(t, all, fmt.Sprintf("%s%04d", kept, i))
		}
	}
}

func TestUsageOfTheSidekiqJobs(t *testing.T) {
	t.Parallel()
	for text, args := range map[string]string{
		`no job is "leased"; write ready or scheduled or retry or dead`: "jobs ls mail --state leased",
		"jobs requeue is for jobs that are dead or retry or scheduled":  "jobs requeue mail --all --state ready",
		"--tag: not in the dialect sidekiq7":                            "jobs ls mail --tag x",
		"either ids or --all":                                           "jobs delete mail a --all",
		"--state goes with --all":                                       "jobs delete mail a --state dead",
		"write the queue and the jids":                                  "jobs show mail",
		"the queue is missing":                                          "jobs ls",
		"one queue, but there are 2":                                    "jobs ls mail post",
		"--limit 0 is below 1":                                          "jobs ls mail --limit 0",
		"in this dialect a prefix ends with a colon":                    "jobs ls mail --prefix x",
		"this command takes no arguments":                               "queues ls mail",
		"both --in and --at": "jobs reschedule mail a --in 1s --at " +
			"1900000000500",
		"write --in D or --at T; --in 0s is now": "jobs reschedule mail a",
		"is below zero":                          "jobs reschedule mail a --in -1s",
		"--at: ":                                 "jobs reschedule mail a --at never",
		"is too short":                           "queues ls --watch 1ms",
	} {
		line := append(strings.Fields(args), "--dialect", "sidekiq7")
		_, cmd, err := parseCommand(line, &bytes.Buffer{}, &bytes.Buffer{})
		require.NotNil(t, cmd, args)
		require.ErrorContains(t, err, text, args)
		var usage *usageError
		require.True(t, errors.As(err, &usage), args)
	}
}
