package rpc_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	rpcscript "github.com/luatomic/luatomic/gen/rpc"
	"github.com/luatomic/luatomic/internal/launch"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

const (
	drillEnvNode = "LUATOMIC_TEST_DRILL_NODE"
	drillEnvLog  = "LUATOMIC_TEST_DRILL_LOG"
	drillEnvURL  = "LUATOMIC_TEST_DRILL_URL"

	drillBus   = "drill"
	drillLease = time.Second
	drillTime  = 4 * time.Second // of a call
)

// The methods of the drill: a call of once and of keyed runs once at most, one of again once for each attempt.
var drillMethods = map[string]rpc.Method[int64, int64]{
	"once":  rpc.NewMethod[int64, int64]("once"),
	"keyed": rpc.NewMethod[int64, int64]("keyed"),
	"again": rpc.NewMethod[int64, int64]("again").Idempotent(),
}

// TestDrillProcess is a node of the drill, until standard input ends or it is killed. Each execution is a line of its
// log, written before the handler does anything else.
func TestDrillProcess(t *testing.T) {
	node := os.Getenv(drillEnvNode)
	if node == "" {
		t.Skip("runs as a process of TestRPCDrill")
	}
	opts := lab.Must(redis.ParseURL(os.Getenv(drillEnvURL)))
	c := redis.NewClient(opts)
	log := lab.Must(os.OpenFile(filepath.Join(os.Getenv(drillEnvLog), node), os.O_CREATE|os.O_APPEND|os.O_WRONLY,
		0o600))
	b := lab.Must(rpc.New(c, drillBus, &rpc.Options{Node: node, Lease: drillLease, Concurrency: 32,
		Grace: time.Second}))
	for name, m := range drillMethods {
		require.NoError(t, m.Serve(b, func(ctx context.Context, n int64) (int64, error) {
			info, _ := rpc.CallFrom(ctx)
			if _, err := fmt.Fprintf(log, "%s %d %d\n", name, n, info.Attempt); err != nil {
				return 0, err
			}
			select {
			case <-time.After(time.Duration(rand.IntN(8)) * time.Millisecond):
			case <-ctx.Done():
			}
			return n + 1, ctx.Err()
		}, nil))
	}
	stop := lab.RunBus(t, b)
	_ = b.Ready(t.Context())
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	stop()
}

// drillCall is a call of the drill with its end, drillRun an execution.
type drillCall struct {
	method string
	n      int64
	end    string // result, not run, maybe; or what no call may end with
}

type drillRun struct {
	method     string
	n, attempt int64
}

// violations compares the ends of all calls with all executions.
func violations(calls []drillCall, runs []drillRun) (all []string) {
	type request struct {
		method string
		n      int64
	}
	times, attempts := make(map[request]int), make(map[drillRun]int)
	for _, r := range runs {
		times[request{r.method, r.n}]++
		if attempts[r]++; attempts[r] > 1 {
			all = append(all, fmt.Sprintf("%s %d ran twice at attempt %d", r.method, r.n, r.attempt))
		}
	}
	for r, n := range times {
		if n > 1 && r.method != "again" {
			all = append(all, fmt.Sprintf("%s %d ran %d times", r.method, r.n, n))
		}
	}
	for _, c := range calls {
		ran := times[request{c.method, c.n}]
		switch {
		case c.end == "result" && ran == 0:
			all = append(all, fmt.Sprintf("%s %d has a result and has not run", c.method, c.n))
		case c.end == "not run" && ran > 0:
			all = append(all, fmt.Sprintf("%s %d was refused and has run", c.method, c.n))
		case c.end != "result" && c.end != "not run" && c.end != "maybe":
			all = append(all, fmt.Sprintf("%s %d ended with %s", c.method, c.n, c.end))
		}
	}
	return all
}

// Each rule of the checker finds what breaks it, and only that.
func TestDrillCheckerFindsEachViolation(t *testing.T) {
	t.Parallel()
	calls := []drillCall{{"once", 1, "result"}, {"once", 2, "not run"}, {"keyed", 3, "maybe"}, {"again", 4, "result"}}
	runs := []drillRun{{"once", 1, 1}, {"again", 4, 1}, {"again", 4, 2}}
	require.Empty(t, violations(calls, runs))
	for what, v := range map[string][]string{
		"a second execution": violations(calls, append(runs[:3:3], drillRun{"once", 1, 2})),
		"the same attempt":   violations(calls, append(runs[:3:3], drillRun{"again", 4, 2})),
		"a key that runs twice": violations(calls,
			append(runs[:3:3], drillRun{"keyed", 3, 1}, drillRun{"keyed", 3, 2})),
		"a refused call":         violations(calls, append(runs[:3:3], drillRun{"once", 2, 1})),
		"a result of nothing":    violations(calls, runs[1:]),
		"an end that none knows": violations(append(calls[:4:4], drillCall{"once", 5, "EOF"}), runs),
	} {
		require.Len(t, v, 1, what)
	}
}

