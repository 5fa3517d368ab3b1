package rpc_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/launch"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

// The environment of a process on a bus.
const (
	busEnvRole = "LUATOMIC_TEST_BUS_ROLE"
	busEnvName = "LUATOMIC_TEST_BUS"
)

// processLease is short, so that a dead node is found soon, and longer than a busy
// machine pauses.
const processLease = 6 * time.Second

// hold records that it runs, and waits until it is released.
var (
	hold      = rpc.NewMethod[string, string]("hold")
	holdAgain = rpc.NewMethod[string, string]("again").Idempotent()
)

// ranKey lists what ran, as node and request; goKey lets handlers finish.
func ranKey(name string) string { return name + "-ran" }

func goKey(name string) string { return name + "-go" }

func holding(c *redis.Client, b **rpc.Bus, name string) func(context.Context, string) (string, error) {
	return func(ctx context.Context, in string) (string, error) {
		node, _, _ := strings.Cut((*b).Node(), ".")
		if err := c.RPush(context.WithoutCancel(ctx), ranKey(name), node+" "+in).Err(); err != nil {
			return "", err
		}
		for c.Exists(context.WithoutCancel(ctx), goKey(name)).Val() == 0 {
			select {
			case <-ctx.Done():
				return "", ctx.Err()
			case <-time.After(5 * time.Millisecond):
			}
		}
		return node, nil
	}
}

// TestBusProcess is what the processes of the tests below run, until standard input
// ends or they are killed: a node, or a caller of "hold".
func TestBusProcess(t *testing.T) {
	role := os.Getenv(busEnvRole)
	if role == "" {
		t.Skip("runs as a process of other tests")
	}
	c, name := luatomictest.Client(t), os.Getenv(busEnvName)
	b, err := rpc.New(c, name, &rpc.Options{Node: role, Lease: processLease, Timeout: 5 * time.Second})
	require.NoError(t, err)
	if role != "caller" {
		for _, m := range []rpc.Method[string, string]{hold, holdAgain} {
			require.NoError(t, m.Serve(b, holding(c, &b, name), nil))
		}
	}
	stop := lab.RunBus(t, b)
	require.NoError(t, b.Ready(t.Context()))
	fmt.Println("ready")
	if role == "caller" {
		_, err := hold.Call(t.Context(), b, "of a caller", nil)
		fmt.Println("called", err)
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	stop()
	fmt.Println("stale", b.Stats().Stale, "late", b.Stats().Late)
}

// busProcess starts a node, or a caller, in a process of its own.
func busProcess(t *testing.T, role, name string) *lab.Worker {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, "-test.run=^TestBusProcess$", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), busEnvRole+"="+role, busEnvName+"="+name,
		"LUATOMIC_REDIS_URL="+luatomictest.URL(t), "GORACE=atexit_sleep_ms=0")
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	w := &lab.Worker{Cmd: cmd, Stdin: stdin, Out: bufio.NewScanner(stdout)}
	t.Cleanup(w.Kill)
	for w.Out.Scan() {
		if w.Out.Text() == "ready" {
			return w
		}
	}
	t.Fatalf("%s did not come up", role)
	return nil
}

func ran(t testing.TB, c *redis.Client, name string, n int) []string {
	t.Helper()
	luatomictest.Eventually(t, 20*time.Second, fmt.Sprint(n, " handlers run"), func() bool {
		return int(c.LLen(t.Context(), ranKey(name)).Val()) >= n
	})
	return lab.Must(c.LRange(t.Context(), ranKey(name), 0, -1).Result())
}

func startCall(t testing.TB, m rpc.Method[string, string], b *rpc.Bus, in string) <-chan result {
	done := make(chan result, 1)
	go func() {
		out, err := m.Call(t.Context(), b, in, nil)
		done <- result{out, err}
	}()
	return done
}

type result struct {
	out string
	err error
}

