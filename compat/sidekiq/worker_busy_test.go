package sidekiq_test

import (
	"context"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/compat/sidekiq/internal/script"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// onThePage returns the only process that the Busy page shows.
func (s *site) onThePage() (process string) {
	s.t.Helper()
	s.eventually("the page shows the process", func() bool {
		processes := s.client.SMembers(s.t.Context(), s.key("processes")).Val()
		if len(processes) == 1 {
			process = processes[0]
		}
		return len(processes) == 1
	})
	return process
}

// beats waits for n heartbeats of a process.
func (s *site) beats(process string, n int) {
	s.t.Helper()
	beat := func() string { return s.client.HGet(s.t.Context(), s.key(process), "beat").Val() }
	for range n {
		last := beat()
		s.eventually("a heartbeat", func() bool { return beat() != last })
	}
}

// A button that is pressed while a heartbeat loses its reply is not lost with it.
func TestAButtonOutlastsALostHeartbeat(t *testing.T) {
	t.Parallel()
	s := newSite(t, sidekiq.V7)
	lossy, proxy := s.lossy()
	exec := luatomictest.Command("EXEC")
	proxy.Drop(1, func(args []string) bool {
		if !exec(args) {
			return false
		}
		process := s.client.SMembers(t.Context(), s.key("processes")).Val()
		return len(process) == 1 && s.client.LPush(t.Context(), s.key(process[0]+"-signals"), "TERM").Err() == nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_, err := s.dialect(lossy, sidekiq.V7).Work(ctx, &sidekiq.WorkOptions{WebUI: true, Lease: 150 * time.Millisecond},
		func(context.Context, *sidekiq.Delivery) error { return nil })
	require.ErrorIs(t, err, sidekiq.ErrStopRequested)
}

// The buttons of the Busy page: after Quiet nothing more is taken and what runs is finished; Stop ends Work.
func TestTheButtonsOfTheBusyPageReachAWorker(t *testing.T) {
	t.Parallel()
	s := newSite(t, sidekiq.V7)
	ctx := t.Context()
	s.enqueue("default", payload("default", "a", ""))
	release, started := make(chan bool), make(chan string, 2)
	type ending struct {
		worked sidekiq.Worked
		err    error
	}
	ended := make(chan ending, 1)
	go func() {
		worked, err := s.d.Work(context.WithoutCancel(ctx),
			&sidekiq.WorkOptions{WebUI: true, Lease: 150 * time.Millisecond},
			func(ctx context.Context, j *sidekiq.Delivery) error {
				started <- j.JID
				<-release
				return ctx.Err()
			})
		ended <- ending{worked, err}
	}()
	require.Equal(t, "a", <-started)
	process := s.onThePage()
	require.NotContains(t, s.client.HGet(ctx, s.key(process), "info").Val(), `"embedded":true`, "Ruby raises then")
	require.Equal(t, "false", s.client.HGet(ctx, s.key(process), "quiet").Val())
	rss, err := s.client.HGet(ctx, s.key(process), "rss").Int()
	require.NoError(t, err)
	if runtime.GOOS == "linux" {
		require.Greater(t, rss, 1000, "KiB of a Go process")
	}

	require.NoError(t, s.client.LPush(ctx, s.key(process+"-signals"), "TTIN", "TSTP").Err())
	s.eventually("it is quiet", func() bool { return s.client.HGet(ctx, s.key(process), "quiet").Val() == "true" })
	s.enqueue("default", payload("default", "b", ""))
	s.beats(process, 5)
	release <- true
	s.eventually("the first is done", func() bool { return s.count("stat:processed") == 1 })
	s.beats(process, 5)
	require.Len(t, s.list("default"), 1, "a quiet process takes nothing")

	require.NoError(t, s.client.LPush(ctx, s.key(process+"-signals"), "TERM").Err())
	select {
	case e := <-ended:
		require.ErrorIs(t, e.err, sidekiq.ErrStopRequested)
		require.Equal(t, sidekiq.Worked{Done: 1}, e.worked)
	case <-time.After(time.Minute):
		t.Fatal("Work does not end")
	}
	require.Zero(t, s.client.Exists(ctx, s.key("processes"), s.key(process), s.key(process+"-signals")).Val())
}

// Sidekiq 4 sends USR1 where 5 and later send TSTP.
func TestTheQuietButtonOfSidekiq4ReachesAWorker(t *testing.T) {
	t.Parallel()
	s := newSite(t, sidekiq.V4)
	ctx := t.Context()
	s.work(s.d, &sidekiq.WorkOptions{WebUI: true, Lease: 150 * time.Millisecond}, content)
	process := s.onThePage()
	require.NoError(t, s.client.LPush(ctx, s.key(process+"-signals"), "USR1").Err())
	s.beats(process, 5)
	require.Equal(t, "true", s.client.HGet(ctx, s.key(process), "quiet").Val())
}

// full is an error that a call does not retry.
type full struct{}

func (full) Error() string { return "OOM command not allowed when used memory > 'maxmemory'." }
func (full) RedisError()   {}

// failsOnce makes the first take of a worker fail after Quiet was pressed. Executed says whether it took its jobs.
func (s *site) failsOnce(executed bool) *redis.Client {
	s.t.Helper()
	ctx := s.t.Context()
	require.NoError(s.t, s.client.ScriptLoad(ctx, lab.Text(s.client, &script.WorkerTakeScript)).Err(),
		"so that it is called by its digest")
	client := redis.NewClient(s.client.Options())
	s.t.Cleanup(func() { _ = client.Close() })
	lua.Direct(client) // the hook sees no shared round trip
	var failed atomic.Bool
	client.AddHook(&lab.Around{Sha: lab.Digest(&script.WorkerTakeScript), Do: func(run func() error) error {
		if !failed.CompareAndSwap(false, true) {
			return run()
		}
		if executed {
			assert.NoError(s.t, run())
		}
		process := s.onThePage()
		s.client.LPush(ctx, s.key(process+"-signals"), "TSTP")
		s.eventually("it is quiet", func() bool { return s.client.HGet(ctx, s.key(process), "quiet").Val() == "true" })
		s.enqueue("default", payload("default", "b", ""))
		return full{}
	}})
	return client
}

// A take whose reply is lost before Quiet has taken jobs: the process performs them, and takes no others.
func TestAQuietProcessPerformsWhatALostTakeTook(t *testing.T) {
	t.Parallel()
	for name, executed := range map[string]bool{"its reply is lost": true, "it does not arrive": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, sidekiq.V7)
			s.enqueue("default", payload("default", "a", ""))
			opts := &sidekiq.WorkOptions{WebUI: true, Lease: 150 * time.Millisecond}
			end := s.work(s.dialect(s.failsOnce(executed), sidekiq.V7), opts,
				func(context.Context, *sidekiq.Delivery) error { return nil })
			done, left := 0, 2
			if executed {
				done, left = 1, 1
			}
			s.eventually("b is enqueued", func() bool { return len(s.list("default")) == left })
			s.eventually("a is done", func() bool { return s.count("stat:processed") == done })
			s.beats(s.onThePage(), 3)
			require.Len(t, s.list("default"), left, "a quiet process takes nothing")
			require.Equal(t, sidekiq.Worked{Done: done}, end())
		})
	}
}

