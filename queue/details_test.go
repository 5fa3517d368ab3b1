package queue_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// detailed has every field beside the body.
func detailed(id string) queue.Job {
	return queue.Job{
		ID: id, Body: []byte("\x00body\xff"), Kind: "mail.send", Headers: map[string]string{"a": "1:2"},
		MaxFailures: 7, Timeout: 1500 * time.Millisecond, ExpiresAt: time.UnixMilli(lab.Future),
	}
}

// What a job has beside its body reaches each delivery and Peek, from every way of pushing, and its body is as given.
// It is deleted with the job.
func TestDetailsTravelBesideTheBody(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	want := queue.Details{Kind: "mail.send", Headers: map[string]string{"a": "1:2", "trace": "00-ab"},
		MaxFailures: 7, Timeout: 1500 * time.Millisecond, ExpiresAt: time.UnixMilli(lab.Future)}
	ways := map[string]func(queue.Job) error{
		"push":  func(j queue.Job) error { _, err := q.Push(ctx, j); return err },
		"batch": func(j queue.Job) error { _, err := q.Push(ctx, queue.Job{ID: "plain"}, j); return err },
		"all": func(j queue.Job) error {
			_, err := queue.PushAll(ctx, queue.Batch{Queue: q, Jobs: []queue.Job{j}})
			return err
		},
		"named": func(j queue.Job) error { j.Unique = "0:7:x"; _, err := q.Push(ctx, j); return err },
	}
	for way, push := range ways {
		j := detailed(way)
		j.Headers = want.Headers
		require.NoError(t, push(j), way)
	}
	peeked, err := q.Peek(ctx, queue.Ready, 0, 10)
	require.NoError(t, err)
	require.Len(t, peeked, 5)
	taken, err := q.Take(ctx, 10)
	require.NoError(t, err)
	require.Len(t, taken.Deliveries, 5)
	for i, d := range taken.Deliveries {
		if d.ID == "plain" {
			require.Equal(t, queue.Details{}, d.Details)
			continue
		}
		require.Equal(t, want, d.Details, d.ID)
		require.Equal(t, want, peeked[i].Details, d.ID)
		require.Equal(t, "\x00body\xff", string(d.Body))
	}
	require.Equal(t, int64(4), c.HLen(ctx, lab.Key(q, "o")).Val(), "the plain job has none")
	require.NoError(t, q.Ack(ctx, taken.Deliveries...))
	require.Zero(t, c.Exists(ctx, lab.Key(q, "o"), lab.Key(q, "b")).Val())
}

// Cancel and Trim delete what a job has beside its body, and a requeued job keeps it.
func TestDetailsGoWithTheJob(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	job := func(id string) queue.Job { return queue.Job{ID: id, Headers: map[string]string{"h": id}} }
	scheduled := job("scheduled")
	scheduled.Delay = time.Hour
	lab.Push(t, q, job("dead"), job("trimmed"), job("ready"), scheduled)
	for _, id := range []string{"dead", "trimmed"} {
		d := lab.TakeOne(t, q)
		require.Equal(t, id, d.ID)
		require.NoError(t, d.Bury(ctx, "why"))
	}
	_, err := q.Cancel(ctx, "ready", "scheduled")
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"dead", "trimmed"}, c.HKeys(ctx, lab.Key(q, "o")).Val())
	_, err = q.Requeue(ctx, "dead")
	require.NoError(t, err)
	removed, err := q.Trim(ctx, queue.DeadLimits{Bytes: 1})
	require.NoError(t, err)
	require.Zero(t, removed, "its body is empty")
	_, err = q.Cancel(ctx, "trimmed")
	require.NoError(t, err)
	require.Equal(t, []string{"dead"}, c.HKeys(ctx, lab.Key(q, "o")).Val())
	d := lab.TakeOne(t, q)
	require.Equal(t, map[string]string{"h": "dead"}, d.Headers)
	require.NoError(t, d.Bury(ctx, "again"))
	lab.Push(t, q, job("second"))
	require.NoError(t, lab.TakeOne(t, q).Bury(ctx, "why"))
	removed, err = q.Trim(ctx, queue.DeadLimits{Jobs: 1})
	require.NoError(t, err)
	require.Equal(t, 1, removed)
	require.Equal(t, []string{"second"}, c.HKeys(ctx, lab.Key(q, "o")).Val())
}

