package sidekiq_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/luatomictest"
)

// alive counts the processes whose lease is not over.
func (s *site) alive() int64 {
	now := fmt.Sprint(s.client.Time(s.t.Context()).Val().UnixMilli())
	return s.client.ZCount(s.t.Context(), s.key("luatomic:sidekiq:processes"), now, "+inf").Val()
}

// While the server is out of reach, the leases of all processes end. None has died: no process takes another's jobs
// when the server is there again, and none of them counts a death.
func TestAnOutageIsNoDeath(t *testing.T) {
	t.Parallel()
	s := newSite(t, sidekiq.V7)
	lossy, proxy := s.lossy()
	const workers = 3
	release, started := make(chan bool), make(chan bool, workers)
	lease := 3 * time.Second
	var ends []func() sidekiq.Worked
	for i := range workers {
		s.enqueue("default", payload("default", fmt.Sprint(i), ""))
		opts := &sidekiq.WorkOptions{Lease: lease, Concurrency: 2, OnError: func(error, *sidekiq.Delivery) {}}
		ends = append(ends, s.work(s.dialect(lossy, sidekiq.V7), opts,
			func(ctx context.Context, _ *sidekiq.Delivery) error {
				started <- true
				select {
				case <-release:
				case <-ctx.Done():
				}
				return context.Cause(ctx)
			}))
		<-started
	}
	s.eventually("all have a lease", func() bool { return s.alive() == workers })
	proxy.Redirect(t, "redis://127.0.0.1:1") // no process listens there
	s.eventually("no lease is left", func() bool { return s.alive() == 0 })
	proxy.Redirect(t, luatomictest.URL(t))
	s.eventually("all have a lease again", func() bool { return s.alive() == workers })
	close(release)
	s.eventually("all jobs are done", func() bool { return s.count("stat:processed") == workers })
	var all sidekiq.Worked
	for _, end := range ends {
		worked := end()
		all.Done += worked.Done
		all.Lost += worked.Lost
		all.Rescued += worked.Rescued
	}
	require.Equal(t, sidekiq.Worked{Done: workers}, all)
	require.Zero(t, s.client.Exists(t.Context(), s.key("luatomic:sidekiq:rescued")).Val())
}

// A process that starts when the server is there again has seen no outage. The leases that it finds over are those of
// living processes.
func TestAProcessThatStartsAfterAnOutageSeesNoDeath(t *testing.T) {
	t.Parallel()
	s := newSite(t, sidekiq.V7)
	lossy, proxy := s.lossy()
	s.enqueue("default", payload("default", "1", ""))
	opts := &sidekiq.WorkOptions{Lease: 3 * time.Second, Concurrency: 1, OnError: func(error, *sidekiq.Delivery) {}}
	release, started := make(chan bool), make(chan bool, 1)
	end := s.work(s.dialect(lossy, sidekiq.V7), opts, func(ctx context.Context, _ *sidekiq.Delivery) error {
		started <- true
		select {
		case <-release:
		case <-ctx.Done():
		}
		return context.Cause(ctx)
	})
	<-started
	proxy.Redirect(t, "redis://127.0.0.1:1") // no process listens there
	s.eventually("its lease is over", func() bool { return s.alive() == 0 })
	endOther := s.work(s.d, opts, content)
	s.eventually("another has a lease", func() bool { return s.alive() == 1 })
	proxy.Redirect(t, luatomictest.URL(t))
	s.eventually("both have a lease", func() bool { return s.alive() == 2 })
	close(release)
	s.eventually("the job is done", func() bool { return s.count("stat:processed") == 1 })
	require.Equal(t, sidekiq.Worked{Done: 1}, end())
	require.Zero(t, endOther().Rescued)
	require.Zero(t, s.client.Exists(t.Context(), s.key("luatomic:sidekiq:rescued")).Val())
}