// endOf sorts the end of a call as docs/rpc.md does.
func endOf(out, want int64, err error) string {
	var remote *rpc.RemoteError
	switch {
	case err == nil && out == want:
		return "result"
	case err == nil:
		return fmt.Sprintf("the result %d, not %d", out, want)
	case errors.Is(err, rpc.ErrNoResponders), errors.Is(err, rpc.ErrOverloaded), errors.Is(err, lua.ErrNotExecuted):
		return "not run"
	case errors.Is(err, rpc.ErrNodeLost), errors.Is(err, context.DeadlineExceeded), errors.Is(err,
		lua.ErrOutcomeUnknown),
		errors.As(err, &remote) && remote.Code == rpc.CodeDeadline:
		return "maybe"
	}
	return err.Error()
}

// lingerer lets a write of a request reach the server long after its connection broke.
type lingerer struct {
	next    atomic.Bool
	dial    func() (net.Conn, error)
	pending sync.WaitGroup
}

type lingererConn struct {
	net.Conn
	l *lingerer
}

func (c *lingererConn) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte(lab.Digest(&rpcscript.CallScript))) && c.l.next.CompareAndSwap(true, false) {
		h := lab.NewHeldUp(c.l.dial)
		held := bytes.Clone(p)
		_ = c.Close()
		c.l.pending.Add(1)
		time.AfterFunc(time.Duration(rand.IntN(2000))*time.Millisecond, func() {
			defer c.l.pending.Done()
			h.Deliver(held)
		})
	}
	return c.Conn.Write(p)
}

// drillField is the servers, proxies and processes of one drill.
type drillField struct {
	t       *testing.T
	server  *luatomictest.Server
	admin   *redis.Client
	logs    string
	proxies []*luatomictest.LossyProxy // of the nodes, and the last of the callers
	nodes   []*lab.Worker
	linger  lingerer
	faults  map[string]int
	started int
	results atomic.Int64 // calls that had one
}

func (f *drillField) startNode(i int) {
	f.started++
	cmd := exec.Command(lab.Must(os.Executable()), "-test.run=^TestDrillProcess$", "-test.timeout=30m")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=n%d", drillEnvNode, f.started), drillEnvLog+"="+f.logs,
		drillEnvURL+"="+f.proxies[i].URL(), "LUATOMIC_REDIS_URL="+f.server.URL(), "GORACE=atexit_sleep_ms=0")
	stdin := lab.Must(cmd.StdinPipe())
	stdout := lab.Must(cmd.StdoutPipe())
	require.NoError(f.t, cmd.Start())
	f.nodes[i] = &lab.Worker{Cmd: cmd, Stdin: stdin, Out: bufio.NewScanner(stdout)}
}

