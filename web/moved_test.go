package web_test

import (
	"context"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/queue"
)

// move is a change of a job, and how the job leaves the state in which it was seen.
type move struct {
	verb, state string
	leaves      func(q *queue.Queue) error
	taken       bool // by a worker, then
	all         bool // the change is one of all jobs
}

// A job that leaves its state between the look of a change and its write stays as it is: what a worker has taken by
// then runs to its end, and what has become ready is not buried as a scheduled one.
func TestAChangeTouchesNoJobThatHasMovedOn(t *testing.T) {
	t.Parallel()
	due := func(q *queue.Queue) error {
		_, err := q.Reschedule(context.Background(), "job", time.UnixMilli(1))
		if err == nil {
			_, err = q.Promote(context.Background())
		}
		return err
	}
	requeued := func(q *queue.Queue) error {
		_, err := q.Requeue(context.Background(), "job")
		return err
	}
	taken := func(*queue.Queue) error { return nil }
	for _, m := range []move{
		{"cancel", "ready", taken, true, false}, {"cancel", "ready", taken, true, true},
		{"cancel", "scheduled", due, true, false}, {"cancel", "scheduled", due, true, true},
		{"cancel", "scheduled", due, false, false}, {"bury", "scheduled", due, false, false},
		{"delete", "dead", requeued, true, false}, {"delete", "dead", requeued, false, true},
	} {
		moved := 0
		for after := range int32(8) {
			if m.movesAfter(t, after) {
				moved++
			}
		}
		require.NotZero(t, moved, "%v", m)
	}
}

// movesAfter makes the change while the job leaves after so many commands, and reports whether it left first.
func (m move) movesAfter(t *testing.T, after int32) bool {
	t.Helper()
	var taken []*queue.Delivery
	s := siteBeside(t, func(s *site, n int32) {
		if n != after {
			return
		}
		q := s.queue("mail")
		require.NoError(t, m.leaves(q))
		if m.taken {
			out, err := q.Take(context.Background(), 1)
			require.NoError(t, err)
			taken = out.Deliveries
		}
	})
	q, job := s.queue("mail"), queue.Job{ID: "job"}
	switch m.state {
	case "dead":
		s.bury(q, "why", job)
	case "scheduled":
		job.Delay = time.Hour
		fallthrough
	default:
		_, err := q.Push(t.Context(), job)
		require.NoError(t, err)
	}
	form := url.Values{"verb": {m.verb}, "state": {m.state}, "id": {"job"}, "confirm": {"1"}}
	if m.all {
		form = url.Values{"all": {m.verb}, "state": {m.state}, "confirm": {"1"}}
	}
	answer := s.do(http.MethodPost, "/jobs.json?name=mail", form)
	found, err := q.Find(t.Context(), "job")
	require.NoError(t, err)
	if len(taken) == 0 && (m.taken || found[0].State != queue.Ready) {
		require.Equal(t, http.StatusOK, answer.code, "it is changed before it leaves: %s", answer.body)
		return false
	}
	require.NoError(t, q.Extend(t.Context(), time.Minute, taken...), "%v, after %d: %s", m, after, answer.body)
	if !m.all {
		require.Equal(t, http.StatusConflict, answer.code, "%v, after %d: %s", m, after, answer.body)
	}
	return true
}
