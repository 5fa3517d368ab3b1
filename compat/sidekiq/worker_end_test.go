package sidekiq_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/compat/sidekiq/internal/script"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
)

func TestTheEndGivesJobsBack(t *testing.T) {
	t.Parallel()
	s := newSite(t, sidekiq.V7)
	all := []string{payload("default", "a", ""), payload("default", "b", ""), payload("default", "c", "")}
	s.enqueue("default", all...)
	started := make(chan string, 3)
	causes := make(chan error, 2)
	opts := &sidekiq.WorkOptions{Concurrency: 3, Grace: 50 * time.Millisecond}
	end := s.work(s.d, opts, func(ctx context.Context, j *sidekiq.Delivery) error {
		started <- j.JID
		if j.JID == "b" {
			return nil
		}
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return ctx.Err()
	})
	for range 3 {
		<-started
	}
	s.eventually("b is done", func() bool { return s.count("stat:processed") == 1 })
	require.Equal(t, sidekiq.Worked{Done: 1, Returned: 2}, end())
	require.Equal(t, []string{all[2], all[0]}, s.list("default"), "the job that was served first is so again")
	require.Empty(t, s.workings())
	require.Equal(t, []string{"default"}, s.client.SMembers(t.Context(), s.key("queues")).Val())
	require.Equal(t, sidekiq.ErrStopped, <-causes)
	require.Equal(t, sidekiq.ErrStopped, <-causes)
	require.Empty(t, s.members("retry"), "a job that is interrupted has not failed")
}

// A handler that ignores its context keeps its job: no other process has the job while this one works on it.
func TestTheEndWaitsForAHandlerThatIgnoresIt(t *testing.T) {
	t.Parallel()
	s := newSite(t, sidekiq.V7)
	s.enqueue("default", payload("default", "a", ""))
	started, over, release := make(chan bool, 1), make(chan bool, 1), make(chan bool)
	end := s.work(s.d, &sidekiq.WorkOptions{Grace: 50 * time.Millisecond},
		func(ctx context.Context, _ *sidekiq.Delivery) error {
			started <- true
			<-ctx.Done()
			over <- true
			<-release
			return errors.New("too late")
		})
	<-started
	ended := make(chan sidekiq.Worked, 1)
	go func() { ended <- end() }()
	<-over
	select {
	case <-ended:
		t.Fatal("Work has returned before its handler")
	case <-time.After(300 * time.Millisecond):
	}
	require.Empty(t, s.list("default"))
	close(release)
	require.Equal(t, sidekiq.Worked{Returned: 1}, <-ended)
	require.Len(t, s.list("default"), 1)
	require.Empty(t, s.members("retry"))
}

// A signal of a deploy reaches Work as a closed channel: what runs is finished, and nothing more is taken.
func TestAClosedQuietTakesNothingMore(t *testing.T) {
	t.Parallel()
	s := newSite(t, sidekiq.V7)
	s.enqueue("default", payload("default", "a", ""), payload("default", "b", ""))
	quiet := make(chan struct{})
	opts := &sidekiq.WorkOptions{Concurrency: 1, Quiet: quiet}
	end := s.work(s.d, opts, func(context.Context, *sidekiq.Delivery) error {
		close(quiet)
		return nil
	})
	s.eventually("a is done", func() bool { return s.count("stat:processed") == 1 })
	require.Equal(t, sidekiq.Worked{Done: 1}, end())
	require.Equal(t, []string{payload("default", "b", "")}, s.list("default"))
}

// A handler that stops because the program ends has not failed: its job is neither dropped nor retried. An error of its
// own is a failure at any time, and so is one of a context of its own while nothing ends.
func TestAnErrorOfTheEndIsNoFailure(t *testing.T) {
	t.Parallel()
	cause := errors.New("shutdown")
	for name, c := range map[string]struct {
		stops bool
		err   error
		want  sidekiq.Worked
	}{
		"cancelled":            {true, fmt.Errorf("query: %w", context.Canceled), sidekiq.Worked{Returned: 1}},
		"the cause":            {true, fmt.Errorf("query: %w", cause), sidekiq.Worked{Returned: 1}},
		"stopped":              {true, fmt.Errorf("query: %w", sidekiq.ErrStopped), sidekiq.Worked{Returned: 1}},
		"its own error":        {true, errors.New("no"), sidekiq.Worked{Dropped: 1}},
		"its own deadline":     {true, context.DeadlineExceeded, sidekiq.Worked{Dropped: 1}},
		"cancelled by the job": {false, context.Canceled, sidekiq.Worked{Dropped: 1}},
		"discarded at the end": {true, sidekiq.Discard(context.Canceled), sidekiq.Worked{Dropped: 1}},
		"retried later":        {true, sidekiq.RetryIn(time.Hour, context.Canceled), sidekiq.Worked{Dropped: 1}},
		"killed at the end":    {true, sidekiq.Kill(context.Canceled), sidekiq.Worked{Dead: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, sidekiq.V7)
			s.enqueue("default", strings.Replace(payload("default", "a", ""), `"retry":true`, `"retry":false`, 1))
			ctx, stop := context.WithCancelCause(t.Context())
			defer stop(nil)
			failed := func(error, *sidekiq.Delivery) { stop(cause) }
			out, err := s.d.Work(ctx, &sidekiq.WorkOptions{Concurrency: 1, OnError: failed},
				func(context.Context, *sidekiq.Delivery) error {
					if c.stops {
						stop(cause)
					}
					return c.err
				})
			require.ErrorIs(t, err, cause)
			require.Equal(t, c.want, out)
			require.Equal(t, c.want.Returned, len(s.list("default")))
		})
	}
}

