//go:build interop

package sidekiq_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/luatomictest"
)

func TestInteropRubyEnqueuesAndGoPerforms(t *testing.T) {
	withEach(t, func(t *testing.T, s *shop) {
		var one struct{ JID string }
		s.ask("push", map[string]any{"item": map[string]any{
			"class": "InteropJob", "queue": "mail", "args": []any{1, "é\u2028</\"", nil, 1.5}}}, &one)
		want := map[string]string{one.JID: `[1,"é` + "\u2028" + `</\"",null,1.5]`}
		for op, question := range map[string]map[string]any{
			"push_bulk": {"items": map[string]any{"class": "InteropJob", "queue": "mail",
				"args": [][]any{{1}, {2}, {3}}}},
			"perform_async": {"args": [][]any{{1}, {2}, {3}}},
			"perform_in":    {"in": 1.25, "args": [][]any{{1}, {2}, {3}}},
		} {
			var jids struct{ JIDs []string }
			s.ask(op, question, &jids)
			require.Len(t, jids.JIDs, 3)
			for i, jid := range jids.JIDs {
				want[jid] = fmt.Sprintf("[%d]", i+1)
			}
		}
		d := newDiary()
		s.poll(nil)
		end := s.work(s.d, &sidekiq.WorkOptions{Queues: []sidekiq.Queue{{Name: "default"}, {Name: "mail"}}}, d.note)
		s.soon("Go has performed all", func() bool { return s.count("stat:processed") == len(want) })
		require.Equal(t, sidekiq.Worked{Done: len(want)}, end())
		require.Equal(t, want, d.args)
		now := time.Now()
		for jid, j := range d.jobs {
			require.Equal(t, 1, d.runs[jid])
			require.Equal(t, "InteropJob", j.Class)
			require.WithinDuration(t, now, j.CreatedAt, time.Minute, "%s", j.Payload)
			require.WithinDuration(t, now, j.EnqueuedAt, time.Minute, "%s", j.Payload)
		}
		var stats struct {
			Processed, Failed int
			Today             int `json:"processed_today"`
		}
		s.ask("stats", nil, &stats)
		require.Equal(t, []int{len(want), 0, len(want)}, []int{stats.Processed, stats.Failed, stats.Today})
	})
}

func TestInteropGoEnqueuesAndRubyPerforms(t *testing.T) {
	withEach(t, func(t *testing.T, s *shop) {
		ctx := t.Context()
		args, err := sidekiq.Args(1, "é\u2028</\"", nil, 1.5, 2.0)
		require.NoError(t, err)
		jid, err := s.d.Push(ctx, sidekiq.Job{Class: "InteropJob", Args: args})
		require.NoError(t, err)
		want := map[string]string{jid: string(args)}
		later, err := s.d.PerformIn(ctx, 1500*time.Millisecond,
			sidekiq.Job{Class: "InteropJob", Args: json.RawMessage(`["later"]`)})
		require.NoError(t, err)
		want[later] = `["later"]`
		var bulk []sidekiq.Job
		for i := range 2500 {
			j := sidekiq.Job{Class: "InteropJob", Queue: "q" + strconv.Itoa(i%3),
				Args: json.RawMessage(fmt.Sprintf("[%d]", i))}
			if i%5 == 0 {
				j.In = time.Duration(1+i%3) * time.Second
			}
			bulk = append(bulk, j)
		}
		pushed, err := s.d.PushBulk(ctx, bulk)
		require.NoError(t, err)
		require.Equal(t, 500, pushed.Scheduled)
		for i, jid := range pushed.JIDs {
			want[jid] = fmt.Sprintf("[%d]", i)
		}
		end := s.worker("default", "q0", "q1", "q2")
		s.soon("Ruby has performed all", func() bool {
			return s.client.LLen(ctx, "performed").Val() >= int64(len(want))
		})
		end()
		require.Len(t, s.performed(), len(want), "each once")
		require.Equal(t, want, s.client.HGetAll(ctx, "performed:args").Val())
		require.Empty(t, s.members("retry"))
		require.Equal(t, len(want), s.count("stat:processed"))
	})
}

