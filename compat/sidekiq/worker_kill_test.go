package sidekiq_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/internal/testkit/subprocess"
	"github.com/luatomic/luatomic/luatomictest"
)

const (
	killEnvURL  = "LUATOMIC_SIDEKIQ_KILL_URL"
	killJobs    = 1500
	killQueues  = 3
	killedTimes = 12
)

func killOptions() *sidekiq.WorkOptions {
	opts := &sidekiq.WorkOptions{Concurrency: 8, Lease: 400 * time.Millisecond, Grace: 10 * time.Second}
	for i := range killQueues {
		opts.Queues = append(opts.Queues, sidekiq.Queue{Name: "q" + strconv.Itoa(i), Weight: 1})
	}
	return opts
}

// TestKillableWorker is the program of TestKilledWorkersLoseNothing's processes: a worker, until its standard input
// ends or it is killed.
func TestKillableWorker(t *testing.T) {
	url := os.Getenv(killEnvURL)
	if url == "" {
		t.Skip("runs as a process of TestKilledWorkersLoseNothing")
	}
	opts, err := redis.ParseURL(url)
	require.NoError(t, err)
	c := redis.NewClient(opts)
	defer func() { _ = c.Close() }()
	d, err := sidekiq.New(c, nil)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	fmt.Println("ready")
	_, err = d.Work(ctx, killOptions(), func(ctx context.Context, j *sidekiq.Delivery) error {
		time.Sleep(time.Duration(rand.IntN(10_000)) * time.Microsecond)
		if strings.HasSuffix(j.JID, "0") {
			return errSad
		}
		return c.HIncrBy(ctx, "done", j.JID, 1).Err()
	})
	require.ErrorIs(t, err, context.Canceled)
}

// Processes with jobs in flight are killed one after the other; each job is still performed, and counted once. One in
// ten fails, and is in the retry set once. So is one whose process was killed twice, which may have run.
func TestKilledWorkersLoseNothing(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	s := &site{t: t, client: server.Client()}
	want := make(map[string]bool, killJobs)
	for i := range killJobs {
		jid, queue := fmt.Sprintf("%024d", i), "q"+strconv.Itoa(i%killQueues)
		want[jid] = true
		s.enqueue(queue, payload(queue, jid, ""))
	}
	self, err := os.Executable()
	require.NoError(t, err)
	start := func() *subprocess.Program {
		cmd := exec.Command(self, "-test.run=^TestKillableWorker$", "-test.timeout=5m")
		cmd.Env = append(os.Environ(), killEnvURL+"="+server.URL(), "GORACE=atexit_sleep_ms=0")
		p := subprocess.Start(t, cmd)
		require.Equal(t, "ready", string(p.Line(60*time.Second)))
		return p
	}
	killed := 0
	for range killedTimes {
		p := start()
		before := s.count("stat:processed")
		s.eventually("the process performs", func() bool {
			left := killJobs - s.count("stat:processed")
			return left < killJobs-before || left == 0
		})
		s.eventually("jobs are in flight", func() bool {
			return len(s.workings()) > 0 || s.count("stat:processed") == killJobs
		})
		p.Kill()
		killed += len(s.workings())
	}
	require.Positive(t, killed, "no process had jobs in flight")
	last := start()
	s.eventually("all were performed", func() bool { return s.count("stat:processed") >= killJobs })
	require.NoError(t, last.End())
	require.Equal(t, killJobs, s.count("stat:processed"), "each job is counted once")
	require.Empty(t, s.workings())
	seen := make(map[string]int)
	for jid := range s.client.HGetAll(t.Context(), "done").Val() {
		seen[jid]++
	}
	failed := killJobs / 10
	for _, z := range s.members("retry") {
		text, _ := z.Member.(string)
		at := strings.Index(text, `"jid":"`) + len(`"jid":"`)
		jid := text[at : at+24]
		if strings.Contains(text, `"error_class":"WorkerDied"`) {
			seen[jid] = 0
			if !strings.HasSuffix(jid, "0") {
				failed++
			}
		}
		seen[jid]++
	}
	require.Len(t, seen, killJobs)
	for jid, n := range seen {
		require.True(t, want[jid])
		require.Equal(t, 1, n, jid)
	}
	require.Len(t, s.members("retry"), failed)
}
