package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/internal/testkit/drill/history"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVar); role != "" {
		os.Exit(runRole(role))
	}
	luatomictest.Main(m)
}

// field is the server, the proxies before it and the processes of one drill.
type field struct {
	t       *testing.T
	rnd     *rand.Rand
	env     []string // of the processes
	dir     string
	server  *luatomictest.Server
	admin   *redis.Client // past the proxies
	queue   *queue.Queue
	log     *history.Log
	proxies []*luatomictest.LossyProxy
	members []*member
	offset  time.Duration // of the server's clock
	deck    []string      // the faults to come
	faults  map[string]int

	marks   int64 // of what a replica has
	counted int64 // bytes of the history
	seen    int
}

// member is a process of the field. A process that was killed has a successor of another name.
type member struct {
	*lab.Worker
	role             string
	slot, generation int
}

// persistent are the options of a server that keeps all that it has confirmed, also when it is killed.
var persistent = []string{"--appendonly", "yes", "--appendfsync", "always"}

func openField(t *testing.T, seed uint64, env []string, roles ...string) *field {
	dir, err := os.MkdirTemp("", "luatomic-drill-")
	require.NoError(t, err)
	f := &field{t: t, rnd: rand.New(rand.NewPCG(seed, 0)), env: env, dir: dir, faults: make(map[string]int)}
	f.server = luatomictest.StartServer(t, persistent...)
	f.admin = f.server.Client()
	f.queue = lab.Must(newQueue(f.admin, nil))
	f.log = lab.Must(history.Open(f.history(), "field"))
	for range 3 {
		f.proxies = append(f.proxies, luatomictest.NewLossyProxy(t, f.server.URL()))
	}
	for slot, role := range roles {
		m := &member{role: role, slot: slot}
		f.members = append(f.members, m)
		f.start(m)
	}
	t.Cleanup(f.close)
	return f
}

// close ends what is left of the field. The history stays where the test has failed.
func (f *field) close() {
	for _, m := range f.members {
		m.Kill()
	}
	f.members = nil
	if !f.t.Failed() {
		require.NoError(f.t, os.RemoveAll(f.dir))
	}
}

func (f *field) history() string { return filepath.Join(f.dir, "history") }

// start starts the next process of a member.
func (f *field) start(m *member) {
	m.generation++
	setup := lab.Must(json.Marshal(role{Role: m.role, Name: fmt.Sprintf("%s%d.%d", m.role, m.slot, m.generation),
		URL: f.proxies[m.slot%len(f.proxies)].URL(), History: f.history(), Seed: f.rnd.Uint64()}))
	cmd := exec.Command(lab.Must(os.Executable()))
	cmd.Env = append(append(os.Environ(), f.env...), roleVar+"="+string(setup), "GORACE=atexit_sleep_ms=0")
	stdin, stdout := lab.Must(cmd.StdinPipe()), lab.Must(cmd.StdoutPipe())
	errs := lab.Must(os.OpenFile(filepath.Join(f.dir, "stderr"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600))
	defer errs.Close()
	cmd.Stderr = errs
	require.NoError(f.t, cmd.Start())
	m.Worker = &lab.Worker{Cmd: cmd, Stdin: stdin, Out: bufio.NewScanner(stdout)}
}

// end asks a process to end, and waits until it has.
func (f *field) end(m *member) {
	f.terminate(m)
	f.await(m)
}

// terminate sends SIGTERM, once the process knows what to do then.
func (f *field) terminate(m *member) {
	require.True(f.t, m.Out.Scan(), "%s %d did not come up", m.role, m.slot)
	require.NoError(f.t, m.Cmd.Process.Signal(syscall.SIGTERM))
}

func (f *field) await(m *member) {
	ended := make(chan error, 1)
	go func() { ended <- m.Cmd.Wait() }()
	require.NoError(f.t, lab.Soon(f.t, 30*time.Second, m.role+" ends after SIGTERM", ended))
}

// endAll ends all processes of the roles.
func (f *field) endAll(roles ...string) {
	var ending []*member
	f.members = filter(f.members, func(m *member) bool {
		if !strings.Contains(strings.Join(roles, " "), m.role) {
			return true
		}
		ending = append(ending, m)
		return false
	})
	for _, m := range ending {
		f.terminate(m)
	}
	for _, m := range ending {
		f.await(m)
	}
}

func filter[T any](all []T, keep func(T) bool) (kept []T) {
	for _, one := range all {
		if keep(one) {
			kept = append(kept, one)
		}
	}
	return kept
}

// operations are the records that begin one.
var operations = []history.Kind{history.Push, history.Start, history.Cancel, history.Acquire, history.Call,
	history.Schedule}

// operations counts the operations of all processes so far.
func (f *field) operations() int {
	file := lab.Must(os.Open(f.history()))
	defer file.Close()
	lab.Must(file.Seek(f.counted, 0))
	lines := bufio.NewReader(file)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return f.seen // half a line is read again
		}
		f.counted += int64(len(line))
		for _, kind := range operations {
			if bytes.Contains(line, []byte(`"kind":"`+kind+`"`)) {
				f.seen++
			}
		}
	}
}

// eventually repeats a call to the server, which may be restarting, until it succeeds.
func (f *field) eventually(what string, call func() error) {
	luatomictest.Eventually(f.t, 60*time.Second, what, func() bool { return call() == nil })
}

// drain lets all work end: the faults are over, and nothing new is asked for.
func (f *field) drain() {
	ctx := f.t.Context()
	for f.offset != 0 {
		f.step(-f.offset)
	}
	f.endAll("producer", "operator", "holder", "caller", "scheduler")
	f.eventually("the queue is empty", func() error {
		if err := f.queue.Resume(ctx); err != nil {
			return err
		}
		s, err := f.queue.Stats(ctx)
		if err == nil && s.Dead > 0 {
			f.revive()
		}
		if n := s.Ready + s.Scheduled + s.Leased + s.Dead; n > 0 && err == nil {
			err = fmt.Errorf("%d jobs are left", n)
		}
		return err
	})
	f.eventually("Sidekiq's jobs are moved", func() error {
		n, err := f.admin.ZCard(ctx, "schedule").Result()
		if n > 0 && err == nil {
			err = fmt.Errorf("%d jobs are left", n)
		}
		return err
	})
	f.endAll("consumer", "taker", "poller", "mover", "node")
	f.find()
	f.log.Add(history.Record{Kind: history.Drained})
}

// find writes down what is in the queue of Sidekiq's jobs.
func (f *field) find() {
	d := lab.Must(sidekiq.New(f.admin, nil))
	for at := 0; ; {
		entries := lab.Must(d.QueueEntries(f.t.Context(), jidQueue, at, 1000))
		for _, e := range entries {
			f.log.Add(history.Record{Kind: history.Found, Of: history.JID + e.JID})
		}
		if at += len(entries); len(entries) == 0 {
			return
		}
	}
}

func (f *field) revive() {
	dead, err := f.queue.Peek(f.t.Context(), queue.Dead, 0, 100)
	if err != nil {
		return
	}
	for _, j := range dead {
		_, _ = f.queue.Requeue(f.t.Context(), j.ID)
	}
}

// check reads the history and returns its violations with a summary.
func (f *field) check() ([]history.Record, []history.Violation) {
	all, torn, err := history.ReadFile(f.history())
	require.NoError(f.t, err)
	require.LessOrEqual(f.t, torn, f.faults["kill"], "records are half-written that no kill explains")
	return all, history.Check(all)
}
