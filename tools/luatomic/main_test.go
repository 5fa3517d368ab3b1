package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// asCLI turns the test binary into the program: the tests run it as a process of
// its own, with the race detector if they have it.
const asCLI = "LUATOMIC_TEST_AS_CLI"

// inHaste is for a server that is silent: the program waits for an answer as long as it does for a user, and not for as
// long as a busy machine may need.
const inHaste = asCLI + "=in haste"

func TestMain(m *testing.M) {
	as := os.Getenv(asCLI)
	if asCLI+"="+as != inHaste {
		reachWithin, useWithin = 15*time.Second, 8*time.Second
	}
	if as != "" {
		main()
	}
	redis.SetLogger(silence{}) // as main does, for the runs within this process
	_ = os.Unsetenv("REDIS_URL")
	// testcontainers lists the processes of the machine when it is loaded, which costs each of a thousand runs 30 ms.
	// It finds none there.
	_ = os.Setenv("HOST_PROC", "/nonexistent")
	if signal.Ignored(syscall.SIGHUP) { // under nohup; what is caught here has its default in the programs of the tests
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	luatomictest.Main(m)
}

// within bounds what must happen soon, on a slow machine too.
const within = 60 * time.Second

// output is what a process has written so far.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// cli is one run of the program.
type cli struct {
	t              *testing.T
	cmd            *exec.Cmd // nil for a run within this process
	ended          bool
	code           int
	stdout, stderr output
}

// env is what a test runs the program with.
type env struct {
	t      *testing.T
	url    string
	prefix string
	// channel is one of the test's own, for a dialect that has it in place of a prefix.
	channel string
	stdin   io.Reader
	extra   []string
}

// shared is an environment on the shared server, under a prefix of the test's own.
func shared(t *testing.T) *env {
	return &env{t: t, url: luatomictest.URL(t), prefix: luatomictest.Namespace(t) + ":"}
}

func (e env) with(stdin string) *env {
	e.stdin = strings.NewReader(stdin)
	return &e
}

// line is the command line of the program, under the prefix if there is one.
func (e *env) line(args []string) []string {
	if e.prefix == "" {
		return append([]string{program}, args...)
	}
	return append([]string{program, "--prefix", e.prefix}, args...)
}

func (e *env) start(args ...string) *cli {
	e.t.Helper()
	return e.startWith(nil, args...)
}

// startWith starts the program with another stderr, unless that is nil.
func (e *env) startWith(stderr io.Writer, args ...string) *cli {
	e.t.Helper()
	c := &cli{t: e.t, cmd: exec.Command(os.Args[0])}
	c.cmd.Args = e.line(args)
	c.cmd.Env = append(os.Environ(), asCLI+"=1", "REDIS_URL="+e.url)
	c.cmd.Env = append(c.cmd.Env, e.extra...)
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = e.stdin, &c.stdout, &c.stderr
	if stderr != nil {
		c.cmd.Stderr = stderr
	}
	c.cmd.WaitDelay = time.Second
	require.NoError(e.t, c.cmd.Start())
	e.t.Cleanup(func() { _ = c.cmd.Process.Kill() })
	return c
}

// said is what the program prints. It runs within this process. It is for commands that need no server.
func said(t *testing.T, code int, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	require.Equal(t, code, run(args, &out, &errs), "stdout:\n%s\nstderr:\n%s", &out, &errs)
	return out.String(), errs.String()
}

// run returns when the program has ended. It runs within this process, since another costs 50 ms, unless it needs files
// or variables of its own: for its input, or for a command that it starts.
func (e *env) run(args ...string) *cli {
	e.t.Helper()
	if e.stdin != nil || len(e.extra) > 0 || slices.Contains(args, "--") {
		c := e.start(args...)
		c.wait()
		return c
	}
	line := e.line(args)[1:]
	if e.url != "" {
		line = append([]string{"--redis", e.url}, line...)
	}
	c := &cli{t: e.t, ended: true}
	c.code = run(line, &c.stdout, &c.stderr)
	return c
}

// wait returns the exit code.
func (c *cli) wait() int {
	c.t.Helper()
	if !c.ended {
		late := time.AfterFunc(3*within, func() { _ = c.cmd.Process.Signal(syscall.SIGTRAP) }) // its stacks
		defer late.Stop()
		_ = c.cmd.Wait() // the code says it
		c.ended, c.code = true, c.cmd.ProcessState.ExitCode()
	}
	return c.code
}

// exits waits and checks the exit code.
func (c *cli) exits(code int) *cli {
	c.t.Helper()
	require.Equal(c.t, code, c.wait(), "stdout:\n%s\nstderr:\n%s", &c.stdout, &c.stderr)
	return c
}

func (c *cli) signal(sig os.Signal) {
	c.t.Helper()
	require.NoError(c.t, c.cmd.Process.Signal(sig))
}

// shows waits until stderr holds the text.
func (c *cli) shows(text string) {
	c.t.Helper()
	luatomictest.Eventually(c.t, within, "stderr shows "+text, func() bool {
		return strings.Contains(c.stderr.String(), text)
	})
}

// objects decodes stdout, each line of which must be an object.
func (c *cli) objects() []map[string]any {
	c.t.Helper()
	var all []map[string]any
	for line := range strings.Lines(c.stdout.String()) {
		var o map[string]any
		require.NoError(c.t, json.Unmarshal([]byte(line), &o), line)
		all = append(all, o)
	}
	return all
}

// object is the only object on stdout.
func (c *cli) object() map[string]any {
	c.t.Helper()
	all := c.objects()
	require.Len(c.t, all, 1, "stderr:\n%s", &c.stderr)
	return all[0]
}

// holds checks fields of an object; numbers may be of any type.
func holds(t *testing.T, o map[string]any, want map[string]any) {
	t.Helper()
	for name, value := range want {
		require.Contains(t, o, name)
		require.EqualValues(t, fmt.Sprint(value), fmt.Sprint(o[name]), "%s in %v", name, o)
	}
}

// queue is the queue as the library sees it.
func (e *env) queue(name string) *queue.Queue {
	q, err := queue.New(luatomictest.Client(e.t), name, &queue.Options{Prefix: e.prefix})
	require.NoError(e.t, err)
	return q
}

func (e *env) stats(name string) queue.Stats {
	st, err := e.queue(name).Stats(e.t.Context())
	require.NoError(e.t, err)
	return st
}

// bodies takes all ready jobs.
func (e *env) bodies(name string) []string {
	taken, err := e.queue(name).Take(e.t.Context(), queue.MaxBatch)
	require.NoError(e.t, err)
	var all []string
	for _, d := range taken.Deliveries {
		all = append(all, string(d.Body))
	}
	return all
}
