package sidekiq_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/sidekiq"
)

// A job whose field needs a middleware of Ruby is not performed, unless the field is allowed.
func TestJobsOfOtherMiddlewareAreRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t, sidekiq.V7)
	fields := map[string]string{
		"unique_for": `600`, "lock_digest": `"uniquejobs:1"`, "unique_digest": `"uniquejobs:2"`,
		"bid": `"x"`, "encrypt": `true`, "expiry": `1795230010.5`,
		"cattr": `{"user":7}`, "cattr_1": `{"user":8}`,
	}
	allowed := []string{"bid", "cattr", "cattr_1"}
	for name, value := range fields {
		s.enqueue("default", payload("default", name, `,"`+name+`":`+value))
	}
	s.enqueue("default", payload("default", "unset", `,"encrypt":false,"bid":null,"unique_for":600,"unique_for":false`))
	var mu sync.Mutex
	ran := map[string]string{}
	end := s.work(s.d, &sidekiq.WorkOptions{AllowFields: allowed}, func(_ context.Context, j *sidekiq.Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		ran[j.JID] = string(j.Field("cattr"))
		return nil
	})
	s.eventually("all are through", func() bool { return s.count("stat:processed") == len(fields)+1 })
	require.Equal(t, sidekiq.Worked{Done: len(allowed) + 1, Retried: len(fields) - len(allowed)}, end())
	require.Equal(t, map[string]string{"bid": "", "cattr": `{"user":7}`, "cattr_1": "", "unset": ""}, ran)
	for _, z := range s.client.ZRangeWithScores(t.Context(), s.key("retry"), 0, -1).Val() {
		member := z.Member.(string)
		require.Contains(t, member, `"error_class":"MiddlewareMissing"`)
		jid := strings.Split(strings.SplitAfter(member, `"jid":"`)[1], `"`)[0]
		require.Contains(t, member, `it has the field `+jid+`;`)
	}
}
