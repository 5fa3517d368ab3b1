package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// types are the names of an object's fields, each with the type of its value.
func types(o map[string]any) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(o)) {
		all = append(all, fmt.Sprintf("%s %T", name, o[name]))
	}
	return strings.Join(all, ", ")
}

// watched runs a command until a line has those types, and returns the types of all lines.
func (e *env) watched(last string, args ...string) (lines []string) {
	e.t.Helper()
	c := e.start(args...)
	luatomictest.Eventually(e.t, within, "a line has the types "+last, func() bool {
		lines = nil
		for _, o := range c.objects() {
			lines = append(lines, types(o))
		}
		return slices.Contains(lines, last)
	})
	c.signal(os.Interrupt)
	c.exits(exitInterrupted)
	return lines
}

// The fields of stats --watch have their names and types in each line. The rates are null until they are known.
func TestFieldsOfStatsWatch(t *testing.T) {
	t.Parallel()
	e := shared(t)
	e.push("full", queue.Job{}, queue.Job{Delay: time.Hour})
	e.run("queue", "limit", "full", "10").exits(exitDone)
	e.known("empty")
	const counts = "%[1]s float64, failed_per_second %[2]T, lapsed float64, leased float64, limit %[3]T, " +
		"next_due %[3]T, now float64, " +
		"oldest_ms %[3]T, paused bool, processed_per_second %[2]T, pushed_per_second %[2]T, queue string, ready " +
		"float64, " +
		"scheduled float64"
	line := func(rate, value any) string {
		return fmt.Sprintf(counts, "consumers float64, dead float64, dead_bytes", rate, value)
	}
	lines := e.watched(line(1.0, nil), "stats", "full", "empty", "--watch", "100ms")
	require.Equal(t, []string{line(nil, 1.0), line(nil, nil)}, lines[:2],
		"the queues come in the order of the arguments")
	for i, got := range lines {
		value := []any{1.0, nil}[i%2]
		require.Contains(t, []string{line(nil, value), line(1.0, value)}, got)
	}
	once := e.run("stats", "full").exits(exitDone).object()
	require.NotContains(t, types(once), "per_second")
	require.Contains(t, types(once), "limit float64")
}

func TestFieldsOfStatsWatchOfSidekiq(t *testing.T) {
	t.Parallel()
	e := shared(t)
	e.with(`{"class":"A","queue":"a"}`).run("push", "a", "--dialect=sidekiq7").exits(exitDone)
	line := func(rate any) string {
		return fmt.Sprintf("dead float64, failed float64, failed_per_second %[1]T, now float64, processed float64, "+
			"processed_per_second %[1]T, processes float64, retries float64, scheduled float64", rate)
	}
	const ofQueue = "latency_ms float64, queue string, ready float64"
	lines := e.watched(line(1.0), "stats", "--dialect=sidekiq7", "--watch", "100ms")
	require.Equal(t, []string{line(nil), ofQueue}, lines[:2])
	for _, got := range lines {
		require.Contains(t, []string{line(nil), line(1.0), ofQueue}, got)
	}
}