func TestJobsOfADeadProcessAreRescued(t *testing.T) {
	t.Parallel()
	s := newSite(t, sidekiq.V7)
	ctx := t.Context()
	a, b, c := payload("default", "a", ""), payload("other", "b", ""), payload("default", "c", "")
	label := func(queue string) string {
		key := s.key("queue:" + queue)
		return fmt.Sprintf("%d:%s", len(key), key)
	}
	dead := s.key("luatomic:sidekiq:working:dead")
	require.NoError(t, s.client.HSet(ctx, dead,
		"9", label("default")+a, "10", label("other")+b, "11", label("default")+c).Err())
	require.NoError(t, s.client.ZAdd(ctx, s.key("luatomic:sidekiq:processes"),
		redis.Z{Member: "dead", Score: 1}, redis.Z{Member: "bare", Score: 2}).Err())
	alive := s.key("luatomic:sidekiq:working:alive")
	require.NoError(t, s.client.HSet(ctx, alive, "1", label("default")+a).Err())
	require.NoError(t, s.client.ZAdd(ctx, s.key("luatomic:sidekiq:processes"),
		redis.Z{Member: "alive", Score: float64(time.Now().Add(time.Hour).UnixMilli())}).Err())

	end := s.work(s.d, &sidekiq.WorkOptions{
		Queues: []sidekiq.Queue{{Name: "unrelated"}}, Lease: 300 * time.Millisecond}, content)
	s.eventually("the hash is empty", func() bool { return s.client.Exists(ctx, dead).Val() == 0 })
	s.eventually("all that are over are forgotten", func() bool {
		return s.client.ZCard(ctx, s.key("luatomic:sidekiq:processes")).Val() == 2
	})
	require.Equal(t, 3, end().Rescued)
	require.Equal(t, []string{c, a}, s.list("default"))
	require.Equal(t, []string{b}, s.list("other"))
	require.ElementsMatch(t, []string{"default", "other"}, s.client.SMembers(ctx, s.key("queues")).Val())
	require.EqualValues(t, 1, s.client.HLen(ctx, alive).Val(), "jobs of the living are left alone")
}

// The key of one queue is of another type: the jobs of the other queues of a dead process are served all the same, and
// its own once the key is gone.
func TestAQueueThatIsRefusedKeepsNoOtherJobsOfADeadProcess(t *testing.T) {
	t.Parallel()
	s := newSite(t, sidekiq.V7)
	ctx := t.Context()
	label := func(queue string) string {
		key := s.key("queue:" + queue)
		return fmt.Sprintf("%d:%s", len(key), key)
	}
	dead, names := s.key("luatomic:sidekiq:working:dead"), []string{"a", "b", "c"}
	for i, name := range names {
		require.NoError(t, s.client.HSet(ctx, dead, strconv.Itoa(i+1), label(name)+payload(name, name, "")).Err())
	}
	require.NoError(t, s.client.Set(ctx, s.key("queue:b"), "no list", 0).Err())
	require.NoError(t, s.client.ZAdd(ctx, s.key("luatomic:sidekiq:processes"), redis.Z{Member: "dead", Score: 1}).Err())
	opts := &sidekiq.WorkOptions{Queues: []sidekiq.Queue{{Name: "unrelated"}}, Lease: 300 * time.Millisecond,
		OnError: func(error, *sidekiq.Delivery) {}}
	end := s.work(s.d, opts, content)
	s.eventually("one job is left", func() bool { return s.client.HLen(ctx, dead).Val() == 1 })
	require.Len(t, s.list("a"), 1)
	require.Len(t, s.list("c"), 1)
	require.NoError(t, s.client.Del(ctx, s.key("queue:b")).Err())
	s.eventually("none is left", func() bool { return s.client.Exists(ctx, dead).Val() == 0 })
	require.Len(t, s.list("b"), 1)
	require.Equal(t, 3, end().Rescued)
}

