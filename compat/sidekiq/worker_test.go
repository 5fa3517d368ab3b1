package sidekiq_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

func TestAWorkerPerformsInOrder(t *testing.T) {
	t.Parallel()
	s := newSite(t, sidekiq.V7)
	s.enqueue("default", payload("default", "a", ""), payload("default", "b", ""), payload("default", "c", ""))
	var got []*sidekiq.Delivery
	end := s.work(s.d, &sidekiq.WorkOptions{Concurrency: 1}, func(_ context.Context, j *sidekiq.Delivery) error {
		got = append(got, j)
		return nil
	})
	s.eventually("three jobs are done", func() bool { return s.count("stat:processed") == 3 })
	require.Equal(t, sidekiq.Worked{Done: 3}, end())
	require.Len(t, got, 3)
	require.Equal(t, "abc", got[0].JID+got[1].JID+got[2].JID)
	first := got[0]
	require.Equal(t, "HardJob", first.Class)
	require.Equal(t, "default", first.Queue)
	require.JSONEq(t, `[1,"é"]`, string(first.Args))
	require.Equal(t, payload("default", "a", ""), string(first.Payload))
	require.Equal(t, time.UnixMicro(1795230010029114).UTC(), first.EnqueuedAt.UTC())
	var n int
	var text string
	require.NoError(t, first.Scan(&n, &text))
	require.Equal(t, "é", text)
	require.ErrorIs(t, first.Scan(&n), sidekiq.ErrScan)
	require.ErrorIs(t, first.Scan(&text, &n), sidekiq.ErrScan)

	require.Empty(t, s.workings())
	today := s.daily("stat:processed")
	require.Equal(t, 3, s.count(today))
	ttl, err := s.client.TTL(t.Context(), s.key(today)).Result()
	require.NoError(t, err)
	require.Greater(t, ttl, 4*365*24*time.Hour)
	known, err := s.client.ZCard(t.Context(), s.key("luatomic:sidekiq:processes")).Result()
	require.NoError(t, err)
	require.Zero(t, known, "the process is forgotten")
}

func TestAnIdleWorkerHearsAPushAtOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t, sidekiq.V7)
	done := make(chan time.Time, 1)
	opts := &sidekiq.WorkOptions{Queues: []sidekiq.Queue{{Name: "one"}, {Name: "two"}}}
	s.work(s.d, opts, func(context.Context, *sidekiq.Delivery) error {
		done <- time.Now()
		return nil
	})
	best := time.Hour
	for range 5 {
		s.eventually("the worker waits", func() bool { return s.blocked() })
		pushed := time.Now()
		s.enqueue("two", payload("two", "a", ""))
		select {
		case at := <-done:
			best = min(best, at.Sub(pushed))
		case <-time.After(30 * time.Second):
			t.Fatal("the job was not performed")
		}
	}
	require.Less(t, best, time.Second, "the worker polls")
}

// blocked reports whether a client of the server blocks on one of the site's queues.
func (s *site) blocked() bool {
	before, err := s.client.LLen(s.t.Context(), s.key("queue:two")).Result()
	require.NoError(s.t, err)
	info, err := s.client.Info(s.t.Context(), "clients").Result()
	require.NoError(s.t, err)
	return before == 0 && !strings.Contains(info, "blocked_clients:0\r\n")
}

func TestStrictQueuesAreServedInOrder(t *testing.T) {
	t.Parallel()
	s := newSite(t, sidekiq.V7)
	for i := range 20 {
		s.enqueue("low", payload("low", "l"+strconv.Itoa(i), ""))
		s.enqueue("high", payload("high", "h"+strconv.Itoa(i), ""))
	}
	var order []string
	end := s.work(s.d, &sidekiq.WorkOptions{Concurrency: 3, Queues: []sidekiq.Queue{{Name: "high"}, {Name: "low"}}},
		s.record(&order))
	s.eventually("all are done", func() bool { return s.count("stat:processed") == 40 })
	require.Equal(t, 40, end().Done)
	high := 0
	for _, jid := range order[:20] {
		high += strings.Count(jid, "h")
	}
	require.GreaterOrEqual(t, high, 18, "up to two run beside the last of high")
}

