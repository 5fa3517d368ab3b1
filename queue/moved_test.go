package queue_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/queue"
)

// fourStates is a queue with a job in each state, named like it.
func fourStates(t *testing.T) *queue.Queue {
	t.Helper()
	q, _ := lab.NewQueue(t, nil)
	lab.Push(t, q, queue.Job{ID: "leased"}, queue.Job{ID: "dead"})
	lab.TakeOne(t, q)
	require.NoError(t, lab.TakeOne(t, q).Bury(t.Context(), "no"))
	lab.Push(t, q, queue.Job{ID: "ready"}, queue.Job{ID: "scheduled", Delay: time.Hour})
	return q
}

// CancelIn, and its sister BuryJobsIn, change the jobs of their states, return the state of all, and leave the others
// as they are.
func TestCancelInLeavesOtherStates(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	all := []queue.State{queue.Ready, queue.Scheduled, queue.Leased, queue.Dead, queue.Absent}
	var ids []string
	for _, state := range all {
		ids = append(ids, string(state))
	}
	for _, state := range all {
		for verb, q := range map[string]*queue.Queue{"cancel": fourStates(t), "bury": fourStates(t)} {
			before := lab.Must(q.Find(ctx, ids...))
			var was []queue.State
			want := state
			if verb == "cancel" {
				was = lab.Must(q.CancelIn(ctx, []queue.State{state}, ids...))
			} else {
				was = lab.Must(q.BuryJobsIn(ctx, []queue.State{state}, "why", ids...))
				if want != queue.Ready && want != queue.Scheduled {
					want = queue.Absent // it buries no other
				}
			}
			require.Equal(t, all, was, verb)
			changed := slices.Index(all, want)
			for i, f := range lab.Must(q.Find(ctx, ids...)) {
				if i != changed || want == queue.Absent || want == queue.Leased {
					require.Equal(t, before[i], f, "%s of %v", verb, state)
					continue
				}
				require.NotEqual(t, before[i].State, f.State, "%s of %v", verb, state)
			}
		}
	}
}

// The mark of a cancelled job is for a leased one that was asked for, and no other.
func TestCancelInMarksNoLeasedJobOfAnotherState(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, _ := lab.NewQueue(t, nil)
	lab.Push(t, q, queue.Job{ID: "j"})
	d := lab.TakeOne(t, q)
	require.Equal(t, []queue.State{queue.Leased}, lab.Must(q.CancelIn(ctx, []queue.State{queue.Ready}, "j")))
	require.NoError(t, d.Extend(ctx, time.Minute))
	require.Equal(t, []queue.State{queue.Leased}, lab.Must(q.CancelIn(ctx, []queue.State{queue.Leased}, "j")))
	require.ErrorIs(t, d.Extend(ctx, time.Minute), queue.ErrCancelled)
}