func TestAWorkerHearsThatItsJobsWereTakenBack(t *testing.T) {
	t.Parallel()
	s := newSite(t, sidekiq.V7)
	ctx := t.Context()
	s.enqueue("default", payload("default", "a", ""))
	cause := make(chan error, 1)
	opts := &sidekiq.WorkOptions{Lease: 300 * time.Millisecond, Concurrency: 1}
	end := s.work(s.d, opts, func(ctx context.Context, _ *sidekiq.Delivery) error {
		<-ctx.Done()
		cause <- context.Cause(ctx)
		return nil
	})
	s.eventually("the job is in flight", func() bool { return len(s.workings()) == 1 })
	// What another process does when the lease has expired.
	require.NoError(t, s.client.Del(ctx, s.workings()[0], s.key("luatomic:sidekiq:processes")).Err())
	select {
	case err := <-cause:
		require.Equal(t, sidekiq.ErrTakenBack, err)
	case <-time.After(30 * time.Second):
		t.Fatal("the handler's context did not end")
	}
	s.eventually("the process is listed again", func() bool {
		return s.client.ZCard(ctx, s.key("luatomic:sidekiq:processes")).Val() == 1
	})
	require.Equal(t, sidekiq.Worked{Lost: 1}, end())
	require.Zero(t, s.count("stat:processed"))
}

// heldBack runs a function after the server's first reply to a script, before the worker receives it.
func heldBack(text *lua.Script, do func()) *lab.Around {
	var once sync.Once
	return &lab.Around{Sha: lab.Digest(text), Do: func(run func() error) error {
		err := run()
		if err == nil {
			once.Do(do)
		}
		return err
	}}
}

func TestJobsAreTakenBackWhileTheyAreOnTheirWay(t *testing.T) {
	t.Parallel()
	s := newSite(t, sidekiq.V7)
	ctx := t.Context()
	processes := s.key("luatomic:sidekiq:processes")
	s.enqueue("default", payload("default", "a", ""))
	require.NoError(t, s.client.ScriptLoad(ctx, lab.Text(s.client, &script.WorkerTakeScript)).Err(),
		"so that it is called by its digest")
	slow := redis.NewClient(s.client.Options())
	t.Cleanup(func() { _ = slow.Close() })
	lua.Direct(slow) // the hook sees no shared round trip
	slow.AddHook(heldBack(&script.WorkerTakeScript, func() {
		s.client.Del(ctx, s.workings()[0], processes)
		s.eventually("a heartbeat lists the process again", func() bool {
			return s.client.ZCard(ctx, processes).Val() == 1
		})
		first := s.client.ZRangeWithScores(ctx, processes, 0, 0).Val()[0].Score
		s.eventually("another heartbeat follows, so the reply of that one was read", func() bool {
			return s.client.ZRangeWithScores(ctx, processes, 0, 0).Val()[0].Score > first
		})
	}))
	cause := make(chan error, 1)
	opts := &sidekiq.WorkOptions{Lease: 300 * time.Millisecond}
	end := s.work(s.dialect(slow, sidekiq.V7), opts, func(ctx context.Context, _ *sidekiq.Delivery) error {
		<-ctx.Done()
		cause <- context.Cause(ctx)
		return nil
	})
	select {
	case err := <-cause:
		require.Equal(t, sidekiq.ErrTakenBack, err)
	case <-time.After(30 * time.Second):
		t.Fatal("the handler's context did not end")
	}
	require.Equal(t, sidekiq.Worked{Lost: 1}, end())
}

// A heartbeat finds the job of a failed handler out of the hash before the worker knows that it is in retry: it is no
// job that was taken back.
func TestAJobOnItsWayToRetryIsNotTakenBack(t *testing.T) {
	t.Parallel()
	s := newSite(t, sidekiq.V7)
	ctx := t.Context()
	processes := s.key("luatomic:sidekiq:processes")
	s.enqueue("default", payload("default", "a", ""))
	require.NoError(t, s.client.ScriptLoad(ctx, lab.Text(s.client, &script.RetryLaterScript)).Err(),
		"so that it is called by its digest")
	slow := redis.NewClient(s.client.Options())
	t.Cleanup(func() { _ = slow.Close() })
	lua.Direct(slow) // the hook sees no shared round trip
	lease := func() float64 { return s.client.ZRangeWithScores(ctx, processes, 0, 0).Val()[0].Score }
	slow.AddHook(heldBack(&script.RetryLaterScript, func() {
		for range 2 { // the reply of the first was read when the second is sent
			last := lease()
			s.eventually("a heartbeat", func() bool { return lease() > last })
		}
	}))
	opts := &sidekiq.WorkOptions{Lease: 300 * time.Millisecond}
	end := s.work(s.dialect(slow, sidekiq.V7), opts, func(context.Context, *sidekiq.Delivery) error { return errSad })
	s.eventually("it is in retry", func() bool { return len(s.members("retry")) == 1 })
	require.Equal(t, sidekiq.Worked{Retried: 1}, end())
}

