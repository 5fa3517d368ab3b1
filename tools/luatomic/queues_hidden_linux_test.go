package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// A queue that cannot be shown, such as one of a later layout, hides no other.
func TestQueueThatCannotBeShownHidesNoOther(t *testing.T) {
	t.Parallel()
	e, r := shared(t), luatomictest.Client(t)
	e.known("a", "b", "c")
	require.NoError(t, r.HSet(t.Context(), e.prefix+"{b}:c", "paused", "layout 2").Err())
	for _, args := range []string{"queues ls", "stats a b c", "stats none a c"} {
		c := e.run(strings.Fields(args)...).exits(exitFailed)
		all := c.objects()
		require.Len(t, all, 2, args)
		require.Equal(t, []any{"a", "c"}, []any{all[0]["queue"], all[1]["queue"]}, args)
		require.Equal(t, 1, strings.Count(c.stderr.String(), "\n"), c.stderr.String())
	}
	p := e.onTerminal(100, 20, "queues", "ls")
	p.ends(exitFailed)
	require.Regexp(t, `(?s)QUEUE .*\na .*\nc .*later layout`, p.picture.String())

	reader := newTopReader(r, e.prefix)
	reader.read(t.Context())
	require.NoError(t, reader.view.queues.err)
	picture := topPicture{view: reader.view}
	text := strings.Join(picture.lines(100, 20, reader.view.at), "\n")
	require.Regexp(t, `(?s)\na +0 .*\nb +hidden +- .*\nc +0 `, text)

	require.NoError(t, r.HSet(t.Context(), e.prefix+"{a}:c", "paused", "layout 2").Err())
	require.Contains(t, e.run("queues", "ls").exits(exitFailed).stderr.String(),
		"queues that cannot be shown: 2, the first: ")
	require.NoError(t, r.HSet(t.Context(), e.prefix+"{c}:c", "paused", "layout 2").Err())
	reader.read(t.Context())
	require.ErrorContains(t, reader.view.queues.err, "later layout")
}

// A queue that cannot be shown does not end the watch of the others. It is reported once, and again after it was shown.
func TestAWatchGoesOnPastAQueueThatCannotBeShown(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"queues", "ls", "--watch", "20ms"}, {"stats", "a", "b", "--watch", "20ms"}} {
		e, r := shared(t), luatomictest.Client(t)
		e.push("a", queue.Job{})
		e.push("b", queue.Job{})
		later := func() { require.NoError(t, r.HSet(t.Context(), e.prefix+"{b}:c", "paused", "layout 2").Err()) }
		later()
		c := e.start(args...)
		lines := func(least int) {
			luatomictest.Eventually(t, within, "it prints on", func() bool { return len(c.objects()) >= least })
		}
		lines(5)
		require.NoError(t, r.HDel(t.Context(), e.prefix+"{b}:c", "paused").Err())
		luatomictest.Eventually(t, within, "it shows the other queue", func() bool {
			return slices.ContainsFunc(c.objects(), func(o map[string]any) bool { return o["queue"] == "b" })
		})
		later()
		luatomictest.Eventually(t, within, "it is said again", func() bool {
			return strings.Count(c.stderr.String(), "LAYOUT") == 2
		})
		lines(len(c.objects()) + 3)
		require.Equal(t, 2, strings.Count(c.stderr.String(), "LAYOUT"), c.stderr.String())
		c.signal(syscall.SIGINT)
		c.exits(exitInterrupted)
	}
	e := shared(t)
	e.push("a", queue.Job{})
	require.Contains(t, e.run("stats", "a", "aa", "--watch").exits(exitFailed).stderr.String(), `no queue "aa"`)
	require.NoError(t, luatomictest.Client(t).HSet(t.Context(), e.prefix+"{a}:c", "paused", "layout 2").Err())
	require.Contains(t, e.run("stats", "a", "--watch").exits(exitFailed).stderr.String(), "LAYOUT")
}

// Ctrl-C while the answer about a queue that cannot be shown is under way is an interrupt, not that queue's error.
func TestAnInterruptOfAWatchIsNoErrorOfAQueue(t *testing.T) {
	t.Parallel()
	errLater := errors.New("the queue has a later layout")
	for _, first := range []bool{true, false} {
		stop, end := context.WithCancel(t.Context())
		s := &session{signals: &signals{stop: stop}}
		reads, said := 0, strings.Builder{}
		s.stderr = &said
		err := s.again(&interval{on: true, every: time.Millisecond}, func() error {
			if reads++; first || reads == 3 {
				end()
			}
			return &hiddenQueues{n: 1, of: 2, first: fmt.Errorf("after %d tries: %w", reads, errLater)}
		})
		require.ErrorIs(t, err, errInterrupted)
		require.Equal(t, !first, strings.Count(said.String(), errLater.Error()) == 1, said.String())
	}
}
