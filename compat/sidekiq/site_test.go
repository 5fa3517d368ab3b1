package sidekiq_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// site is a Sidekiq system of one test's own on the shared server.
type site struct {
	t      *testing.T
	client *redis.Client
	d      *sidekiq.Dialect
	ns     string
}

func newSite(t *testing.T, version sidekiq.Version) *site {
	t.Helper()
	s := &site{t: t, client: luatomictest.Client(t), ns: luatomictest.Namespace(t)}
	s.d = s.dialect(s.client, version)
	return s
}

// another returns a system for a subtest. Closing a client waits for its blocked commands, so subtests share one.
func (s *site) another(t *testing.T, version sidekiq.Version) *site {
	t.Helper()
	other := &site{t: t, client: s.client, ns: luatomictest.Namespace(t)}
	other.d = other.dialect(s.client, version)
	return other
}

func (s *site) dialect(c lua.Client, version sidekiq.Version) *sidekiq.Dialect {
	s.t.Helper()
	d, err := sidekiq.New(c, &sidekiq.Options{Version: version, Namespace: s.ns})
	require.NoError(s.t, err)
	return d
}

// lossy returns a client whose connections lead through a proxy.
func (s *site) lossy() (*redis.Client, *luatomictest.LossyProxy) {
	s.t.Helper()
	proxy := luatomictest.NewLossyProxy(s.t, luatomictest.URL(s.t))
	opts, err := redis.ParseURL(proxy.URL())
	require.NoError(s.t, err)
	client := redis.NewClient(opts)
	s.t.Cleanup(func() {
		proxy.CutAll() // Close waits for blocked commands
		_ = client.Close()
	})
	return client, proxy
}

func (s *site) key(name string) string {
	if s.ns == "" {
		return name
	}
	return s.ns + ":" + name
}

func payload(queue, jid, more string) string {
	return `{"retry":true,"queue":"` + queue + `","class":"HardJob","args":[1,"é"],"jid":"` + jid +
		`","created_at":1795230010.0290926,"enqueued_at":1795230010.029114` + more + `}`
}

// enqueue pushes as a Ruby client does; the first payload is served first.
func (s *site) enqueue(queue string, payloads ...string) {
	s.t.Helper()
	for _, p := range payloads {
		require.NoError(s.t, s.client.LPush(s.t.Context(), s.key("queue:"+queue), p).Err())
	}
}

// work runs a worker until the test calls end, which returns its counts.
func (s *site) work(d *sidekiq.Dialect, opts *sidekiq.WorkOptions, h sidekiq.Handler) (end func() sidekiq.Worked) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan sidekiq.Worked, 1)
	go func() {
		worked, err := d.Work(ctx, opts, h)
		if !errors.Is(err, context.Canceled) {
			s.t.Errorf("Work ended with %v", err)
		}
		result <- worked
	}()
	var once sync.Once
	var worked sidekiq.Worked
	end = func() sidekiq.Worked {
		once.Do(func() {
			cancel()
			select {
			case worked = <-result:
			case <-time.After(60 * time.Second):
				s.t.Error("Work does not end")
			}
		})
		return worked
	}
	s.t.Cleanup(func() { end() })
	return end
}

func (s *site) eventually(what string, cond func() bool) {
	s.t.Helper()
	luatomictest.Eventually(s.t, 30*time.Second, what, cond)
}

func (s *site) members(set string) []redis.Z {
	s.t.Helper()
	z, err := s.client.ZRangeWithScores(s.t.Context(), s.key(set), 0, -1).Result()
	require.NoError(s.t, err)
	return z
}

func (s *site) list(queue string) []string {
	s.t.Helper()
	l, err := s.client.LRange(s.t.Context(), s.key("queue:"+queue), 0, -1).Result()
	require.NoError(s.t, err)
	return l
}

func (s *site) count(name string) int {
	s.t.Helper()
	n, err := s.client.Get(s.t.Context(), s.key(name)).Int()
	if !errors.Is(err, redis.Nil) {
		require.NoError(s.t, err)
	}
	return n
}

// daily returns the counter of the day, or of the day before if midnight has passed.
func (s *site) daily(name string) string {
	s.t.Helper()
	now := time.Now().UTC()
	today, yesterday := name+":"+now.Format(time.DateOnly), name+":"+now.AddDate(0, 0, -1).Format(time.DateOnly)
	if s.client.Exists(s.t.Context(), s.key(yesterday)).Val() == 1 {
		return yesterday
	}
	return today
}

// workings returns the hashes of all processes with jobs. Those without any have the highest number, for a day.
func (s *site) workings() []string {
	s.t.Helper()
	keys, err := s.client.Keys(s.t.Context(), s.key("luatomic:sidekiq:working:*")).Result()
	require.NoError(s.t, err)
	return slices.DeleteFunc(keys, func(key string) bool {
		kept := s.client.HKeys(s.t.Context(), key).Val()
		return slices.Equal(kept, []string{"last"}) && s.client.TTL(s.t.Context(), key).Val() > 0
	})
}

func content(context.Context, *sidekiq.Delivery) error { return nil }
