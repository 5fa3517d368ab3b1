package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/testdata"
)

// proves checks the objects of a demo of n jobs, some of them delayed.
func proves(t *testing.T, c *cli, jobs, delayed int) {
	t.Helper()
	all := c.exits(exitDone).objects()
	require.Len(t, all, 6)
	for i, name := range []string{"server", "push", "promote", "work", "call", "totals"} {
		holds(t, all[i], map[string]any{"step": i + 1, "name": name})
		require.Contains(t, c.stderr.String(), fmt.Sprintf("\n%d. ", i+1))
	}
	abandoned := min(jobs, crashJobs)
	holds(t, all[1], map[string]any{"ready": jobs - delayed, "scheduled": delayed, "duplicates": 0, "added_again": 0})
	holds(t, all[2], map[string]any{"moved": delayed, "early": 0})
	holds(t, all[3], map[string]any{"finished": jobs, "abandoned": abandoned, "retaken": abandoned,
		"second_try_refused": true})
	holds(t, all[4], map[string]any{"result": jobs, "no_responder": true})
	holds(t, all[5], map[string]any{"pushed": jobs, "done": jobs, "lost": 0, "twice": 0, "keys_left": 0})
}

// sample counts the jobs of the demo's own input.
func sample() (jobs, delayed int) {
	return strings.Count(testdata.Jobs, "\n"), strings.Count(testdata.Jobs, `,"delay":"`)
}

func TestDemoPrivate(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	e := &env{t: t, extra: []string{"TMPDIR=" + dir}}
	jobs, delayed := sample()
	require.Greater(t, delayed, 10)
	for range 2 {
		start := time.Now()
		c := e.run("demo")
		proves(t, c, jobs, delayed)
		require.Contains(t, c.stderr.String(), " on a private socket in "+dir)
		require.Less(t, time.Since(start), within)
		empty(t, dir)
	}
}

func TestDemoEmbedded(t *testing.T) {
	t.Parallel()
	c := (&env{t: t, extra: []string{"PATH="}}).run("demo")
	jobs, delayed := sample()
	proves(t, c, jobs, delayed)
	require.Contains(t, c.stderr.String(), "miniredis")
}

// A server that does not start is no reason to give up.
func TestDemoBrokenServer(t *testing.T) {
	t.Parallel()
	dir, temp := t.TempDir(), shortDir(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "redis-server"),
		[]byte("#!/bin/sh\necho no license >&2\nexit 1\n"), 0o700))
	c := (&env{t: t, extra: []string{"PATH=" + dir + ":/bin", "TMPDIR=" + temp}}).run("demo")
	jobs, delayed := sample()
	proves(t, c, jobs, delayed)
	require.Contains(t, c.stderr.String(), "redis-server does not start (it ended while starting: no license)")
	empty(t, temp)
}

func TestDemoOnYourServer(t *testing.T) {
	t.Parallel()
	e := shared(t)
	file := filepath.Join(t.TempDir(), "jobs.ndjson")
	require.NoError(t,
		os.WriteFile(file, []byte(strings.Repeat("{\"body\":\"x\"}\n", 1500)+`{"body":1,"delay":"100ms"}`), 0o600))
	proves(t, e.run("demo", "--file", file), 1501, 1)
	require.NoError(t, os.WriteFile(file, []byte(`{"body":1}`), 0o600))
	proves(t, e.run("demo", "--file", file), 1, 0)
	left, err := luatomictest.Client(t).Keys(t.Context(), "*"+e.prefix+"*").Result()
	require.NoError(t, err)
	require.Empty(t, left)
}

// The demo of a user that may not use its prefix says that alone.
func TestDemoOfALimitedUser(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	rules := []any{"ACL", "SETUSER", "app", "on", ">pw", "~app:*", "&app:*", "+@all"}
	require.NoError(t, server.Client().Do(t.Context(), rules...).Err())
	e := &env{t: t, url: strings.Replace(server.URL(), "redis://", "redis://app:pw@", 1)}
	c := e.run("demo").exits(exitFailed)
	require.Contains(t, c.stderr.String(), "NOPERM")
	require.NotContains(t, c.stderr.String(), "cannot delete")
}

func TestDemoBadFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "jobs.ndjson")
	e := &env{t: t}
	for text, says := range map[string]string{
		"":                           "has no job in it",
		"{\"body\":1}\n\n{\"id\":1}": `line 3: "id" is not a string`,
	} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		c := e.run("demo", "--file", file).exits(exitFailed)
		require.Contains(t, c.stderr.String(), file)
		require.Contains(t, c.stderr.String(), says)
	}
	require.Contains(t, e.run("demo", "--file", file+".none").exits(exitFailed).stderr.String(), file+".none")
}

// An interrupt in any step leaves nothing behind.
func TestDemoInterrupted(t *testing.T) {
	t.Parallel()
	for step := 1; step <= 4; step++ {
		dir := shortDir(t)
		private := &env{t: t, extra: []string{"TMPDIR=" + dir}}
		yours := shared(t)
		for _, e := range []*env{private, yours} {
			// A demo can be over before this test has seen where it is.
			luatomictest.Eventually(t, within, "an interrupt comes in time", func() bool {
				c := e.start("demo")
				c.shows(fmt.Sprintf("\n%d. ", step))
				_ = c.cmd.Process.Signal(os.Interrupt)
				if c.wait(); len(c.objects()) == 6 {
					return false
				}
				c.exits(exitInterrupted)
				return true
			})
		}
		empty(t, dir)
		left, err := luatomictest.Client(t).Keys(t.Context(), "*"+yours.prefix+"*").Result()
		require.NoError(t, err)
		require.Empty(t, left, "step %d", step)
	}
}

// shortDir is a folder whose name leaves room for a socket's.
func shortDir(t *testing.T) string {
	dir, err := os.MkdirTemp("", "cli-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func empty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}

// The sample is what the demo says it is: Sidekiq's payloads with their bytes.
func TestSample(t *testing.T) {
	t.Parallel()
	jobs, err := demoJobs("")
	require.NoError(t, err)
	n, delayed := sample()
	require.Len(t, jobs, n)
	ids, later := map[string]bool{}, 0
	for _, job := range jobs {
		ids[job.ID] = true
		require.Contains(t, string(job.Body), `"class":"HardJob"`)
		if job.Delay > 0 {
			later++
			require.LessOrEqual(t, job.Delay, 1500*time.Millisecond)
		}
	}
	require.Len(t, ids, n)
	require.Equal(t, delayed, later)
}
