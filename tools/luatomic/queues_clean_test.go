package main

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// What was deleted or repaired is printed where a command is interrupted half-way.
func TestAnInterruptedChangeOfAQueuePrintsWhatItHasDone(t *testing.T) {
	t.Parallel()
	e := shared(t)
	e.pushMany("trimmed", "j", 500, queue.Job{})
	e.run("jobs", "bury", "trimmed", "--all").exits(exitDone)
	out := e.interrupted("trimmed", &queuescript.TrimScript, func(ctx context.Context, s *session,
		q *queue.Queue) error {
		return trim(ctx, s, q, queue.DeadLimits{Jobs: 1})
	})
	holds(t, out, map[string]any{"queue": "trimmed", "deleted": 200, "dead": nil, "dead_bytes": nil})
	require.Equal(t, 300, e.stats("trimmed").Dead)

	e.pushMany("lost", "j", 500, queue.Job{Delay: time.Hour})
	require.NoError(t, luatomictest.Client(t).Del(t.Context(), e.prefix+"{lost}:s").Err())
	out = e.interrupted("lost", &queuescript.MendScript, func(ctx context.Context, s *session, q *queue.Queue) error {
		return audit(ctx, s, q, true)
	})
	require.Nil(t, out["ok"])
	require.Positive(t, out["repaired"])
	require.EqualValues(t, e.stats("lost").Ready, out["repaired"])
}

// interrupted returns what a command prints whose second call of the script is interrupted.
func (e *env) interrupted(name string, script *lua.Script,
	run func(context.Context, *session, *queue.Queue) error) (out map[string]any) {
	e.t.Helper()
	ctx, cancel := context.WithCancel(e.t.Context())
	client, calls := luatomictest.Client(e.t), 0
	client.AddHook(&lab.Around{Sha: lab.Digest(script), Do: func(run func() error) error {
		if calls++; calls < 2 {
			return run()
		}
		cancel()
		return context.Canceled
	}})
	q, err := queue.New(client, name, &queue.Options{Prefix: e.prefix})
	require.NoError(e.t, err)
	var text bytes.Buffer
	require.ErrorIs(e.t, run(ctx, newSession(&text, &text), q), context.Canceled)
	require.NoError(e.t, json.Unmarshal(text.Bytes(), &out), text.String())
	return out
}