func (s *site) record(order *[]string) sidekiq.Handler {
	var mu sync.Mutex
	return func(_ context.Context, j *sidekiq.Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		*order = append(*order, j.JID)
		return nil
	}
}

func TestWeightsDecideByLot(t *testing.T) {
	t.Parallel()
	s := newSite(t, sidekiq.V7)
	for _, queue := range []string{"low", "high"} {
		payloads := make([]any, 200)
		for i := range payloads {
			payloads[i] = payload(queue, queue[:1]+strconv.Itoa(i), "")
		}
		require.NoError(t, s.client.LPush(t.Context(), s.key("queue:"+queue), payloads...).Err())
	}
	var order []string
	opts := &sidekiq.WorkOptions{Concurrency: 1,
		Queues: []sidekiq.Queue{{Name: "low", Weight: 1}, {Name: "high", Weight: 4}}}
	end := s.work(s.d, opts, s.record(&order))
	s.eventually("150 are done", func() bool { return s.count("stat:processed") >= 150 })
	end()
	high := 0
	for _, jid := range order[:150] {
		high += strings.Count(jid, "h")
	}
	// 120 expected, with a deviation of 5.
	require.InDelta(t, 120, high, 30)
}

func TestQueuesAreChecked(t *testing.T) {
	t.Parallel()
	s := newSite(t, sidekiq.V7)
	for _, queues := range [][]sidekiq.Queue{
		{{Name: ""}}, {{Name: "a"}, {Name: "a"}}, {{Name: "a", Weight: -1}},
		{{Name: "a", Weight: math.MaxInt}}, make([]sidekiq.Queue, 1001),
	} {
		_, err := s.d.Work(t.Context(), &sidekiq.WorkOptions{Queues: queues}, content)
		require.ErrorIs(t, err, sidekiq.ErrQueues)
	}
	require.NoError(t, s.client.Set(t.Context(), s.key("queue:default"), "no list", 0).Err())
	_, err := s.d.Work(t.Context(), nil, content)
	require.ErrorIs(t, err, lua.ErrWrongType)
}

func TestMoreQueuesThanAreBlockedOn(t *testing.T) {
	t.Parallel()
	s := newSite(t, sidekiq.V7)
	var queues []sidekiq.Queue
	for i := range 12 {
		queues = append(queues, sidekiq.Queue{Name: "q" + strconv.Itoa(i)})
	}
	done := make(chan string, 1)
	s.work(s.d, &sidekiq.WorkOptions{Queues: queues}, func(_ context.Context, j *sidekiq.Delivery) error {
		done <- j.Queue
		return nil
	})
	s.enqueue("q11", payload("q11", "a", ""))
	require.Equal(t, "q11", <-done)
	s.enqueue("q10", payload("q10", "a", ""))
	require.Equal(t, "q10", <-done)
}

func TestClassesHaveHandlers(t *testing.T) {
	t.Parallel()
	s := newSite(t, sidekiq.V8)
	var got atomic.Int32
	handlers := sidekiq.Handlers{
		"HardJob": func(context.Context, *sidekiq.Delivery) error { got.Add(1); return nil },
		"Mailer":  func(context.Context, *sidekiq.Delivery) error { got.Add(10); return nil },
	}
	s.enqueue("default", payload("default", "a", ""),
		strings.Replace(payload("default", "b", `,"wrapped":"Mailer"`), "HardJob", "Wrapper", 1),
		strings.Replace(payload("default", "c", ""), "HardJob", "Unknown", 1),
		strings.Replace(payload("default", "d", `,"wrapped":"ReportJob"`), "HardJob", "Wrapper", 1))
	reports := make(chan error, 20)
	end := s.work(s.d, &sidekiq.WorkOptions{OnError: func(err error, _ *sidekiq.Delivery) { reports <- err }},
		handlers.Perform)
	s.eventually("all are done", func() bool {
		return s.count("stat:processed") == 2 && len(s.members("schedule")) == 2
	})
	require.Equal(t, sidekiq.Worked{Done: 2, Declined: 2}, end())
	require.EqualValues(t, 11, got.Load())
	close(reports)
	texts := ""
	for err := range reports {
		texts += err.Error()
	}
	require.Contains(t, texts, "uninitialized constant Unknown;")
	require.Contains(t, texts, "uninitialized constant ReportJob;", "the wrapper is that of every job of Active Job")
}

