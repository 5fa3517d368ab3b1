//go:build interop

package sidekiq_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/sidekiq"
)

// The steps of docs/sidekiq-rails.md that move one queue from Ruby to Go, in order, each with its way back. Of all
// jobs none is lost and none runs twice: nothing is killed here.
func TestInteropMovingOneQueueOver(t *testing.T) {
	withEach(t, func(t *testing.T, s *shop) {
		ctx := t.Context()
		sent := 0
		enqueue := func(op, queue string, n int) {
			t.Helper()
			for range n {
				sent++
				args := []any{sent}
				if op == "Ruby" {
					s.ask("perform_async", map[string]any{"queue": queue, "args": [][]any{args}}, nil)
					continue
				}
				_, err := s.d.PushOnce(ctx, fmt.Sprint(sent), time.Minute, []sidekiq.Job{
					{Class: "InteropJob", Queue: queue, Args: json.RawMessage(fmt.Sprint("[", sent, "]"))},
				})
				require.NoError(t, err)
			}
		}
		inGo := newDiary()
		total := func() int {
			_, runs := inGo.total()
			return len(s.performed()) + runs
		}
		drained := func() { t.Helper(); s.soon("all have run", func() bool { return total() == sent }) }
		endRuby := s.worker("default", "go_mail")

		// 1. Go enqueues, Ruby performs.
		enqueue("Ruby", "default", 5)
		enqueue("Go", "default", 5)
		drained()
		require.Len(t, s.performed(), 10)

		// 2. A Go poller beside Ruby's; then stopped again.
		polling, stopPolling := context.WithCancel(ctx)
		polled := make(chan error, 1)
		go func() { polled <- s.d.NewPoller(nil).Run(polling) }()
		var jids struct{ JIDs []string }
		s.ask("perform_in", map[string]any{"in": 1.0, "args": [][]any{{1}, {2}, {3}}}, &jids)
		sent += 3
		drained()
		stopPolling()
		<-polled
		require.Zero(t, s.client.Exists(ctx, "schedule:quarantine", "retry:quarantine").Val())

		// 3. The class goes to a queue of its own, still served by Ruby.
		enqueue("Ruby", "go_mail", 5)
		drained()

		// 4. Go serves that queue too; and leaves again: what is queued then is Ruby's.
		serve := func(handle sidekiq.Handler) func() sidekiq.Worked {
			return s.work(s.d, &sidekiq.WorkOptions{
				WebUI: true, Lease: 600 * time.Millisecond, Queues: []sidekiq.Queue{{Name: "go_mail"}},
			}, handle)
		}
		endGo := serve(inGo.note)
		enqueue("Ruby", "go_mail", 20)
		drained()
		endGo()
		before := len(s.performed())
		enqueue("Go", "go_mail", 3)
		drained()
		require.Len(t, s.performed(), before+3, "the way back")

		// 5. Ruby ends quietly and comes back without the queue: it is Go's alone.
		endGo = serve(inGo.note)
		endRuby()
		endRuby = s.worker("default")
		before = len(s.performed())
		enqueue("Ruby", "go_mail", 10)
		enqueue("Ruby", "default", 2)
		drained()
		require.Len(t, s.performed(), before+2)
		endGo()
		endRuby()

		// 6. Ruby polls once an hour; what fails in Go comes back by Go's poller.
		s.interval = "3600"
		endRuby = s.worker("default")
		s.poll(nil)
		endGo = serve(failingFirst(inGo.note))
		enqueue("Ruby", "go_mail", 2)
		s.soon("both have failed", func() bool { return s.count("stat:failed") == 2 })
		for _, z := range s.members("retry") {
			member, _ := z.Member.(string)
			jid := jidOf(t, member)
			_, _, err := s.d.Reschedule(ctx, sidekiq.Ref{Set: sidekiq.Retry, JID: jid, Score: z.Score}, time.Now())
			require.NoError(t, err)
		}
		drained()
		endGo()
		endRuby()
		require.Equal(t, sent, total(), "each once")
		require.Empty(t, s.members("retry"))
		require.Equal(t, sent+2, s.count("stat:processed"), "the failures too")
	})
}

// failingFirst fails each job once.
func failingFirst(next sidekiq.Handler) sidekiq.Handler {
	return func(ctx context.Context, j *sidekiq.Delivery) error {
		if j.Retried == 0 {
			return errors.New("the first time")
		}
		return next(ctx, j)
	}
}

func jidOf(t *testing.T, payload string) string {
	t.Helper()
	var job struct{ JID string }
	require.NoError(t, json.Unmarshal([]byte(payload), &job))
	return job.JID
}
