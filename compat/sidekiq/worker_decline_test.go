package sidekiq_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/compat/sidekiq/internal/script"
	"github.com/luatomic/luatomic/luatomictest"
)

// poll moves due jobs until the test ends.
func (s *site) poll() (end func()) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.d.NewPoller(&sidekiq.PollerOptions{Idle: 5 * time.Millisecond}).Run(ctx)
	}()
	end = func() { cancel(); <-done }
	s.t.Cleanup(end)
	return end
}

// texts returns the members of a set, sorted.
func (s *site) texts(set string) []string {
	out := make([]string, 0)
	for _, z := range s.members(set) {
		out = append(out, z.Member.(string))
	}
	slices.Sort(out)
	return out
}

// A job that this process cannot perform has not failed, whatever its retry field says of failures. Another process
// performs it for the first time.
func TestWhatAProcessCannotPerformIsGivenBackUnchanged(t *testing.T) {
	t.Parallel()
	s := newSite(t, sidekiq.V7)
	retry := func(value, p string) string { return strings.Replace(p, `"retry":true`, `"retry":`+value, 1) }
	jobs := []string{
		retry("false", payload("default", "a", `,"bid":"b1"`)),
		retry("0", payload("default", "b", `,"cattr":{"user":7}`)),
		retry("false", strings.Replace(payload("default", "c", ""), "HardJob", "Unknown", 1)),
		strings.Replace(payload("default", "d", `,"retry_count":3,"wrapped":"Other"`), "HardJob", "Wrapper", 1),
		`{ "class" : "Foreign", "queue":"default", "args":[], "retry" : 0 }`,
	}
	s.enqueue("default", jobs...)
	reports := make(chan error, 100)
	end := s.work(s.d, &sidekiq.WorkOptions{OnError: func(err error, _ *sidekiq.Delivery) { reports <- err }},
		sidekiq.Handlers{"HardJob": content}.Perform)
	s.eventually("all are given back", func() bool { return len(s.members("schedule")) == len(jobs) })
	require.Equal(t, sidekiq.Worked{Declined: len(jobs)}, end())
	slices.Sort(jobs)
	require.Equal(t, jobs, s.texts("schedule"), "no byte has changed")
	require.Zero(t, s.count("stat:processed")+s.count("stat:failed"))
	require.Empty(t, s.members("retry"))
	require.Empty(t, s.members("dead"))
	require.Len(t, reports, 5)
	middleware := 0
	for range 5 {
		err := <-reports
		require.ErrorIs(t, err, sidekiq.ErrDeclined)
		require.ErrorContains(t, err, `(1 so far): queue "default" gets it again, and a Ruby process`)
		if errors.Is(err, sidekiq.ErrMiddleware) {
			middleware++
		}
	}
	require.Equal(t, 2, middleware)

	s.poll()
	ran := make(chan *sidekiq.Delivery, 10)
	end = s.work(s.d, &sidekiq.WorkOptions{AllowFields: []string{"bid", "cattr"}},
		func(_ context.Context, j *sidekiq.Delivery) error { ran <- j; return nil })
	s.eventually("another process performs all", func() bool { return s.count("stat:processed") == len(jobs) })
	require.Equal(t, sidekiq.Worked{Done: len(jobs)}, end())
	close(ran)
	for j := range ran {
		require.Equal(t, map[bool]int{true: 4}[j.JID == "d"], j.Retried)
	}
}

// OnError hears of the first, the tenth, the hundredth such job.
func TestDeclinedJobsAreReportedSeldom(t *testing.T) {
	t.Parallel()
	s := newSite(t, sidekiq.V7)
	for i := range 30 {
		s.enqueue("default", payload("default", fmt.Sprint("job", i), `,"bid":"x"`))
	}
	reports := make(chan error, 100)
	end := s.work(s.d, &sidekiq.WorkOptions{OnError: func(err error, _ *sidekiq.Delivery) { reports <- err }}, content)
	s.eventually("all are given back", func() bool { return len(s.members("schedule")) == 30 })
	require.Equal(t, sidekiq.Worked{Declined: 30}, end())
	require.Len(t, reports, 2)
}