// Any headers come back as they were.
func TestHeadersKeepTheirBytes(t *testing.T) {
	t.Parallel()
	q, _ := lab.NewQueue(t, nil)
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[\x00-\xff:0-9]{1,12}`)
		headers := rapid.MapOfN(text, text, 1, 5).Draw(t, "headers")
		_, err := q.Push(context.Background(), queue.Job{Headers: headers})
		if err != nil {
			t.Fatal(err)
		}
		taken, err := q.Take(context.Background(), 1)
		if err != nil || len(taken.Deliveries) != 1 || fmt.Sprint(taken.Deliveries[0].Headers) != fmt.Sprint(headers) {
			t.Fatalf("got %q, %v; want %q", taken.Deliveries[0].Headers, err, headers)
		}
		if err := taken.Deliveries[0].Ack(context.Background()); err != nil {
			t.Fatal(err)
		}
	})
}

// Each field out of its bounds is an error with the cure, before anything is sent.
func TestBadDetails(t *testing.T) {
	t.Parallel()
	q, c := lab.NewQueue(t, &queue.Options{Lease: time.Second})
	many := make(map[string]string)
	for i := range 65 {
		many[fmt.Sprint(i)] = ""
	}
	long, at := strings.Repeat("x", 1025), time.Now().Add(time.Hour)
	for text, bad := range map[string]struct {
		job  queue.Job
		kind error
	}{
		"the name of a header has 1025 bytes, at most 1024": {queue.Job{Headers: map[string]string{long: ""}},
			lua.ErrBadName},
		"a header has no name; give it one": {queue.Job{Headers: map[string]string{"": ""}}, lua.ErrBadName},
		`header "a": 1025 bytes, at most 1024`: {queue.Job{Headers: map[string]string{"a": long}},
			lua.ErrTooLarge},
		"headers: 65 items, at most 64": {queue.Job{Headers: many}, lua.ErrTooLarge},
		"names that begin with luatomic- are reserved": {queue.Job{Headers: map[string]string{"Luatomic-Kind": "x"}},
			lua.ErrBadName},
		"timeout: -1ns is out of range": {queue.Job{Timeout: -1}, lua.ErrOutOfRange},
		"at least a time after At":      {queue.Job{At: at, ExpiresAt: at}, lua.ErrOutOfRange},
		"kind":                          {queue.Job{Kind: "{"}, lua.ErrBadName},
	} {
		_, err := q.Push(t.Context(), bad.job)
		require.ErrorIs(t, err, bad.kind, text)
		require.ErrorContains(t, err, text)
		_, err = queue.PushAll(t.Context(), queue.Batch{Queue: q, Jobs: []queue.Job{bad.job}})
		require.ErrorIs(t, err, bad.kind, text)
	}
	require.Zero(t, c.Exists(t.Context(), lab.Key(q, "b"), lab.Key(q, "o")).Val())
}

// A job's own limit of failures comes before that of the queue, for a handler that fails and for a worker that dies.
func TestMaxFailuresOfAJob(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, &queue.Options{MaxFailures: 2})
	lab.Push(t, q, queue.Job{ID: "once", MaxFailures: 1}, queue.Job{ID: "twice"},
		queue.Job{ID: "thrice", MaxFailures: 3}, queue.Job{ID: "ever", MaxFailures: -1})
	runs := map[string]int{}
	out, err := q.Consume(ctx, &queue.ConsumeOptions{Drain: true, Concurrency: 1, Backoff: noWait},
		func(_ context.Context, d *queue.Delivery) error {
			if runs[d.ID]++; runs[d.ID] == 5 {
				return nil
			}
			return errors.New("no")
		})
	require.NoError(t, err)
	require.Equal(t, 3, out.Dead)
	require.Equal(t, map[string]int{"once": 1, "twice": 2, "thrice": 3, "ever": 5}, runs)

	// for workers that die
	q, err = queue.New(c, q.Name(), &queue.Options{MaxFailures: 2, Lease: 100 * time.Millisecond})
	require.NoError(t, err)
	lab.Push(t, q, queue.Job{ID: "never", MaxFailures: -1}, queue.Job{ID: "first", MaxFailures: 1})
	for range 4 {
		_, err := q.Reschedule(ctx, "never", time.Unix(1, 0)) // it waits when its lease has ended twice
		require.NoError(t, err)
		taken, err := q.Take(ctx, 2)
		require.NoError(t, err)
		require.NotEmpty(t, taken.Deliveries)
		time.Sleep(110 * time.Millisecond)
		_, err = q.Reclaim(ctx)
		require.NoError(t, err)
	}
	stats, err := q.Stats(ctx)
	require.NoError(t, err)
	require.Equal(t, 4, stats.Dead)
	peeked, err := q.Peek(ctx, queue.Scheduled, 0, 1)
	require.NoError(t, err)
	require.Equal(t, "never", peeked[0].ID)
	require.Equal(t, 4, peeked[0].Failures)
}

// The handler's context ends after the job's Timeout, with ErrTimeout, and the job has failed with that reason.
func TestTimeoutOfAJob(t *testing.T) {
	t.Parallel()
	q, _ := lab.NewQueue(t, &queue.Options{MaxFailures: 1})
	lab.Push(t, q, queue.Job{Timeout: 50 * time.Millisecond})
	began := time.Now()
	out, err := q.Consume(t.Context(), &queue.ConsumeOptions{Drain: true},
		func(ctx context.Context, _ *queue.Delivery) error {
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), queue.ErrTimeout)
			return ctx.Err()
		})
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Since(began), 50*time.Millisecond)
	require.Equal(t, queue.Consumed{Dead: 1}, out)
	peeked, err := q.Peek(t.Context(), queue.Dead, 0, 1)
	require.NoError(t, err)
	require.Contains(t, peeked[0].Reason, queue.ErrTimeout.Error())
}

// A job's Timeout may be longer than the lease of the producer and that of the worker: the two settings belong to two
// processes, and the consumer renews the lease for as long as the handler runs.
func TestATimeoutMayBeLongerThanTheLease(t *testing.T) {
	t.Parallel()
	const lease = 2 * time.Second
	q, c := lab.NewQueue(t, &queue.Options{Lease: lease})
	for id, timeout := range map[string]time.Duration{"half an hour": 30 * time.Minute, "for ever": math.MaxInt64} {
		lab.Push(t, q, queue.Job{ID: id, Timeout: timeout})
		other := queue.Job{ID: id + "!", Timeout: timeout}
		_, err := queue.PushAll(t.Context(), queue.Batch{Queue: q, Jobs: []queue.Job{other}})
		require.NoError(t, err)
	}
	out, err := q.Consume(t.Context(), &queue.ConsumeOptions{Drain: true},
		func(ctx context.Context, d *queue.Delivery) error {
			require.GreaterOrEqual(t, d.Timeout, 30*time.Minute, d.ID)
			taken := c.ZScore(ctx, lab.Key(q, "l"), d.ID).Val()
			luatomictest.Eventually(t, time.Minute, "the lease is over, if nothing renews it", func() bool {
				until := c.ZScore(ctx, lab.Key(q, "l"), d.ID).Val()
				return ctx.Err() != nil || until > taken+float64(lease.Microseconds())
			})
			return ctx.Err()
		})
	require.NoError(t, err)
	require.Equal(t, queue.Consumed{Acked: 4}, out)
}

// No worker gets a job after its ExpiresAt, by Take or in Consume, also when it expires while it waits for a handler.
// It is deleted with its unique name.
func TestExpiredJobsAreDeleted(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	past := time.Now().Add(-time.Minute)
	lab.Push(t, q, queue.Job{ID: "a", ExpiresAt: past, Unique: "name"}, queue.Job{ID: "b"})
	taken, err := q.Take(ctx, 10)
	require.NoError(t, err)
	require.Len(t, taken.Deliveries, 1)
	require.Equal(t, "b", taken.Deliveries[0].ID)
	require.Equal(t, 1, taken.Dropped)
	require.NoError(t, taken.Deliveries[0].Ack(ctx))
	luatomictest.Eventually(t, time.Minute, "it is deleted", func() bool { // by the take, or at the end of its lease
		_ = lab.Must(q.Reclaim(ctx))
		require.Empty(t, lab.Must(q.Take(ctx, 1)).Deliveries)
		return c.Exists(ctx, lab.Key(q, "b"), lab.Key(q, "o"), lab.Key(q, "u"), lab.Key(q, "l")).Val() == 0
	})

	lab.Push(t, q, queue.Job{ID: "slow"}, queue.Job{ID: "expired", ExpiresAt: past},
		queue.Job{ID: "soon", ExpiresAt: time.Now().Add(300 * time.Millisecond)})
	var ran []string
	out, err := q.Consume(ctx, &queue.ConsumeOptions{Drain: true, Concurrency: 1},
		func(_ context.Context, d *queue.Delivery) error {
			ran = append(ran, d.ID)
			time.Sleep(400 * time.Millisecond)
			return nil
		})
	require.NoError(t, err)
	require.Equal(t, []string{"slow"}, ran)
	out.Retried = 0 // where the reply of its take was slow, the job may be returned before it has expired
	require.Equal(t, queue.Consumed{Acked: 1, Expired: 2}, out)
}

// A job that expires at a time that no clock reaches does not expire.
func TestAJobThatNeverExpires(t *testing.T) {
	t.Parallel()
	q, _ := lab.NewQueue(t, nil)
	for _, never := range []time.Time{
		time.Unix(1<<62, 0), time.Unix(1<<63-62135596801, 999999999), time.UnixMilli(math.MaxInt64),
	} {
		lab.Push(t, q, queue.Job{ExpiresAt: never})
		d := lab.TakeOne(t, q)
		require.True(t, d.ExpiresAt.Year() > 9999, d.ExpiresAt)
		require.NoError(t, d.Ack(t.Context()))
	}
}

// Options of deleted jobs are found by an audit, and removed by a repair.
func TestAuditFindsOptionsOfDeletedJobs(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	lab.Push(t, q, queue.Job{ID: "there", Kind: "k"})
	require.NoError(t, c.HSet(ctx, lab.Key(q, "o"), "deleted", "0:0:0:1:k").Err())
	found, err := q.Audit(ctx, true)
	require.NoError(t, err)
	require.Equal(t, 1, found.StaleCounts)
	require.Equal(t, 1, found.Repaired)
	require.Equal(t, []string{"there"}, c.HKeys(ctx, lab.Key(q, "o")).Val())
}

// Each script that adds or gives out jobs refuses a later layout, with the cure, and changes nothing. Those that only
// touch jobs that they find do not ask, and a later layout leaves none in the keys of this one. docs/layout.md has both
// lists.
func TestALaterLayoutIsRefused(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, &queue.Options{Lease: 50 * time.Millisecond})
	lab.Push(t, q, queue.Job{ID: "leased"}, queue.Job{ID: "ready"}, queue.Job{ID: "later", Delay: time.Hour})
	d := lab.TakeOne(t, q)
	time.Sleep(60 * time.Millisecond)
	require.NoError(t, c.HSet(ctx, lab.Key(q, "c"), "paused", "layout 2", "limit", "layout 2").Err())
	before := lab.Dump(ctx, t, c, q.Name())
	for what, call := range map[string]func() error{
		"push":     func() error { _, err := q.Push(ctx, queue.Job{}); return err },
		"push two": func() error { _, err := q.Push(ctx, queue.Job{}, queue.Job{}); return err },
		"push all": func() error {
			_, err := queue.PushAll(ctx, queue.Batch{Queue: q, Jobs: []queue.Job{{}}})
			return err
		},
		"take":    func() error { _, err := q.Take(ctx, 1); return err },
		"nack":    func() error { return d.Nack(ctx, 0, "why") },
		"reclaim": func() error { _, err := q.Reclaim(ctx); return err },
		"cancel":  func() error { _, err := q.Cancel(ctx, "ready"); return err },
		"requeue": func() error { _, err := q.Requeue(ctx, "ready"); return err },
		"bury":    func() error { _, err := q.BuryJobs(ctx, "why", "ready"); return err },
		"trim":    func() error { _, err := q.Trim(ctx, queue.DeadLimits{Jobs: 1}); return err },
		"pause":   func() error { return q.Pause(ctx) },
		"resume":  func() error { return q.Resume(ctx) },
		"limit":   func() error { return q.SetLimit(ctx, 1) },
		"stats":   func() error { _, err := q.Stats(ctx); return err },
		"consume": func() error { _, err := q.Consume(ctx, nil, acks); return err },
	} {
		err := call()
		require.ErrorIs(t, err, queue.ErrLayout, what)
		require.ErrorContains(t, err, "update luatomic", what)
	}
	require.Equal(t, before, lab.Dump(ctx, t, c, q.Name()))
	later := time.Now().Add(time.Hour)
	for what, call := range map[string]func() error{
		"reschedule": func() error { _, err := q.Reschedule(ctx, "later", later); return err },
		"promote":    func() error { _, err := q.Promote(ctx); return err },
		"find":       func() error { _, err := q.Find(ctx, "later"); return err },
		"peek":       func() error { _, err := q.Peek(ctx, queue.Ready, 0, 10); return err },
	} {
		require.NoError(t, call(), what)
	}
	require.NoError(t, d.Extend(ctx, time.Minute))
	require.NoError(t, d.Ack(ctx))
}
