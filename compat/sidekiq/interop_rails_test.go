//go:build interop

package sidekiq_test

import (
	"context"
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/internal/testkit/subprocess"
)

// openRails returns a shop with the system's Ruby, its Active Job and its sidekiq-cron.
func openRails(t *testing.T) *shop {
	t.Helper()
	t.Parallel()
	ruby := subprocess.Find(t, "apt-get install ruby-activejob ruby-sidekiq-cron", []string{
		"ruby", "-e", `require "sidekiq"; require "active_job"; require "sidekiq-cron"`,
	})
	return openShop(t, ruby)
}

// The real Active Job enqueues, Go performs with typed arguments.
func TestInteropGoPerformsActiveJobs(t *testing.T) {
	s := openRails(t)
	var enqueued struct{ ID, JID string }
	s.ask("greet", map[string]any{"user": 7, "text": "é <\"\\>\u2028"}, &enqueued)
	got := make(chan *sidekiq.Delivery, 1)
	s.work(s.d, &sidekiq.WorkOptions{Queues: []sidekiq.Queue{{Name: "mail"}}}, sidekiq.Handlers{
		"GreetJob": func(_ context.Context, j *sidekiq.Delivery) error {
			got <- j
			return nil
		},
	}.Perform)
	j := <-got
	require.Equal(t, enqueued.JID, j.JID)
	job, err := j.ActiveJob()
	require.NoError(t, err)
	require.Equal(t, enqueued.ID, job.ID)
	var user sidekiq.GlobalID
	var text string
	var factor float64
	var at time.Time
	var options struct {
		Urgent bool
		Kind   sidekiq.Symbol
	}
	require.NoError(t, job.Scan(&user, &text, &factor, &at, &options))
	require.Equal(t, sidekiq.GlobalID("gid://shop/User/7"), user)
	require.Equal(t, []any{"é <\"\\>\u2028", 2.0, true, sidekiq.Symbol("soon")},
		[]any{text, factor, options.Urgent, options.Kind})
	require.True(t, time.UnixMilli(1_795_230_010_500).Equal(at), at)
	require.WithinDuration(t, time.Now(), job.EnqueuedAt, time.Minute)
}

// Go enqueues, the real Active Job performs: records are found, keywords and symbols are what they were.
func TestInteropActiveJobPerformsWhatGoEnqueues(t *testing.T) {
	s := openRails(t)
	at := time.UnixMilli(1_795_230_010_500)
	args, err := sidekiq.Args(sidekiq.GlobalID("gid://shop/User/7"), "é <\"\\>\u2028", 2.0, sidekiq.RubyTime{Time: at},
		sidekiq.Keywords{"urgent": true, "kind": sidekiq.Symbol("soon")})
	require.NoError(t, err)
	for _, in := range []time.Duration{0, time.Second} {
		job, err := sidekiq.ActiveJob{Class: "GreetJob", Queue: "mail", Arguments: args, ID: "from-go"}.Job()
		require.NoError(t, err)
		job.In = in
		_, err = s.d.Push(t.Context(), job)
		require.NoError(t, err)
	}
	application, err := filepath.Abs(filepath.Join("testdata", "ruby", "active.rb"))
	require.NoError(t, err)
	subprocess.Start(t, s.command("worker.rb", "-c", "2", "-q", "mail", "-r", application))
	s.soon("Active Job has performed both", func() bool { return s.client.LLen(t.Context(), "greeted").Val() == 2 })
	want, err := json.Marshal([]any{"User", "7", "é <\"\\>\u2028", 2, at.UTC().Format("2006-01-02T15:04:05.000Z"),
		true, ":soon", "from-go"})
	require.NoError(t, err)
	for _, note := range s.client.LRange(t.Context(), "greeted", 0, -1).Val() {
		require.JSONEq(t, string(want), note)
	}
	require.Empty(t, s.members("retry"))
}

// Schedules of sidekiq-cron stay what they are beside a Go poller and worker, and what they enqueue runs in Go.
func TestInteropSchedulesOfSidekiqCronStayIntact(t *testing.T) {
	s := openRails(t)
	ctx := t.Context()
	for _, name := range []string{"a", "b"} {
		s.ask("cron", map[string]any{"name": name}, nil)
	}
	snapshot := func() map[string]string {
		all := map[string]string{}
		for _, key := range s.client.Keys(ctx, "cron_job*").Val() {
			all[key] = s.client.Dump(ctx, key).Val()
		}
		return all
	}
	before := snapshot()
	require.GreaterOrEqual(t, len(before), 3, "the set of names, and each schedule")
	d := newDiary()
	s.poll(&sidekiq.PollerOptions{Idle: 10 * time.Millisecond})
	end := s.work(s.d, &sidekiq.WorkOptions{WebUI: true, Queues: []sidekiq.Queue{{Name: "cron"}}}, d.note)
	_, err := s.d.Push(ctx, sidekiq.Job{Class: "InteropJob", Queue: "cron", In: 500 * time.Millisecond})
	require.NoError(t, err)
	s.soon("the poller has moved a job", func() bool { return s.count("stat:processed") == 1 })
	require.Equal(t, before, snapshot())
	s.ask("cron_due", map[string]any{"name": "a"}, nil)
	s.soon("Go has performed what is due", func() bool { return s.count("stat:processed") == 2 })
	end()
	names, err := s.client.SMembers(ctx, "cron_jobs").Result()
	require.NoError(t, err)
	require.Len(t, names, 2)
	args := map[string]bool{}
	for _, list := range d.args {
		args[list] = true
	}
	require.Equal(t, map[string]bool{`[]`: true, `["a"]`: true}, args)
}