// A process whose jobs were put back is not shown any longer, with or without a page entry of the rescuer.
func TestARescuedProcessLeavesTheBusyPage(t *testing.T) {
	t.Parallel()
	for _, version := range []sidekiq.Version{sidekiq.V6, sidekiq.V7} {
		t.Run(strconv.Itoa(int(version)), func(t *testing.T) {
			t.Parallel()
			s := newSite(t, version)
			ctx := t.Context()
			running := map[sidekiq.Version][]string{sidekiq.V6: {":work", ":workers"}, sidekiq.V7: {":work"}}[version]
			queue := s.key("queue:default")
			require.NoError(t, s.client.HSet(ctx, s.key("luatomic:sidekiq:working:dead"), "1",
				strconv.Itoa(len(queue))+":"+queue+payload("default", "a", "")).Err())
			require.NoError(t, s.client.SAdd(ctx, s.key("processes"), "dead", "ruby").Err())
			require.NoError(t, s.client.HSet(ctx, s.key("dead"), "busy", 1).Err())
			for _, suffix := range running {
				require.NoError(t, s.client.HSet(ctx, s.key("dead"+suffix), "1", "{}").Err())
			}
			require.NoError(t, s.client.LPush(ctx, s.key("dead-signals"), "TERM").Err())
			leases := s.key("luatomic:sidekiq:processes")
			require.NoError(t, s.client.ZAdd(ctx, leases, redis.Z{Member: "dead", Score: 1}).Err())
			end := s.work(s.d, &sidekiq.WorkOptions{Lease: 300 * time.Millisecond}, content)
			s.eventually("its job is done", func() bool { return s.count("stat:processed") == 1 })
			require.Equal(t, sidekiq.Worked{Done: 1, Rescued: 1}, end())
			require.Equal(t, []string{"ruby"}, s.client.SMembers(ctx, s.key("processes")).Val())
			require.Empty(t, s.client.Keys(ctx, s.key("dead*")).Val())
		})
	}
}

