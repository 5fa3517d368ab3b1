package sidekiq_test

import (
	"context"
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
	type report struct {
		err error
		jid string
	}
	reports := make(chan report, 20)
	opts := &sidekiq.WorkOptions{AllowFields: allowed,
		OnError: func(err error, j *sidekiq.Delivery) { reports <- report{err, j.JID} }}
	end := s.work(s.d, opts, func(_ context.Context, j *sidekiq.Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		ran[j.JID] = string(j.Field("cattr"))
		return nil
	})
	refused := len(fields) - len(allowed)
	s.eventually("all are through", func() bool {
		return s.count("stat:processed") == len(allowed)+1 && len(s.members("schedule")) == refused
	})
	require.Equal(t, sidekiq.Worked{Done: len(allowed) + 1, Declined: refused}, end())
	require.Equal(t, map[string]string{"bid": "", "cattr": `{"user":7}`, "cattr_1": "", "unset": ""}, ran)
	require.Empty(t, s.members("retry"))
	require.Len(t, reports, refused)
	for range refused {
		r := <-reports
		require.ErrorIs(t, r.err, sidekiq.ErrMiddleware)
		require.ErrorContains(t, r.err, "it has the field "+r.jid+";")
	}
}
