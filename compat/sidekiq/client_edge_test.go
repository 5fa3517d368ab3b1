package sidekiq_test

import (
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/compat/sidekiq/internal/script"
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