// C5: the node dies by SIGKILL in the middle of a call. A call that may not run twice
// is lost by the end of the lease; one that may goes to another node.
func TestRPCNodeKilledInACall(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	node := busProcess(t, "first", name)
	caller := lab.OpenBus(t, c, name, &rpc.Options{Lease: processLease, Timeout: time.Minute})
	once, again := startCall(t, hold, caller, "once"), startCall(t, holdAgain, caller, "again")
	require.ElementsMatch(t, []string{"first once", "first again"}, ran(t, c, name, 2))
	busProcess(t, "second", name)
	node.Kill()
	start := time.Now()
	lost := <-once
	took := time.Since(start)
	require.ErrorIs(t, lost.err, rpc.ErrNodeLost)
	require.ErrorContains(t, lost.err, "first.")
	t.Logf("lost after %v, lease %v", took, processLease)
	require.Less(t, took, 30*time.Second, "by the end of its lease, and not of the call")

	require.NoError(t, c.Set(t.Context(), goKey(name), 1, time.Minute).Err())
	moved := <-again
	require.NoError(t, moved.err)
	require.Equal(t, "second", moved.out)
	require.Equal(t, []string{"second again"}, ran(t, c, name, 3)[2:], "only that one runs again, and once")
}

// C6: a node is suspended for longer than its lease, and then answers. Its replies
// come too late and are refused, and counted; the caller has had its answer.
func TestRPCLateReplyOfAStoppedNodeIsStale(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	node := busProcess(t, "first", name)
	caller := lab.OpenBus(t, c, name, &rpc.Options{Lease: processLease, Timeout: time.Minute})
	once, again := startCall(t, hold, caller, "once"), startCall(t, holdAgain, caller, "again")
	ran(t, c, name, 2)
	second := busProcess(t, "second", name)
	require.NoError(t, launch.Stop(node.Cmd.Process.Pid))
	require.ErrorIs(t, (<-once).err, rpc.ErrNodeLost)
	require.Contains(t, ran(t, c, name, 3), "second again")
	// The second node still works on it while the first one answers, or answers first:
	// its reply is neither taken nor does it undo the other's.
	require.NoError(t, launch.Continue(node.Cmd.Process.Pid))
	require.NoError(t, c.Set(t.Context(), goKey(name), 1, time.Minute).Err())
	out := <-again
	require.NoError(t, out.err)
	require.Equal(t, "second", out.out, "the reply of the attempt that counts")
	require.Len(t, lab.Must(c.LRange(t.Context(), ranKey(name), 0, -1).Result()), 3)
	said := node.Ends()
	require.Regexp(t, `stale (1 late 1|2 late 0|0 late 2)`, said)
	require.Contains(t, said, "PASS")
	require.Contains(t, second.Ends(), "stale 0 late 0")
}

// A caller that is killed leaves nothing: its record expires at the end of the call's time,
// and what it announced expires with its lease.
func TestRPCKilledCallerLeavesNothing(t *testing.T) {
	lab.Long(t)
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	b, err := rpc.New(c, name, &rpc.Options{Node: "n", Lease: processLease})
	require.NoError(t, err)
	ended := make(chan error, 1)
	require.NoError(t, hold.Serve(b, func(ctx context.Context, in string) (string, error) {
		_, err := holding(c, &b, name)(ctx, in)
		ended <- err
		return "", err
	}, nil))
	stop := lab.RunBus(t, b)
	require.NoError(t, b.Ready(ctx))
	caller := busProcess(t, "caller", name)
	ran(t, c, name, 1)
	caller.Kill()
	records := func() []string { return lab.Must(c.Keys(ctx, "rpc:{"+name+"}:r:*").Result()) }
	require.Len(t, records(), 1)
	require.ErrorIs(t, <-ended, context.DeadlineExceeded, "the handler's time is over, too")
	luatomictest.Eventually(t, 20*time.Second, "the record expires", func() bool { return len(records()) == 0 })
	require.Zero(t, b.Stats().Handled-1, "one call")
	luatomictest.Eventually(t, 20*time.Second, "the caller is forgotten", func() bool {
		return len(lab.Must(b.Nodes(ctx))) == 1 && c.HLen(ctx, "rpc:{"+name+"}:about").Val() == 1
	})
	stop()
	require.Empty(t, lab.Must(c.Keys(ctx, "rpc:{"+name+"}*").Result()), "nothing stays")
}