func TestInteropTwoPollersMoveEachJobOnce(t *testing.T) {
	withEach(t, func(t *testing.T, s *shop) {
		const jobs = 10_000
		ctx := t.Context()
		due := time.Now().Add(10 * time.Second) // all are pushed by then
		bulk := make([]sidekiq.Job, jobs)
		for i := range bulk {
			bulk[i] = sidekiq.Job{Class: "InteropJob", Queue: "q" + strconv.Itoa(i%7), At: due,
				Args: json.RawMessage(fmt.Sprintf("[%d]", i))}
		}
		pushed, err := s.d.PushBulk(ctx, bulk)
		require.NoError(t, err)
		require.Equal(t, jobs, pushed.Scheduled)
		d := newDiary()
		var queues []sidekiq.Queue
		for i := range 7 {
			queues = append(queues, sidekiq.Queue{Name: "q" + strconv.Itoa(i), Weight: 1})
		}
		end := s.work(s.d, &sidekiq.WorkOptions{Queues: queues, Concurrency: 50}, d.note)
		s.agent.Send(map[string]any{"op": "drain", "set": "schedule"})
		left := func() int64 { return s.client.ZCard(ctx, "schedule").Val() }
		s.soon("Ruby's poller has begun", func() bool { return left() < jobs })
		byGo := 0
		for left() > 0 {
			moved, err := s.d.MoveDue(ctx, sidekiq.Schedule, 20)
			require.NoError(t, err)
			require.Empty(t, moved.Malformed)
			byGo += moved.Moved
		}
		s.agent.Line(60 * time.Second)
		s.soon("all were performed", func() bool { return s.count("stat:processed") >= jobs })
		require.Equal(t, jobs, end().Done)
		different, runs := d.total()
		require.Equal(t, jobs, different)
		require.Equal(t, jobs, runs, "each once")
		require.Positive(t, byGo)
		require.Less(t, byGo, jobs)
		t.Logf("Go moved %d, Ruby %d", byGo, jobs-byGo)
	})
}

type shown struct {
	At           float64
	Queue, Class string
	Args         []any
	ErrorMessage string  `json:"error_message"`
	ErrorClass   string  `json:"error_class"`
	RetryCount   *int    `json:"retry_count"`
	CreatedAt    float64 `json:"created_at"`
	EnqueuedAt   float64 `json:"enqueued_at"`
	FailedAt     float64 `json:"failed_at"`
}

func (s *shop) show(set, jid string) (v shown) {
	s.t.Helper()
	s.ask("show", map[string]any{"set": set, "jid": jid}, &v)
	return v
}

func TestInteropRubysButtonsOnGosJobs(t *testing.T) {
	withEach(t, func(t *testing.T, s *shop) {
		ctx := t.Context()
		job := sidekiq.Job{Class: "InteropJob",
			Args: json.RawMessage("[1.0,\"é\u2028</\\\"\\u0001\",1e300,-0.0,0.00001,12345678901234567890]")}
		jid, err := s.d.PerformIn(ctx, time.Hour, job)
		require.NoError(t, err)
		now := float64(time.Now().Unix())
		v := s.show("schedule", jid)
		require.Equal(t, "InteropJob", v.Class)
		require.InDelta(t, now+3600, v.At, 60)
		require.InDelta(t, now, v.CreatedAt, 60)

		at := time.Now().Add(2 * time.Hour).Unix()
		s.ask("reschedule", map[string]any{"set": "schedule", "jid": jid, "at": at}, nil)
		members := s.members("schedule")
		require.Len(t, members, 1, "bytes that differ from Ruby's would be a second member")
		require.InDelta(t, float64(at), members[0].Score, 0.01)

		_, ok, err := s.d.Reschedule(ctx, sidekiq.Ref{Set: sidekiq.Schedule, JID: jid}, time.Now().Add(3*time.Hour))
		require.NoError(t, err)
		require.True(t, ok)
		require.InDelta(t, now+3*3600, s.show("schedule", jid).At, 60)

		s.ask("add_to_queue", map[string]any{"set": "schedule", "jid": jid}, nil)
		require.Empty(t, s.members("schedule"))
		second, err := s.d.Push(ctx, sidekiq.Job{Class: "InteropJob"})
		require.NoError(t, err)
		var queue struct {
			Size    int
			Latency float64
			JIDs    []string
		}
		s.ask("queue", map[string]any{"queue": "default"}, &queue)
		require.Equal(t, []string{second, jid}, queue.JIDs)
		require.InDelta(t, 30, queue.Latency, 30, "seconds since enqueued_at of the oldest")

		others, err := s.d.PushBulk(ctx,
			[]sidekiq.Job{{Class: "InteropJob", In: time.Hour}, {Class: "InteropJob", In: time.Hour}})
		require.NoError(t, err)
		s.ask("delete", map[string]any{"set": "schedule", "jid": others.JIDs[0]}, nil)
		s.ask("kill", map[string]any{"set": "schedule", "jid": others.JIDs[1]}, nil)
		require.Empty(t, s.members("schedule"))
		require.Len(t, s.members("dead"), 1)
	})
}