// A rescue whose reply comes after the worker was stopped counts, and the dead process has left the page with its jobs.
func TestARescueOutlastsTheStop(t *testing.T) {
	t.Parallel()
	s := newSite(t, sidekiq.V7)
	ctx := t.Context()
	queue := s.key("queue:default")
	require.NoError(t, s.client.HSet(ctx, s.key("luatomic:sidekiq:working:dead"), "1",
		strconv.Itoa(len(queue))+":"+queue+payload("default", "a", "")).Err())
	require.NoError(t, s.client.SAdd(ctx, s.key("processes"), "dead").Err())
	leases := s.key("luatomic:sidekiq:processes")
	require.NoError(t, s.client.ZAdd(ctx, leases, redis.Z{Member: "dead", Score: 1}).Err())
	require.NoError(t, s.client.ScriptLoad(ctx, lab.Text(s.client, &script.WorkerReturnScript)).Err(),
		"so that it is called by its digest")
	rescuer := redis.NewClient(s.client.Options())
	t.Cleanup(func() { _ = rescuer.Close() })
	lua.Direct(rescuer) // the hook sees no shared round trip
	working, stop := context.WithCancel(ctx)
	defer stop()
	rescuer.AddHook(heldBack(&script.WorkerReturnScript, func() {
		stop()
		time.Sleep(100 * time.Millisecond) // the worker, which has no job, waits for its heartbeat by then
	}))
	worked, err := s.dialect(rescuer, sidekiq.V7).Work(working,
		&sidekiq.WorkOptions{Queues: []sidekiq.Queue{{Name: "other"}}, Lease: 300 * time.Millisecond}, content)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, sidekiq.Worked{Rescued: 1}, worked)
	require.Zero(t, s.client.Exists(ctx, s.key("processes")).Val())
	require.Len(t, s.list("default"), 1)
}

// before calls a function before each command of a name.
type before struct {
	name string
	call func()
}

func (before) DialHook(next redis.DialHook) redis.DialHook { return next }
func (before) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (b before) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == b.name {
			b.call()
		}
		return next(ctx, cmd)
	}
}

// A process that renews its lease between the look at it and the rescue keeps its jobs and its entry.
func TestALivingProcessKeepsItsEntryOfTheBusyPage(t *testing.T) {
	t.Parallel()
	s := newSite(t, sidekiq.V7)
	ctx := t.Context()
	leases := s.key("luatomic:sidekiq:processes")
	require.NoError(t, s.client.SAdd(ctx, s.key("processes"), "paused").Err())
	require.NoError(t, s.client.ZAdd(ctx, leases, redis.Z{Member: "paused", Score: 1}).Err())
	var renewed atomic.Bool
	rescuer := luatomictest.Client(t)
	lua.Direct(rescuer) // the hook sees no shared round trip
	rescuer.AddHook(before{"hkeys", func() {
		assert.NoError(t, s.client.ZAdd(ctx, leases, redis.Z{Member: "paused", Score: lab.Future}).Err())
		renewed.Store(true)
	}})
	end := s.work(s.dialect(rescuer, sidekiq.V7), &sidekiq.WorkOptions{Lease: time.Second}, content)
	s.eventually("it has renewed its lease", renewed.Load)
	end()
	require.True(t, s.client.SIsMember(ctx, s.key("processes"), "paused").Val())
	require.Equal(t, float64(lab.Future), s.client.ZScore(ctx, leases, "paused").Val())
}
