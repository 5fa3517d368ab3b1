package queue_test

import (
	"bytes"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

func stats(t *testing.T, q *queue.Queue) queue.Stats {
	t.Helper()
	s, err := q.Stats(t.Context())
	require.NoError(t, err)
	return s
}

func TestPeekSeesEveryStateAndTouchesNothing(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	lab.Push(t, q, queue.Job{ID: "leased", Body: []byte("L")}, queue.Job{ID: "dead", Body: []byte("D")})
	leased := lab.TakeOne(t, q)
	require.NoError(t, lab.TakeOne(t, q).Bury(ctx, strings.Repeat("x", 2000)))
	pushed := lab.Push(t, q, queue.Job{ID: "r1", Body: []byte("1")}, queue.Job{ID: "r2"},
		queue.Job{ID: "s", Delay: time.Hour})
	before := lab.Dump(ctx, t, c, q.Name())

	peek := func(state queue.State) queue.Peeked {
		found, err := q.Peek(ctx, state, 0, 1)
		require.NoError(t, err)
		require.Len(t, found, 1, state)
		return found[0]
	}
	ready := peek(queue.Ready)
	require.Equal(t, "r1", ready.ID)
	require.Equal(t, []byte("1"), ready.Body)
	require.Equal(t, pushed.Now, ready.At)
	require.Equal(t, pushed.Now.Add(time.Hour+time.Millisecond), peek(queue.Scheduled).At)
	require.Equal(t, leased.Deadline().Truncate(time.Millisecond), peek(queue.Leased).At)
	dead := peek(queue.Dead)
	require.Equal(t, 1, dead.Failures)
	require.Len(t, dead.Reason, 1024)
	second, err := q.Peek(ctx, queue.Ready, 1, 1000)
	require.NoError(t, err)
	require.Equal(t, "r2", second[0].ID)
	require.Equal(t, before, lab.Dump(ctx, t, c, q.Name()))
	_, err = q.Peek(ctx, queue.Absent, 0, 1)
	require.ErrorContains(t, err, "absent")
}

// A job is found by its id in every state, with all that is kept of it.
func TestFindInEveryState(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, _ := lab.NewQueue(t, nil)
	due := time.UnixMilli(lab.Future)
	lab.Push(t, q, queue.Job{ID: "dead", Body: []byte("D"), Kind: "k"}, queue.Job{ID: "leased"}, queue.Job{ID: "ready"},
		queue.Job{ID: "cancelled"}, queue.Job{ID: "scheduled", At: due})
	require.NoError(t, lab.TakeOne(t, q).Bury(ctx, "why"))
	d := lab.TakeOne(t, q)
	_, err := q.Cancel(ctx, "cancelled")
	require.NoError(t, err)
	found, err := q.Find(ctx, "dead", "leased", "ready", "cancelled", "scheduled", "unknown")
	require.NoError(t, err)
	var states []queue.State
	for _, f := range found {
		states = append(states, f.State)
	}
	require.Equal(t, []queue.State{queue.Dead, queue.Leased, queue.Ready, queue.Absent, queue.Scheduled, queue.Absent},
		states)
	require.Equal(t, queue.Found{State: queue.Dead, Peeked: queue.Peeked{ID: "dead", Body: []byte("D"), At: found[0].At,
		Failures: 1, Reason: "why", Details: queue.Details{Kind: "k"}}}, found[0])
	require.WithinDuration(t, time.Now(), found[0].At, time.Minute)
	require.Equal(t, d.Deadline().Truncate(time.Millisecond), found[1].At)
	require.True(t, found[2].At.IsZero())
	require.Equal(t, queue.Found{State: queue.Absent, Peeked: queue.Peeked{ID: "cancelled"}}, found[3])
	require.Equal(t, due, found[4].At)
}

// A look at large jobs holds the server up no longer than their takes do: one reply has a MiB of bodies at most, or one
// job. All are found, in order.
func TestALookAtLargeJobsIsInSteps(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	direct, _ := lab.NewQueue(t, nil)
	var ids []string
	for i := range 12 {
		ids = append(ids, fmt.Sprintf("job-%02d", i))
		lab.Push(t, direct, queue.Job{ID: ids[i], Body: bytes.Repeat([]byte{'x'}, 400_000)})
	}
	large := bytes.Repeat([]byte{'x'}, 1_000_000)
	ids = append(ids, "large")
	lab.Push(t, direct, queue.Job{ID: "large", Body: large})
	client := luatomictest.Client(t)
	var looks atomic.Int32
	for _, script := range []*lua.Script{&queuescript.PeekScript, &queuescript.FindScript} {
		client.AddHook(&lab.Around{Sha: lab.Digest(script), Do: func(run func() error) error {
			looks.Add(1)
			return run()
		}})
	}
	q := lab.Must(queue.New(client, direct.Name(), nil))
	seen := func(found []queue.Peeked, err error) []string {
		t.Helper()
		require.NoError(t, err)
		require.EqualValues(t, 7, looks.Swap(0), "of two each, and the largest")
		require.Len(t, found[len(found)-1].Body, len(large))
		names := make([]string, len(found))
		for i, f := range found {
			names[i] = f.ID
		}
		return names
	}
	all := func() (out []queue.Peeked, err error) {
		found, err := q.Find(ctx, ids...)
		for _, f := range found {
			out = append(out, f.Peeked)
		}
		return out, err
	}
	require.Equal(t, ids, seen(all()))
	require.Equal(t, ids, seen(q.Peek(ctx, queue.Ready, 0, 100)))
	few, err := q.Peek(ctx, queue.Ready, 1, 4)
	require.NoError(t, err)
	require.Len(t, few, 4)
	require.EqualValues(t, 2, looks.Swap(0))

	_, err = direct.BuryJobs(ctx, "why", ids...)
	require.NoError(t, err)
	require.Equal(t, ids, seen(q.Peek(ctx, queue.Dead, 0, 100)))
}