func TestInteropRubyRetriesWhatFailedInGo(t *testing.T) {
	withEach(t, func(t *testing.T, s *shop) {
		ctx := t.Context()
		jid, err := s.d.Push(ctx, sidekiq.Job{Class: "InteropJob", Args: json.RawMessage(`["fail","in Ruby"]`)})
		require.NoError(t, err)
		sad := errors.New("in Go")
		s.performFailing(sad, "retry")
		v := s.show("retry", jid)
		require.Equal(t, []any{"in Go", "RuntimeError", 0, "default"},
			[]any{v.ErrorMessage, v.ErrorClass, *v.RetryCount, v.Queue})
		now := float64(time.Now().Unix())
		require.InDelta(t, now, v.FailedAt, 60)
		require.InDelta(t, now+20, v.At, 60)

		// The retry is due: Ruby's process polls, performs and fails.
		s.ask("reschedule", map[string]any{"set": "retry", "jid": jid, "at": time.Now().Unix() - 1}, nil)
		require.Len(t, s.members("retry"), 1)
		end := s.worker("default")
		s.soon("Ruby has tried", func() bool { return len(s.performed()) == 1 })
		s.soon("Ruby has written the failure", func() bool { return len(s.members("retry")) == 1 })
		end()
		again := s.show("retry", jid)
		require.Equal(t, []any{"in Ruby", "ArgumentError", 1},
			[]any{again.ErrorMessage, again.ErrorClass, *again.RetryCount})
		require.InDelta(t, v.FailedAt, again.FailedAt, 0.0011, "of the first failure")
		var stats struct{ Processed, Failed, Retries int }
		s.ask("stats", nil, &stats)
		require.Equal(t, []int{2, 2, 1}, []int{stats.Processed, stats.Failed, stats.Retries})

		// And once more in Go, with the last retry: it moves to dead, and Ruby enqueues it again.
		s.ask("reschedule", map[string]any{"set": "retry", "jid": jid, "at": time.Now().Unix() - 1}, nil)
		moved, err := s.d.MoveDue(ctx, sidekiq.Retry, 0)
		require.NoError(t, err)
		require.Equal(t, 1, moved.Moved)
		s.performFailing(sidekiq.Kill(sad), "dead")
		dead := s.show("dead", jid)
		require.Equal(t, 2, *dead.RetryCount)
		s.ask("retry", map[string]any{"set": "dead", "jid": jid}, nil)
		require.Empty(t, s.members("dead"))
		require.Len(t, s.list("default"), 1)
	})
}

// performFailing performs one job in Go, which fails and moves to the set.
// Ruby performs what Go declines, for the first time and unchanged, though Go takes jobs of the same queue.
func TestInteropRubyPerformsWhatGoDeclines(t *testing.T) {
	withEach(t, func(t *testing.T, s *shop) {
		const jobs = 20
		never := func(context.Context, *sidekiq.Delivery) error { return sidekiq.Decline(errors.New("not in Go")) }
		end := s.work(s.d, nil, never)
		for i := range jobs {
			s.enqueue("default", fmt.Sprintf(`{"retry":false,"queue":"default","class":"InteropJob",`+
				`"args":["declined",%d],"jid":"%024d","created_at":1.5,"enqueued_at":1.5,"bid":"b"}`, i, i))
		}
		s.soon("Go has declined all", func() bool { return len(s.members("schedule")) == jobs })
		endRuby := s.worker("default")
		s.soon("Ruby has performed all", func() bool { return len(s.performed()) == jobs })
		endRuby()
		require.Equal(t, sidekiq.Worked{Declined: end().Declined}, end())
		require.Zero(t, s.count("stat:failed"))
		require.Empty(t, append(s.members("retry"), s.members("dead")...))
	})
}

func (s *shop) performFailing(failure error, set string) {
	s.t.Helper()
	end := s.work(s.d, nil, func(context.Context, *sidekiq.Delivery) error { return failure })
	s.soon("Go has written the failure", func() bool { return len(s.members(set)) == 1 })
	end()
}

func TestInteropGoRetriesWhatFailedInRuby(t *testing.T) {
	withEach(t, func(t *testing.T, s *shop) {
		ctx := t.Context()
		var jids struct{ JIDs []string }
		s.ask("perform_async", map[string]any{"args": [][]any{{"fail", "in Ruby"}}}, &jids)
		jid := jids.JIDs[0]
		end := s.worker("default")
		s.soon("Ruby has written the failure", func() bool { return len(s.members("retry")) == 1 })
		end()
		before := s.show("retry", jid)
		_, ok, err := s.d.Reschedule(ctx, sidekiq.Ref{Set: sidekiq.Retry, JID: jid}, time.Now().Add(-time.Second))
		require.NoError(t, err)
		require.True(t, ok)
		moved, err := s.d.MoveDue(ctx, sidekiq.Retry, 0)
		require.NoError(t, err)
		require.Equal(t, 1, moved.Moved)
		var job *sidekiq.Delivery
		stop := s.work(s.d, nil, func(_ context.Context, j *sidekiq.Delivery) error {
			job = j
			return errors.New("in Go")
		})
		s.soon("Go has written the failure", func() bool { return len(s.members("retry")) == 1 })
		stop()
		require.Equal(t, 1, job.Retried)
		after := s.show("retry", jid)
		require.Equal(t, []any{"in Go", 1}, []any{after.ErrorMessage, *after.RetryCount})
		require.InDelta(t, before.FailedAt, after.FailedAt, 0.0011)
		s.canonical(s.members("retry")[0].Member)
		// Ruby writes the same bytes.
		s.ask("reschedule", map[string]any{"set": "retry", "jid": jid, "at": time.Now().Unix() + 60}, nil)
		require.Len(t, s.members("retry"), 1)
	})
}

