package queue_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// A call that names a state is sent a second time, and a network may keep the copy for a while: it has the answer of
// the first, and changes nothing, neither at once nor after a later call.
func TestALateCopyUndoesNoLaterCall(t *testing.T) {
	t.Parallel()
	at := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	reschedules := func(id string, at time.Time) func(context.Context, *queue.Queue) error {
		return func(ctx context.Context, q *queue.Queue) error { _, err := q.Reschedule(ctx, id, at); return err }
	}
	limits := func(n int) func(context.Context, *queue.Queue) error {
		return func(ctx context.Context, q *queue.Queue) error { return q.SetLimit(ctx, n) }
	}
	pauses := func(ctx context.Context, q *queue.Queue) error { return q.Pause(ctx) }
	resumes := func(ctx context.Context, q *queue.Queue) error { return q.Resume(ctx) }
	pushes := func(ctx context.Context, q *queue.Queue) error {
		_, err := q.Push(ctx, queue.Job{ID: "new", At: at})
		return err
	}
	requeues := func(ctx context.Context, q *queue.Queue) error {
		if n, err := q.Requeue(ctx, "b", "held", "none"); n != 1 {
			return fmt.Errorf("requeued %d: %w", n, err)
		}
		return nil
	}
	buries := func(ctx context.Context, q *queue.Queue) error { _, err := q.BuryJobs(ctx, "again", "b"); return err }
	hour := at.Add(time.Hour)
	for name, test := range map[string]struct {
		call, then func(context.Context, *queue.Queue) error
		answer     string
	}{
		"reschedule":           {reschedules("s", at), reschedules("s", hour), fmt.Sprintf("[1 %d]", at.UnixMilli())},
		"reschedule of no job": {reschedules("new", hour), pushes, "[0 <nil>]"},
		"pause":                {pauses, resumes, "[1 3]"},
		"resume":               {resumes, pauses, "[0 3]"},
		"limit":                {limits(9), limits(8), "[0 9]"},
		"requeue":              {requeues, buries, "[1 [held 1:n:e]]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			direct, c := lab.NewQueue(t, nil)
			require.NoError(t, direct.SetLimit(ctx, 3))
			lab.Push(t, direct, queue.Job{ID: "s", At: at.Add(time.Minute)}, queue.Job{ID: "held", Unique: "u"},
				queue.Job{ID: "b"})
			require.NoError(t, lab.TakeOne(t, direct).Bury(ctx, "why"))
			require.NoError(t, lab.TakeOne(t, direct).Bury(ctx, "why"))
			if name == "requeue" {
				lab.Push(t, direct, queue.Job{ID: "1:n:e", Unique: "u", Delay: time.Hour})
			}
			q, copied := copies(t, direct)
			require.NoError(t, test.call(ctx, q))
			late := copied()
			before := lab.Dump(ctx, t, c, q.Name())
			require.Equal(t, test.answer, fmt.Sprint(c.Do(ctx, late...).Val()))
			require.Equal(t, before, lab.Dump(ctx, t, c, q.Name()), "a repeat")

			require.NoError(t, test.then(ctx, direct))
			before = lab.Dump(ctx, t, c, q.Name())
			require.Equal(t, test.answer, fmt.Sprint(c.Do(ctx, late...).Val()))
			require.Equal(t, before, lab.Dump(ctx, t, c, q.Name()), "a late copy")
		})
	}
}

// copies is the same queue, and the last script that it has sent.
func copies(t *testing.T, q *queue.Queue) (*queue.Queue, func() []any) {
	t.Helper()
	var last []any
	c := luatomictest.Client(t)
	c.AddHook(lab.Before(func(cmds ...redis.Cmder) {
		if strings.HasPrefix(cmds[0].Name(), "eval") {
			last = slices.Clone(cmds[0].Args())
		}
	}))
	same, err := queue.New(c, q.Name(), nil)
	require.NoError(t, err)
	return same, func() []any { require.NotEmpty(t, last); return last }
}