func TestAStrayEntryIsReported(t *testing.T) {
	t.Parallel()
	s := newSite(t, sidekiq.V7)
	ctx := t.Context()
	dead := s.key("luatomic:sidekiq:working:dead")
	queue := s.key("queue:default")
	job := fmt.Sprintf("%d:%s%s", len(queue), queue, payload("default", "a", ""))
	for field, entry := range map[string]string{
		"x": "1:a", "1": "no length", "2": "99:short", "3": "1:abc", "4": "-1:abc", "+5": job, "06": job,
	} {
		require.NoError(t, s.client.HSet(ctx, dead, field, entry).Err())
	}
	require.NoError(t, s.client.ZAdd(ctx, s.key("luatomic:sidekiq:processes"), redis.Z{Member: "dead", Score: 1}).Err())
	seen := make(chan error, 100)
	s.work(s.d, &sidekiq.WorkOptions{
		Lease: 300 * time.Millisecond, OnError: func(err error, _ *sidekiq.Delivery) { seen <- err }}, content)
	err := <-seen
	require.ErrorIs(t, err, sidekiq.ErrStrayJob)
	require.ErrorContains(t, err, "7 of "+dead, "no script of this package writes such a number")
	require.EqualValues(t, 7, s.client.HLen(ctx, dead).Val())
}

func TestTheWebUIShowsAWorker(t *testing.T) {
	t.Parallel()
	for version, suffixes := range map[sidekiq.Version][]string{
		sidekiq.V5: {":workers"}, sidekiq.V6: {":work", ":workers"}, sidekiq.V8: {":work"},
	} {
		t.Run(strconv.Itoa(int(version)), func(t *testing.T) {
			t.Parallel()
			s := newSite(t, version)
			ctx := t.Context()
			s.enqueue("default", payload("default", "a", ""))
			opts := &sidekiq.WorkOptions{WebUI: true, Lease: 150 * time.Millisecond, Grace: time.Millisecond}
			end := s.work(s.d, opts, func(ctx context.Context, _ *sidekiq.Delivery) error {
				<-ctx.Done()
				return nil
			})
			var process string
			s.eventually("the process is busy", func() bool {
				processes := s.client.SMembers(ctx, s.key("processes")).Val()
				if len(processes) != 1 {
					return false
				}
				process = processes[0]
				return s.client.HGet(ctx, s.key(process), "busy").Val() == "1"
			})
			var info map[string]any
			require.NoError(t, json.Unmarshal([]byte(s.client.HGet(ctx, s.key(process), "info").Val()), &info))
			require.Equal(t, process, info["identity"])
			var running []string
			for _, suffix := range []string{":work", ":workers"} {
				if len(s.client.HGetAll(ctx, s.key(process+suffix)).Val()) == 1 {
					running = append(running, suffix)
				}
			}
			require.Equal(t, suffixes, running)
			end()
			require.Empty(t, s.client.Keys(ctx, s.key(process+"*")).Val())
			require.Zero(t, s.client.Exists(ctx, s.key("processes")).Val())
		})
	}
}

func TestAWorkerOutlivesTheServersAbsence(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t, "--appendonly", "yes", "--appendfsync", "always")
	s := &site{t: t, client: server.Client(), ns: "n"}
	s.d = s.dialect(server.Client(), sidekiq.V7)
	var ran atomic.Int32
	end := s.work(s.d, nil, func(context.Context, *sidekiq.Delivery) error { ran.Add(1); return nil })
	s.enqueue("default", payload("default", "a", ""))
	s.eventually("the first is done", func() bool { return ran.Load() == 1 })
	server.Restart()
	s.eventually("a push is possible", func() bool {
		return s.client.LPush(t.Context(), s.key("queue:default"), payload("default", "b", "")).Err() == nil
	})
	s.eventually("the second is done", func() bool { return ran.Load() >= 2 })
	end()
	require.Empty(t, s.list("default"))
}
