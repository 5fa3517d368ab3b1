package decline_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/decline"
)

func TestADeclinedJobNamesItsCause(t *testing.T) {
	t.Parallel()
	cause := errors.New("no such kind")
	err := fmt.Errorf("wrapped: %w", decline.New(cause))
	require.ErrorIs(t, err, decline.Err)
	require.ErrorIs(t, err, cause)
	require.EqualError(t, err, "wrapped: declined: no such kind")
	require.ErrorIs(t, decline.New(nil), decline.Err)
	require.ErrorContains(t, decline.New(nil), "no reason given")
	require.NotErrorIs(t, cause, decline.Err)
}

func TestCountsAreReportedAtPowersOfTen(t *testing.T) {
	t.Parallel()
	var c decline.Counts
	var reported []int
	for range 1234 {
		if n, report := c.Add("a"); report {
			reported = append(reported, n)
		}
	}
	require.Equal(t, []int{1, 10, 100, 1000}, reported)
	n, report := c.Add("b")
	require.Equal(t, 1, n)
	require.True(t, report, "each cause has its own count")
	for i := range 5000 {
		c.Add(fmt.Sprint(i))
	}
	n, _ = c.Add("a")
	require.Less(t, n, 1234, "the counts are bounded")
}