// A job that nobody performs ends in the dead set, with the reason and without a failure.
func TestAJobThatNobodyPerformsDies(t *testing.T) {
	t.Parallel()
	s := newSite(t, sidekiq.V8)
	failedTwice := payload("default", "a", `,"retry_count":2`)
	s.enqueue("default", strings.Replace(failedTwice, `"retry":true`, `"retry":false`, 1))
	stopPolling := s.poll()
	reports := make(chan error, 100)
	end := s.work(s.d, &sidekiq.WorkOptions{Declined: 50 * time.Millisecond,
		OnError: func(err error, _ *sidekiq.Delivery) { reports <- err }}, sidekiq.Handlers{}.Perform)
	s.eventually("it is dead", func() bool { return len(s.members("dead")) == 1 })
	stopPolling()
	worked := end()
	require.Positive(t, worked.Declined)
	require.Equal(t, sidekiq.Worked{Dead: 1, Declined: worked.Declined}, worked)
	dead := s.texts("dead")[0]
	require.Regexp(t, `"error_message":"declined: uninitialized constant HardJob, declined since 20\d\d-[^"]+Z",`+
		`"error_class":"NameError"}$`, dead)
	require.Contains(t, dead, `"retry_count":2`)
	require.NotContains(t, dead, "failed_at")
	require.Zero(t, s.count("stat:processed")+s.count("stat:failed"))
	require.Len(t, reports, 2, "the first time, and the death")
	require.ErrorContains(t, <-reports, "(1 so far)")
	require.ErrorContains(t, <-reports, "it is in the dead set, declined since")

	// An operator brings it back: its time begins anew.
	s.enqueue("default", dead)
	end = s.work(s.d, &sidekiq.WorkOptions{Declined: time.Hour}, sidekiq.Handlers{}.Perform)
	s.eventually("it is declined", func() bool { return slices.Equal(s.texts("schedule"), []string{dead}) })
	require.Equal(t, sidekiq.Worked{Declined: 1}, end())
}

// Sidekiq's client refuses to push such a job, and a poller of Ruby would lose it.
func TestAJobThatNoClientPushesIsDeadAtOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t, sidekiq.V7)
	texts := []string{`no JSON`, `[` + payload("default", "c", "") + `]`}
	s.enqueue("default", payload("default", "a", `,"class":7`), `{"class":"A","jid":"b","retry":false}`,
		payload("default", "d", `,"tags":"t"`), payload("default", "e", `,"at":"soon"`), texts[0], texts[1],
		payload("default", "f", `,"at":1.5,"tags":["t"]`), payload("default", "g", `,"tags":null`))
	reports := make(chan error, 100)
	end := s.work(s.d, &sidekiq.WorkOptions{OnError: func(err error, _ *sidekiq.Delivery) { reports <- err }},
		sidekiq.Handlers{}.Perform)
	s.eventually("six are dead", func() bool { return len(s.members("dead")) == 6 && len(s.members("schedule")) == 2 })
	require.Equal(t, sidekiq.Worked{Dead: 6, Declined: 2}, end())
	require.Len(t, reports, 7)
	for _, text := range texts {
		require.Contains(t, s.texts("dead"), text, "no byte has changed")
	}
	dead := strings.Join(s.texts("dead"), "\n")
	require.Contains(t, dead, `"error_message":"declined: the job has no class","error_class":"ArgumentError"`)
	require.Contains(t, dead, `"error_message":"declined: the job's args are no array","error_class":"ArgumentError"`)
	require.Zero(t, s.count("stat:processed")+s.count("stat:failed"))
}

// A set has each text once. Jobs without an id may have the same text, and are several nevertheless.
func TestIdenticalJobsAreDeclinedEach(t *testing.T) {
	t.Parallel()
	s := newSite(t, sidekiq.V7)
	const same = `{"class":"A","queue":"default","args":[]}`
	s.enqueue("default", same, same, same, same, same)
	end := s.work(s.d, nil, sidekiq.Handlers{}.Perform)
	s.eventually("all are given back", func() bool { return len(s.members("schedule")) == 5 })
	require.Equal(t, sidekiq.Worked{Declined: 5}, end())
	s.poll()
	end = s.work(s.d, nil, content)
	s.eventually("all are performed", func() bool { return s.count("stat:processed") == 5 })
	require.Equal(t, sidekiq.Worked{Done: 5}, end())
}

// A poller pushes a job to the queue that its payload names. A client may have pushed it to another one.
func TestADeclinedJobReturnsToItsQueue(t *testing.T) {
	t.Parallel()
	s := newSite(t, sidekiq.V7)
	s.enqueue("here", payload("there", "a", `,"bid":"x"`), `{"class":"A","args":[],"jid":"b","bid":"x"}`)
	end := s.work(s.d, &sidekiq.WorkOptions{Queues: []sidekiq.Queue{{Name: "here"}}}, content)
	s.eventually("both are given back", func() bool { return len(s.members("schedule")) == 2 })
	end()
	s.poll()
	s.eventually("both are in the queue", func() bool { return len(s.list("here")) == 2 })
}

