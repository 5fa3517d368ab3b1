package sidekiq_test

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
)

// What Go performs is counted for the Metrics page, under the names of the version; Sidekiq 6 has none.
func TestWorkWritesSidekiqsMetrics(t *testing.T) {
	t.Parallel()
	for version, want := range map[sidekiq.Version][]string{
		sidekiq.V6: nil,
		sidekiq.V7: {`^Inner-\d\d-\d\d:\d{1,2}$`, `^j\|\d{8}\|\d{1,2}:\d{1,2}$`},
		sidekiq.V8: {`^h\|Inner-\d{1,2}-\d{1,2}:\d{1,2}$`, `^j\|\d{6}\|\d{1,2}:\d$`, `^j\|\d{6}\|\d{1,2}:\d\d$`},
	} {
		t.Run(strconv.Itoa(int(version)), func(t *testing.T) {
			t.Parallel()
			s := newSite(t, version)
			ctx := t.Context()
			s.enqueue("default", payload("default", "a", `,"wrapped":"Inner"`), payload("default", "b", ""),
				payload("default", "c", `,"wrapped":"Inner"`))
			end := s.work(s.d, nil, func(_ context.Context, j *sidekiq.Delivery) error {
				if j.JID == "b" {
					return errors.New("sad")
				}
				return nil
			})
			s.eventually("all have run", func() bool { return s.count("stat:processed") == 3 })
			end()
			hashes := map[string]bool{}
			var found []string
			var executions int64
			keys, err := s.client.Keys(ctx, s.ns+":*").Result()
			require.NoError(t, err)
			for _, key := range keys {
				name := key[len(s.ns)+1:]
				at := slices.IndexFunc(want, func(form string) bool {
					return regexp.MustCompile(form).MatchString(name)
				})
				if at < 0 {
					require.NotRegexp(t, `^(j\||h\||Inner)`, name)
					continue
				}
				found = append(found, want[at])
				if name[0] == 'j' {
					hashes[key] = true
					continue
				}
				for bucket := range 26 {
					executions += s.client.BitField(ctx, key, "GET", "u16", "#"+strconv.Itoa(bucket)).Val()[0]
				}
				require.InDelta(t, 8*time.Hour, s.client.TTL(ctx, key).Val(), float64(time.Minute))
			}
			slices.Sort(found)
			require.Equal(t, want, slices.Compact(found))
			sum := map[string]int{}
			for key := range hashes {
				require.Greater(t, s.client.TTL(ctx, key).Val(), 7*time.Hour)
				for field, n := range s.client.HGetAll(ctx, key).Val() {
					count, err := strconv.Atoi(n)
					require.NoError(t, err)
					sum[field] += count
				}
			}
			delete(sum, "Inner|ms")
			periods := max(0, len(want)-1)
			if periods > 0 {
				require.EqualValues(t, 2, executions)
				require.Equal(t, map[string]int{"Inner|p": 2 * periods, "HardJob|p": periods, "HardJob|f": periods},
					sum)
			}
		})
	}
}

// A job that is not performed is no execution: no handler takes it, it has no class, or it needs a middleware.
func TestAJobThatNoHandlerTakesIsNoExecution(t *testing.T) {
	t.Parallel()
	s := newSite(t, sidekiq.V7)
	s.enqueue("default", payload("default", "a", ""), payload("default", "b", `,"class":""`),
		payload("default", "c", `,"bid":"x"`), payload("default", "d", `,"wrapped":"Inner"`),
		payload("default", "e", `,"class":"Known"`))
	end := s.work(s.d, nil, sidekiq.Handlers{"Known": content}.Perform)
	s.eventually("one is performed", func() bool {
		return s.count("stat:processed") == 1 && len(s.members("schedule")) == 3 && len(s.members("dead")) == 1
	})
	end()
	require.Zero(t, s.count("stat:failed"))
	sum := map[string]string{}
	for _, key := range s.client.Keys(t.Context(), s.key("j|*")).Val() {
		for field, n := range s.client.HGetAll(t.Context(), key).Val() {
			sum[field] = n
		}
	}
	delete(sum, "Known|ms")
	require.Equal(t, map[string]string{"Known|p": "1"}, sum)
}

// stopsDuring is a hook: it calls stop once, before a pipeline with a BITFIELD, and gives the stop time to end that
// call's context.
type stopsDuring struct {
	once sync.Once
	stop func()
}

func (s *stopsDuring) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (s *stopsDuring) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (s *stopsDuring) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if len(cmds) > 0 && cmds[0].Name() == "bitfield" {
			s.once.Do(func() {
				s.stop()
				select {
				case <-ctx.Done():
				case <-time.After(200 * time.Millisecond):
				}
			})
		}
		return next(ctx, cmds)
	}
}

// A worker that is stopped while a heartbeat writes the metrics writes them first.
func TestMetricsOfAHeartbeatOutlastTheStop(t *testing.T) {
	t.Parallel()
	s := newSite(t, sidekiq.V8)
	client := luatomictest.Client(t)
	ctx, cancel := context.WithCancel(t.Context())
	hook := &stopsDuring{stop: cancel}
	client.AddHook(hook)
	s.enqueue("default", payload("default", "a", ""))
	_, err := s.dialect(client, sidekiq.V8).Work(ctx, &sidekiq.WorkOptions{Lease: 300 * time.Millisecond}, content)
	require.ErrorIs(t, err, context.Canceled)
	hook.once.Do(func() { t.Error("no heartbeat wrote metrics") })
	keys, err := s.client.Keys(t.Context(), s.key("h|HardJob-*")).Result()
	require.NoError(t, err)
	require.Len(t, keys, 1)
}

// Each execution is counted once at most: counts whose reply is lost are not added again.
func TestMetricsWhoseReplyIsLostAreNotAddedAgain(t *testing.T) {
	lab.Long(t)
	t.Parallel()
	s := newSite(t, sidekiq.V7)
	lossy, proxy := s.lossy()
	proxy.Drop(1, luatomictest.Command("HINCRBY"))
	s.enqueue("default", payload("default", "a", ""))
	end := s.work(s.dialect(lossy, sidekiq.V7), nil, content)
	s.eventually("the counts were sent", func() bool { return proxy.Stats().Lost == 1 })
	end()
	keys, err := s.client.Keys(t.Context(), s.key("HardJob-*")).Result()
	require.NoError(t, err)
	require.Len(t, keys, 1)
	var counted int64
	for bucket := range 26 { // of the time that the job took
		got := s.client.BitField(t.Context(), keys[0], "GET", "u16", "#"+strconv.Itoa(bucket)).Val()
		require.Len(t, got, 1)
		counted += got[0]
	}
	require.Equal(t, int64(1), counted)
}
