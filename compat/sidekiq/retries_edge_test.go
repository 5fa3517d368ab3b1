package sidekiq_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
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
				s.enqueue("default", payload("default", fmt.Sprint("job", i),
					`,"retry":9223372036854775807,"retry_count":`+count))
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

// A failed job is in Ruby's form, whichever client has written it: Sidekiq's reschedule finds it by that text. What
// Ruby itself has written keeps its bytes, and so does what has no such form.
func TestAFailedJobIsInRubysForm(t *testing.T) {
	t.Parallel()
	const foreign = `{"class": "HardJob", "queue": "default", "args": [2.00, "\u003c\u00e9", {"a": 1e2}], "jid": "a" }`
	for _, c := range []struct {
		version    sidekiq.Version
		text, want string
	}{
		{sidekiq.V7, foreign, `{"class":"HardJob","queue":"default","args":[2.0,"<é",{"a":100.0}],"jid":"a"`},
		{sidekiq.V8, foreign, `{"class":"HardJob","queue":"default","args":[2.0,"<é",{"a":100.0}],"jid":"a"`},
		{sidekiq.V7, `{"class":"HardJob","args":[3.9808500000000002],"queue":"default"}`,
			`{"class":"HardJob","args":[3.98085],"queue":"default"`},
		{sidekiq.V8, `{"class":"HardJob","args":[3.9808500000000002],"queue":"default"}`,
			`{"class":"HardJob","args":[3.9808500000000002],"queue":"default"`},
		{sidekiq.V8, `{"class":"HardJob","args":[0.1000000000000000055],"queue":"default"}`,
			`{"class":"HardJob","args":[0.1],"queue":"default"`},
		{sidekiq.V8, `{"class":"HardJob","args":[{"a": 1, "a": 2}],"queue":"default"}`,
			`{"class":"HardJob","args":[{"a": 1, "a": 2}],"queue":"default"`},
	} {
		s := newSite(t, c.version)
		s.fail(nil, errSad, c.text)
		retry := s.members("retry")
		require.Len(t, retry, 1)
		text, _ := retry[0].Member.(string)
		got, _, _ := strings.Cut(text, `,"error_message"`)
		require.Equal(t, c.want, got)
	}
}

// To version 7 an integer is seconds, where it is too short for milliseconds.
func TestIntegerSecondsOfAnotherLanguage(t *testing.T) {
	t.Parallel()
	for version, ago := range map[sidekiq.Version]bool{sidekiq.V4: true, sidekiq.V7: true, sidekiq.V8: false} {
		s := newSite(t, version)
		at := time.Now().Unix() - 60
		require.NoError(t, s.client.SAdd(t.Context(), s.key("queues"), "default").Err())
		s.enqueue("default", fmt.Sprintf(`{"class":"W","args":[],"jid":"a","created_at":%d,"enqueued_at":%d}`, at, at))
		stats, err := s.d.Stats(t.Context())
		require.NoError(t, err)
		require.Equal(t, ago, stats.Queues[0].Latency < time.Hour)
		var created time.Time
		end := s.work(s.d, nil, func(_ context.Context, j *sidekiq.Delivery) error {
			created = j.CreatedAt
			return nil
		})
		s.eventually("it is done", func() bool { return s.count("stat:processed") == 1 })
		end()
		require.Equal(t, ago, created.Unix() == at)
	}
}

// To 7 a job with both a time and a number of retries ends with the first that is over; 8.1 takes the time alone.
func TestATimeOfRetriesBesideTheirNumber(t *testing.T) {
	t.Parallel()
	for version, want := range map[sidekiq.Version]sidekiq.Worked{
		sidekiq.V7: {Dead: 1}, sidekiq.V8: {Retried: 1},
	} {
		s := newSite(t, version)
		failedAt := strconv.FormatFloat(float64(time.Now().Unix()-60), 'f', 1, 64)
		job := payload("default", "a", `,"retry_for":3600,"retry_count":1,"failed_at":`+failedAt)
		require.Equal(t, want, s.fail(nil, errSad, strings.Replace(job, `"retry":true`, `"retry":2`, 1)), version)
	}
}