// A handler fails after another process has put its job back, and before a heartbeat says so: the job is in no set.
func TestAFailureAfterARescueIsALostJob(t *testing.T) {
	t.Parallel()
	for name, failure := range map[string]error{
		"retried": errSad, "dead": sidekiq.Kill(errSad), "dropped": sidekiq.Discard(errSad),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, sidekiq.V7)
			s.enqueue("default", payload("default", "a", ""))
			rescued := make(chan error, 1)
			end := s.work(s.d, nil, func(ctx context.Context, _ *sidekiq.Delivery) error {
				rescued <- s.client.Del(ctx, s.workings()[0], s.key("luatomic:sidekiq:processes")).Err()
				return failure
			})
			require.NoError(t, lab.Soon(t, 30*time.Second, "the rescue", rescued))
			require.Equal(t, sidekiq.Worked{Lost: 1}, end())
			require.Empty(t, append(s.members("retry"), s.members("dead")...))
		})
	}
}

// A job that is taken after a rescue is the process's own.
func TestARescueTakesNoLaterJobBack(t *testing.T) {
	t.Parallel()
	s := newSite(t, sidekiq.V7)
	ctx := t.Context()
	s.enqueue("default", payload("default", "a", ""))
	opts := &sidekiq.WorkOptions{Lease: 300 * time.Millisecond, Concurrency: 1}
	causes := make(chan error, 2)
	end := s.work(s.d, opts, func(ctx context.Context, j *sidekiq.Delivery) error {
		if j.JID == "a" {
			<-ctx.Done()
		}
		causes <- context.Cause(ctx)
		return nil
	})
	s.eventually("the job is in flight", func() bool { return len(s.workings()) == 1 })
	require.NoError(t, s.client.Del(ctx, s.workings()[0], s.key("luatomic:sidekiq:processes")).Err())
	require.Equal(t, sidekiq.ErrTakenBack, lab.Soon(t, 30*time.Second, "the end of a's context", causes))
	s.enqueue("default", payload("default", "b", ""))
	require.NoError(t, lab.Soon(t, 30*time.Second, "b", causes))
	s.eventually("b is done", func() bool { return s.count("stat:processed") == 1 })
	require.Equal(t, sidekiq.Worked{Lost: 1, Done: 1}, end())
}

// The first call after a rescue lists the process again. Its reply is lost, and the client sends it once more: the
// process learns all the same that its job was put back.
func TestALostReplyHidesNoRescue(t *testing.T) {
	t.Parallel()
	for _, first := range []*lua.Script{&script.WorkerBeatScript, &script.WorkerTakeScript} {
		t.Run(first.Name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, sidekiq.V7)
			ctx := t.Context()
			lossy, proxy := s.lossy()
			s.enqueue("default", payload("default", "a", ""))
			causes := make(chan error, 1)
			opts := &sidekiq.WorkOptions{Lease: 900 * time.Millisecond, Concurrency: 2}
			end := s.work(s.dialect(lossy, sidekiq.V7), opts, func(ctx context.Context, j *sidekiq.Delivery) error {
				if j.JID == "a" {
					<-ctx.Done()
					causes <- context.Cause(ctx)
				}
				return nil
			})
			s.eventually("the job is in flight", func() bool { return len(s.workings()) == 1 })
			proxy.Drop(1, lab.Sent(first))
			// What another process does when the lease has expired, and then it takes the job.
			require.NoError(t, s.client.Del(ctx, s.workings()[0], s.key("luatomic:sidekiq:processes")).Err())
			more := 0
			if first == &script.WorkerTakeScript {
				more = 1
				s.enqueue("default", payload("default", "b", ""))
			}
			require.Equal(t, sidekiq.ErrTakenBack, lab.Soon(t, 30*time.Second, "the end of a's context", causes))
			s.eventually("b is done", func() bool { return s.count("stat:processed") == more })
			require.Equal(t, sidekiq.Worked{Lost: 1, Done: more}, end())
			require.EqualValues(t, 1, proxy.Stats().Lost)
		})
	}
}
