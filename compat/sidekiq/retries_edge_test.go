package sidekiq_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/sidekiq"
)

// Jobs with absurd counts and delays are moved like others: the process does not end, and no handler slot stays
// taken.
func TestRetriesOfOddCounts(t *testing.T) {
	t.Parallel()
	for _, version := range []sidekiq.Version{sidekiq.V6, sidekiq.V7} {
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			t.Parallel()
			s := newSite(t, version)
			counts := []string{"-1", "-5", "-9223372036854775808", "400", "60000", "9223372036854775807", "1e3", "{}"}
			for i, count := range counts {
				s.enqueue("default", payload("default", fmt.Sprint("job", i), `,"retry":9223372036854775807,"retry_count":`+count))
			}
			s.enqueue("default", payload("default", "long", `,"retry_for":9223372036854775807`))
			s.enqueue("default", payload("default", "in", ""))
			end := s.work(s.d, nil, func(_ context.Context, j *sidekiq.Delivery) error {
				err := errors.New("no")
				if j.JID == "in" {
					return sidekiq.RetryIn(math.MaxInt64, err)
				}
				return err
			})
			s.eventually("all have failed", func() bool {
				return len(s.members("retry"))+len(s.members("dead")) == len(counts)+2
			})
			worked := end()
			require.Equal(t, len(counts)+2, worked.Retried+worked.Dead)
			for _, m := range s.members("retry") {
				require.Greater(t, m.Score, float64(time.Now().Add(-time.Minute).Unix()), m.Member)
				require.NotContains(t, m.Member, `"retry_count":-`)
			}
		})
	}
}

// RetryIn, Kill and Discard work with a nil error too.
func TestVerdictsWithoutAReason(t *testing.T) {
	t.Parallel()
	s := newSite(t, sidekiq.V7)
	for _, jid := range []string{"kill", "discard", "in"} {
		s.enqueue("default", payload("default", jid, ""))
	}
	end := s.work(s.d, nil, func(_ context.Context, j *sidekiq.Delivery) error {
		switch j.JID {
		case "kill":
			return sidekiq.Kill(nil)
		case "discard":
			return sidekiq.Discard(nil)
		}
		return sidekiq.RetryIn(time.Minute, nil)
	})
	s.eventually("all have failed", func() bool { return s.count("stat:failed") == 3 })
	require.Equal(t, sidekiq.Worked{Retried: 1, Dead: 1, Dropped: 1}, end())
}