// A node that leaves in good order answers what it has begun, and no call is lost on
// the way: it goes to a node that stays.
func TestRPCLeavingNodeLosesNoCall(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	lab.Serving(t, lab.Echo, c, name, nil, lab.Upper)
	caller := lab.OpenBus(t, c, name, &rpc.Options{Timeout: time.Minute})
	leaving := lab.NewBus(t, c, name, nil)
	entered, finish := make(chan struct{}, 100), make(chan struct{})
	require.NoError(t, hold.Serve(leaving, func(ctx context.Context, _ string) (string, error) {
		entered <- struct{}{}
		<-finish
		return "done", nil
	}, nil))
	stop := lab.RunBus(t, leaving)
	require.NoError(t, leaving.Ready(t.Context()))
	held := startCall(t, hold, caller, "")
	<-entered
	stopped := make(chan struct{})
	go func() {
		stop()
		close(stopped)
	}()
	luatomictest.Eventually(t, 20*time.Second, "the method is withdrawn", func() bool {
		return c.ZCard(t.Context(), "rpc:{"+name+"}:methods").Val() == 1 // of the node that stays
	})
	_, err := hold.Call(t.Context(), caller, "", nil)
	require.ErrorIs(t, err, rpc.ErrNoResponders)
	close(finish)
	out := <-held
	require.NoError(t, out.err)
	require.Equal(t, "done", out.out)
	<-stopped
}

// Nodes come and go in good order while calls are made: each call ends soon in one
// of the outcomes that say so, and none in a timeout.
func TestRPCCallsEndWhileNodesComeAndGo(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	caller := lab.OpenBus(t, c, name, &rpc.Options{Lease: processLease, Timeout: time.Minute})
	require.NoError(t, caller.Ready(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	var nodes, callers sync.WaitGroup
	for i := range 3 {
		nodes.Go(func() {
			for early := i == 0; ctx.Err() == nil; early = !early {
				guest(ctx, t, c, name, early, 30*time.Millisecond)
			}
		})
	}
	var counts [4]atomic.Int64
	var longest atomic.Int64
	start := time.Now()
	for range 8 {
		callers.Go(func() {
			// A slow machine has few nodes in two seconds.
			for time.Since(start) < 2*time.Second || counts[0].Load() == 0 && time.Since(start) < 30*time.Second {
				began := time.Now()
				_, err := lab.Echo.Call(t.Context(), caller, "x", nil)
				for took, most := int64(time.Since(began)), longest.Load(); took > most &&
					!longest.CompareAndSwap(most, took); {
					most = longest.Load()
				}
				var remote *rpc.RemoteError
				switch {
				case err == nil:
					counts[0].Add(1)
				case errors.Is(err, rpc.ErrNoResponders):
					counts[1].Add(1)
				case errors.Is(err, rpc.ErrNodeLost):
					counts[2].Add(1)
				case errors.As(err, &remote):
					counts[3].Add(1)
				default:
					t.Errorf("no definite outcome: %v", err)
				}
			}
		})
	}
	callers.Wait()
	cancel()
	nodes.Wait()
	t.Logf("%d results, %d no responder, %d lost, %d remote errors", counts[0].Load(), counts[1].Load(),
		counts[2].Load(), counts[3].Load())
	require.Positive(t, counts[0].Load())
	require.Less(t, time.Duration(longest.Load()), 30*time.Second, "half of the time-out")
}