// fault does one thing to the field.
func (f *drillField) fault(rnd *rand.Rand) {
	i := rnd.IntN(len(f.nodes))
	p := f.proxies[rnd.IntN(len(f.proxies))]
	ctx := context.Background()
	pause := func(most time.Duration) { time.Sleep(time.Duration(rnd.Int64N(int64(most)))) }
	all := map[string]func(){
		"cut":        p.CutAll,
		"linger":     func() { f.linger.next.Store(true) },
		"kill links": func() { f.admin.Do(ctx, "CLIENT", "KILL", "TYPE", "pubsub") },
		"kill all":   func() { f.admin.Do(ctx, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes") },
		"flush":      func() { f.admin.ScriptFlush(ctx) },
		"hole": func() {
			p.Blackhole(true)
			pause(drillLease)
			p.Blackhole(false)
		},
		"hang": func() {
			f.server.Pause()
			pause(drillLease / 4)
			f.server.Resume()
		},
		"stop": func() {
			if launch.Stop(f.nodes[i].Cmd.Process.Pid) == nil {
				pause(2 * drillLease)
				_ = launch.Continue(f.nodes[i].Cmd.Process.Pid)
			}
		},
		"kill": func() {
			f.nodes[i].Kill()
			f.startNode(i)
		},
	}
	names := []string{"cut", "linger", "linger", "linger", "kill links", "kill all", "flush", "hole", "hang",
		"stop", "kill"}
	name := names[rnd.IntN(len(names))]
	f.faults[name]++
	all[name]()
}

// client is a caller's client behind the last proxy, whose requests may linger.
func (f *drillField) client() *redis.Client {
	proxy := f.proxies[len(f.proxies)-1]
	opts := lab.Must(redis.ParseURL(proxy.URL()))
	opts.Protocol, opts.ContextTimeoutEnabled = 2, false
	f.linger.dial = func() (net.Conn, error) { return net.Dial("tcp", strings.TrimPrefix(f.server.URL(), "redis://")) }
	opts.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return &lingererConn{conn, &f.linger}, err
	}
	c := redis.NewClient(opts)
	f.t.Cleanup(func() { _ = c.Close() })
	return c
}

func openField(t *testing.T) *drillField {
	f := &drillField{t: t, server: luatomictest.StartServer(t), logs: t.TempDir(), faults: make(map[string]int)}
	f.admin = f.server.Client()
	f.nodes = make([]*lab.Worker, 3)
	for range len(f.nodes) + 1 {
		f.proxies = append(f.proxies, luatomictest.NewLossyProxy(t, f.server.URL()))
	}
	for i := range f.nodes {
		f.startNode(i)
	}
	t.Cleanup(func() {
		for _, n := range f.nodes {
			n.Kill()
		}
	})
	for _, n := range f.nodes {
		for n.Out.Scan() && n.Out.Text() != "ready" {
		}
	}
	return f
}

// calling makes calls until done, and returns their ends. A call with a key is made twice.
func (f *drillField) calling(b *rpc.Bus, serial *atomic.Int64, done func() bool) (calls []drillCall) {
	for !done() {
		n := serial.Add(1)
		method := []string{"once", "again", "keyed"}[n%3]
		opts, times := &rpc.CallOptions{}, 1
		if method == "keyed" {
			opts.Key, times = fmt.Sprint(n), 2
		}
		one := drillCall{method, n, "not run"}
		for range times {
			ctx, cancel := context.WithTimeout(context.Background(), drillTime)
			out, err := drillMethods[method].Call(ctx, b, n, opts)
			cancel()
			end := endOf(out, n+1, err)
			if end == "not run" && one.end != end { // what is known of the first call stays
				continue
			}
			one.end = end
			if end == "result" {
				f.results.Add(1)
			}
		}
		calls = append(calls, one)
		if one.end == "not run" {
			time.Sleep(10 * time.Millisecond)
		}
	}
	return calls
}

func (f *drillField) runs() (runs []drillRun) {
	for _, e := range lab.Must(os.ReadDir(f.logs)) {
		for line := range strings.Lines(string(lab.Must(os.ReadFile(filepath.Join(f.logs, e.Name()))))) {
			var r drillRun
			if _, err := fmt.Sscan(line, &r.method, &r.n, &r.attempt); err == nil {
				runs = append(runs, r)
			}
		}
	}
	return runs
}

// Nodes in processes of their own and callers make calls while connections are cut, swallow all, or deliver a request
// long after its caller gave the connection up, nodes are killed and stopped, the server hangs, kills clients and
// forgets its scripts. Each execution is in a log: nothing ran beyond its contract, and each call ended as it may.
//
// A million calls in the drill.
func TestRPCDrill(t *testing.T) {
	t.Parallel()
	want, most, between := int64(300), 3*time.Second, 60*time.Millisecond
	if os.Getenv("LUATOMIC_DRILL") != "" {
		want, most, between = 1_000_000, 15*time.Minute, 200*time.Millisecond
	}
	seed := rand.Uint64()
	f, rnd := openField(t), rand.New(rand.NewPCG(seed, 0))
	var serial atomic.Int64
	began := time.Now()
	done := func() bool {
		took := time.Since(began)
		return serial.Load() >= want && took > 2*time.Second || took > most && f.results.Load() > 0 || took > 5*most
	}
	var mu sync.Mutex
	var calls []drillCall
	var callers sync.WaitGroup
	for range 2 {
		b := lab.OpenBus(t, f.client(), drillBus, &rpc.Options{Lease: drillLease, Timeout: drillTime})
		for range 8 {
			callers.Go(func() {
				mine := f.calling(b, &serial, done)
				mu.Lock()
				defer mu.Unlock()
				calls = append(calls, mine...)
			})
		}
	}
	for !done() {
		f.fault(rnd)
		time.Sleep(between)
	}
	callers.Wait()
	f.linger.pending.Wait()
	time.Sleep(100 * time.Millisecond) // a request that lingered runs now, if it does
	for _, n := range f.nodes {
		n.Kill()
	}
	runs, ends := f.runs(), make(map[string]int)
	for _, c := range calls {
		ends[c.end]++
	}
	t.Logf("seed %d: %d calls %v, %d executions, faults %v", seed, len(calls), ends, len(runs), f.faults)
	require.Empty(t, violations(calls, runs))
	require.Positive(t, ends["result"])
}
