package sidekiq_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/compat/sidekiq/internal/script"
	"github.com/luatomic/luatomic/lua"
)

// The longest possible delay is accepted.
func TestLongestDelay(t *testing.T) {
	t.Parallel()
	s := newSite(t, sidekiq.V7)
	for range 10 { // the jitter is large in some runs
		_, err := s.d.PerformIn(t.Context(), math.MaxInt64, sidekiq.Job{Class: "HardJob"})
		require.NoError(t, err)
	}
	all := s.members("schedule")
	require.Len(t, all, 10)
	for _, m := range all {
		require.Greater(t, m.Score, float64(time.Now().AddDate(290, 0, 0).Unix()))
	}
}

// A time with a + is so much later than the server's.
func TestARescheduleFromNow(t *testing.T) {
	t.Parallel()
	f := newFleet(t, sidekiq.Options{})
	f.schedule(sidekiq.Retry, 1, dueOther)
	r, err := script.Reschedule(f.ctx, f.client, script.RescheduleParams{
		Set: f.key("retry"), Receipt: f.key("receipt"), Member: []byte(dueOther), Due: "+3600",
	})
	require.NoError(t, err)
	require.True(t, r.Found)
	score := f.client.ZScore(f.ctx, f.key("retry"), dueOther).Val()
	require.InDelta(t, float64(time.Now().Add(time.Hour).Unix()), score, 60)
	due, err := strconv.ParseFloat(r.Due, 64)
	require.NoError(t, err)
	require.InDelta(t, score, due, 1e-6)
}

// A job that is too large is refused before a step of the call is sent, by its index.
func TestAJobThatIsTooLargeStopsAllSteps(t *testing.T) {
	t.Parallel()
	f := newFleet(t, sidekiq.Options{})
	for _, large := range []sidekiq.Job{
		{Class: "W", Args: json.RawMessage(`["` + strings.Repeat("x", 1<<20) + `"]`)},
		{Class: "W", Queue: strings.Repeat("q", 600<<10)}, // the name is in the payload and in the key
	} {
		jobs := make([]sidekiq.Job, sidekiq.MaxBatch+1)
		for i := range jobs {
			jobs[i].Class = "W"
		}
		jobs[sidekiq.MaxBatch] = large
		_, err := f.d.PushBulk(f.ctx, jobs)
		require.ErrorIs(t, err, lua.ErrTooLarge)
		require.ErrorContains(t, err, "sidekiq: push: job 1000: ")
		require.Zero(t, f.client.Exists(f.ctx, f.key("queue:default")).Val())
	}
}

// The names of queues count: each is a key of the call.
func TestJobsOfQueuesWithLongNamesAreSplit(t *testing.T) {
	t.Parallel()
	f := newFleet(t, sidekiq.Options{})
	jobs := make([]sidekiq.Job, sidekiq.MaxBatch)
	for i := range jobs {
		jobs[i] = sidekiq.Job{Class: "W", Queue: fmt.Sprint(strings.Repeat("q", 600), i)}
	}
	pushed, err := f.d.PushBulk(f.ctx, jobs)
	require.NoError(t, err)
	require.Len(t, pushed.JIDs, len(jobs))
	require.EqualValues(t, len(jobs), f.client.SCard(f.ctx, f.key("queues")).Val())
}