// canonical requires texts that Ruby reads and writes as the same bytes.
func (s *shop) canonical(texts ...any) {
	s.t.Helper()
	var reply struct{ Texts []string }
	s.ask("canonical", map[string]any{"texts": texts}, &reply)
	require.Len(s.t, reply.Texts, len(texts))
	for i, text := range texts {
		require.Equal(s.t, text, reply.Texts[i])
	}
}

func TestInteropRubyWritesOurBytes(t *testing.T) {
	withEach(t, func(t *testing.T, s *shop) {
		ctx := t.Context()
		// The JSON that comes with Sidekiq 8 writes floats without a fraction, and small ones, in another form.
		s.canonical(captured(t, map[bool]string{false: "6.4.1", true: "8.1.7"}[s.d.Version() >= sidekiq.V8])...)
		args, err := sidekiq.Args("é\u2028\u2029</&'>\"\\\x00\x1f\x7f\b\f\n\r\t😀", 1.0, -0.5, 1e-3, 123456.789,
			int64(1<<62), nil, true, []any{}, map[string]any{})
		require.NoError(t, err)
		jobs := []sidekiq.Job{{Class: "InteropJob", Args: args},
			{Class: "A::B", Args: args, In: time.Hour, Fields: []sidekiq.Field{
				{Name: "tags", Value: json.RawMessage(`[ "a" , "b" ]`)}, {Name: "retry", Value: json.RawMessage(`5`)},
			}}}
		_, err = s.d.PushBulk(ctx, jobs)
		require.NoError(t, err)
		scheduled := s.members("schedule")
		require.Len(t, scheduled, 1)
		s.canonical(s.list("default")[0], scheduled[0].Member)
		s.performFailing(errors.New("é\u2028\u2029</&'>\"\\\x00\x1f\x7f\b\f\n\r\t😀\xff"), "retry")
		s.canonical(s.members("retry")[0].Member)
		moved, err := s.d.MoveDue(ctx, sidekiq.Schedule, 0)
		require.NoError(t, err)
		require.Zero(t, moved.Moved)
	})
}

// captured returns the payloads that a Sidekiq has written.
func captured(t *testing.T, release string) (payloads []any) {
	t.Helper()
	text, err := os.ReadFile("testdata/captured/" + release + ".ndjson")
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		var row struct{ Member string }
		require.NoError(t, json.Unmarshal([]byte(line), &row))
		if strings.HasPrefix(row.Member, "{") {
			payloads = append(payloads, row.Member)
		}
	}
	require.Greater(t, len(payloads), 10)
	return payloads
}

func TestInteropTheBusyPageShowsAGoWorker(t *testing.T) {
	withEach(t, func(t *testing.T, s *shop) {
		jid, err := s.d.Push(t.Context(), sidekiq.Job{Class: "InteropJob", Args: json.RawMessage(`[1]`)})
		require.NoError(t, err)
		release := make(chan bool)
		opts := &sidekiq.WorkOptions{WebUI: true, Lease: 600 * time.Millisecond}
		end := s.work(s.d, opts, func(context.Context, *sidekiq.Delivery) error {
			<-release
			return nil
		})
		var page struct {
			Processes []struct {
				Identity string
				Busy     int
				Queues   []string
				Labels   []string
			}
			Work [][]json.RawMessage
		}
		luatomictest.Eventually(t, 60*time.Second, "the page shows the job", func() bool {
			s.ask("processes", nil, &page)
			return len(page.Processes) == 1 && page.Processes[0].Busy == 1 && len(page.Work) == 1
		})
		require.Equal(t, []string{"default"}, page.Processes[0].Queues)
		require.Contains(t, string(page.Work[0][1]), jid)
		close(release)
		s.soon("it is done", func() bool { return s.count("stat:processed") == 1 })
		end()
		s.ask("processes", nil, &page)
		require.Empty(t, page.Processes)
	})
}