// A handler that says what follows its failure has begun.
func TestADeclineWithinAFailureIsOne(t *testing.T) {
	t.Parallel()
	s := newSite(t, sidekiq.V7)
	s.enqueue("default", payload("default", "a", ""), payload("default", "b", ""), payload("default", "c", ""))
	no := sidekiq.Decline(errors.New("no"))
	end := s.work(s.d, nil, func(_ context.Context, j *sidekiq.Delivery) error {
		return map[string]error{"a": sidekiq.Kill(no), "b": sidekiq.Discard(no), "c": sidekiq.RetryIn(0, no)}[j.JID]
	})
	s.eventually("all have failed", func() bool { return s.count("stat:failed") == 3 })
	require.Equal(t, sidekiq.Worked{Dead: 1, Dropped: 1, Retried: 1}, end())
}

// declineOnce calls the script for a job that was declined first at a time before or after now.
func declineOnce(t *testing.T, ago time.Duration) (r script.DeclineResult, due []redis.Z, now time.Time, since string) {
	t.Helper()
	c, p, ctx := luatomictest.Client(t), luatomictest.Namespace(t)+":", t.Context()
	require.NoError(t, handed(ctx, c, p))
	before := c.Time(ctx).Val()
	require.NoError(t, c.Set(ctx, p+"since", before.Add(-ago).UnixMilli(), 0).Err())
	r, err := script.Decline(ctx, c, declineParams(p))
	require.NoError(t, err)
	ttl := c.PTTL(ctx, p+"since").Val()
	require.True(t, r.State == script.DeclineStateOver || ttl > 50*time.Minute && ttl <= time.Hour, ttl)
	return r, c.ZRangeWithScores(ctx, p+"schedule", 0, -1).Val(), before, c.Get(ctx, p+"since").Val()
}

func declineParams(p string) script.DeclineParams {
	return script.DeclineParams{Working: p + "working", Schedule: p + "schedule", Since: p + "since", ID: 1,
		Patience: 24 * time.Hour, Payload: []byte(`{"jid":"one"}`)}
}

func TestADeclinedJobWaitsForItsAge(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ ago, least, most time.Duration }{
		{-time.Hour, time.Second, time.Second}, // the clock was set back: the row begins now
		{0, time.Second, time.Second},
		{20 * time.Second, 20 * time.Second, time.Minute},
		{2 * time.Hour, time.Minute, time.Minute},
		{24*time.Hour - 30*time.Second, 0, 30 * time.Second},
	} {
		t.Run(c.ago.String(), func(t *testing.T) {
			t.Parallel()
			r, due, now, since := declineOnce(t, c.ago)
			require.Equal(t, script.DeclineStateWaits, r.State)
			require.Len(t, due, 1)
			at := time.UnixMicro(int64(due[0].Score * 1e6))
			require.WithinRange(t, at, now.Add(c.least-2*time.Millisecond), now.Add(c.most+30*time.Second))
			require.Equal(t, fmt.Sprint(r.Since), since)
			if c.ago < 0 {
				require.Less(t, r.Since, now.Add(time.Minute).UnixMilli())
			} else {
				require.Equal(t, now.Add(-c.ago).UnixMilli(), r.Since)
			}
		})
	}
	r, due, _, _ := declineOnce(t, 24*time.Hour)
	require.Equal(t, script.DeclineStateOver, r.State)
	require.Empty(t, due)
}

// The time of the first decline is that of a row: a failure of the job, on either side, ends it.
func TestAFailureEndsTheRowOfDeclines(t *testing.T) {
	t.Parallel()
	s := newSite(t, sidekiq.V7)
	s.enqueue("default", payload("default", "a", `,"bid":"x"`), payload("default", "a", `,"bid":"x","retry_count":0`))
	end := s.work(s.d, nil, content)
	s.eventually("both are given back", func() bool { return len(s.members("schedule")) == 2 })
	end()
	require.Len(t, s.client.Keys(t.Context(), s.key("luatomic:sidekiq:declined:a:*")).Val(), 2)
}

// A late copy of a decline adds nothing: its job left the process with the first one.
func TestALateCopyOfADeclineAddsNothing(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	p := script.DeclineParams{
		Working: name + ":working", Schedule: name + ":schedule", Since: name + ":since", ID: 7,
		Patience: time.Hour, Payload: []byte(`{"class":"A"}`),
	}
	require.NoError(t, c.HSet(t.Context(), p.Working, p.ID, "x").Err())
	for _, want := range []script.DeclineState{script.DeclineStateWaits, script.DeclineStateGone} {
		r, err := script.Decline(t.Context(), c, p)
		require.NoError(t, err)
		require.Equal(t, want, r.State)
	}
	require.EqualValues(t, 1, c.ZCard(t.Context(), p.Schedule).Val())
}
