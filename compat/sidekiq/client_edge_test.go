package sidekiq_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/sidekiq"
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
