package sidekiq_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/compat/sidekiq/internal/script"
	"github.com/luatomic/luatomic/luatomictest"
)

// A take whose reply was lost is retried after another process has put back some of its jobs: the retry returns the
// jobs that are left in the hash, and overwrites none.
func TestATakeWritesOverNoJobInHand(t *testing.T) {
	t.Parallel()
	c, ctx := luatomictest.Client(t), t.Context()
	p := luatomictest.Namespace(t) + ":"
	require.NoError(t, handed(ctx, c, p))
	left := inFlightOf(p, "b", `{"jid":"left"}`)
	require.NoError(t, c.HSet(ctx, p+"working", "11", left).Err())
	params := takeParams(p)
	params.First, params.Want = 10, 3
	r, err := script.WorkerTake(ctx, c, params)
	require.NoError(t, err)
	require.Equal(t, left, c.HGet(ctx, p+"working", "11").Val())
	require.Equal(t, []script.WorkerTakeJob{{ID: 11, Queue: p + "queue:b", Payload: []byte(`{"jid":"left"}`)}}, r.Jobs)
	require.EqualValues(t, 3, c.LLen(ctx, p+"queue:a").Val(), "the others are for the next take")

	params.First = 12
	r, err = script.WorkerTake(ctx, c, params)
	require.NoError(t, err)
	require.Len(t, r.Jobs, 3)
}

// A handler that ends its goroutine, as require does in a test, has failed; its slot is free again.
func TestHandlersThatEndTheirGoroutine(t *testing.T) {
	t.Parallel()
	s := newSite(t, sidekiq.V7)
	s.enqueue("default", payload("default", "a", ""), payload("default", "b", ""))
	end := s.work(s.d, &sidekiq.WorkOptions{Concurrency: 1, Grace: 50 * time.Millisecond}, func(_ context.Context, j *sidekiq.Delivery) error {
		if j.JID == "a" {
			runtime.Goexit()
		}
		return nil
	})
	s.eventually("both are done", func() bool { return s.count("stat:processed") == 2 })
	require.Equal(t, sidekiq.Worked{Done: 1, Retried: 1}, end())
	require.Contains(t, s.members("retry")[0].Member, `"jid":"a"`)
}
