//go:build interop

package sidekiq_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/internal/testkit/subprocess"
	"github.com/luatomic/luatomic/luatomictest"
)

const installRuby = "apt-get install ruby-sidekiq brings it; " +
	"more versions: sh compat/sidekiq/testdata/ruby/fetch-gems.sh DIR, and LUATOMIC_SIDEKIQ_GEMS=DIR"

// rubies returns the Ruby programs with a Sidekiq: the system's, and those under LUATOMIC_SIDEKIQ_GEMS.
func rubies(t *testing.T) []string {
	t.Helper()
	all := []string{subprocess.Find(t, installRuby, []string{"ruby", "-e", `require "sidekiq"`})}
	if dir := os.Getenv("LUATOMIC_SIDEKIQ_GEMS"); dir != "" {
		dir, err := filepath.Abs(dir)
		require.NoError(t, err)
		more, err := filepath.Glob(filepath.Join(dir, "*", "bin", "ruby"))
		require.NoError(t, err)
		require.NotEmpty(t, more, "nothing under LUATOMIC_SIDEKIQ_GEMS; %s", installRuby)
		all = append(all, more...)
	}
	return all
}

// shop is a server with a Ruby side and a Go side.
type shop struct {
	*site
	server  *luatomictest.Server
	ruby    string
	agent   *subprocess.Program
	release string
	// interval is that of the pollers of worker, in seconds; empty for 1.
	interval string
}

// withEach runs the test with each Sidekiq, on a server of its own.
func withEach(t *testing.T, test func(t *testing.T, s *shop)) {
	t.Parallel()
	for _, ruby := range rubies(t) {
		name := "system"
		if filepath.IsAbs(ruby) {
			name = filepath.Base(filepath.Dir(filepath.Dir(ruby)))
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, openShop(t, ruby))
		})
	}
}

func openShop(t *testing.T, ruby string) *shop {
	t.Helper()
	s := &shop{server: luatomictest.StartServer(t), ruby: ruby}
	s.site = &site{t: t, client: s.server.Client()}
	s.agent = subprocess.Start(t, s.command("agent.rb"))
	var is struct{ Sidekiq, Ruby, JSON string }
	s.ask("version", nil, &is)
	s.release = is.Sidekiq
	t.Logf("Sidekiq %s, Ruby %s, JSON %s", is.Sidekiq, is.Ruby, is.JSON)
	major, _, _ := strings.Cut(is.Sidekiq, ".")
	version, err := strconv.Atoi(major)
	require.NoError(t, err)
	s.d, err = sidekiq.New(s.client, &sidekiq.Options{Version: sidekiq.Version(version)})
	require.NoError(t, err)
	return s
}

func (s *shop) command(script string, args ...string) *exec.Cmd {
	cmd := exec.Command(s.ruby, append([]string{filepath.Join("testdata", "ruby", script)}, args...)...)
	cmd.Env = append(os.Environ(), "REDIS_URL="+s.server.URL()+"/0", "RUBYOPT=-W0", "TZ=UTC", "LANG=C.UTF-8",
		"POLL_INTERVAL="+s.interval)
	return cmd
}

// ask sends a request to the agent; its error fails the test.
func (s *shop) ask(op string, question map[string]any, reply any) {
	s.t.Helper()
	q := map[string]any{"op": op}
	for k, v := range question {
		q[k] = v
	}
	var raw json.RawMessage
	s.agent.Ask(q, &raw)
	var fault struct {
		Error string
		At    json.RawMessage
	}
	require.NoError(s.t, json.Unmarshal(raw, &fault))
	require.Empty(s.t, fault.Error, "%s: %s", op, fault.At)
	if reply != nil {
		require.NoError(s.t, json.Unmarshal(raw, reply))
	}
}

// worker starts a Sidekiq process; end shuts it down as Sidekiq does.
func (s *shop) worker(queues ...string) (end func()) {
	s.t.Helper()
	args := []string{"-c", "4"}
	for _, q := range queues {
		args = append(args, "-q", q)
	}
	p := subprocess.Start(s.t, s.command("worker.rb", args...))
	return func() {
		p.Signal(os.Interrupt)
		luatomictest.Eventually(s.t, 60*time.Second, "Sidekiq ends", func() bool { return !p.Running() })
	}
}

// performed returns the jobs that Ruby has performed, in order.
func (s *shop) performed() []string {
	s.t.Helper()
	jids, err := s.client.LRange(s.t.Context(), "performed", 0, -1).Result()
	require.NoError(s.t, err)
	return jids
}

func (s *shop) soon(what string, cond func() bool) {
	s.t.Helper()
	luatomictest.Eventually(s.t, 90*time.Second, what, cond)
}

// poll runs a Go poller until the test ends.
func (s *shop) poll(opts *sidekiq.PollerOptions) {
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() { _ = s.d.NewPoller(opts).Run(ctx) })
	s.t.Cleanup(func() {
		cancel()
		ended.Wait()
	})
}

// diary counts the runs of each job in Go.
type diary struct {
	mu   sync.Mutex
	runs map[string]int
	args map[string]string
	jobs map[string]*sidekiq.Delivery
}

func newDiary() *diary {
	return &diary{runs: make(map[string]int), args: make(map[string]string), jobs: make(map[string]*sidekiq.Delivery)}
}

func (d *diary) note(_ context.Context, j *sidekiq.Delivery) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.runs[j.JID]++
	d.args[j.JID] = string(j.Args)
	d.jobs[j.JID] = j
	return nil
}

func (d *diary) total() (jobs, runs int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, n := range d.runs {
		runs += n
	}
	return len(d.runs), runs
}
