package lock_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/launch"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/queue"
)

// TestLockProcess is what the processes of the lock tests run: one order on each line
// of the standard input, one line for each answer.
func TestLockProcess(t *testing.T) {
	name := os.Getenv(lockEnvName)
	if name == "" {
		t.Skip("runs as a process of the lock tests")
	}
	opts, err := redis.ParseURL(os.Getenv(lockEnvURL))
	require.NoError(t, err)
	c := redis.NewClient(opts)
	defer c.Close()
	p := &lockProcess{c: c, name: name, leases: make(map[string]*lock.Lease)}
	fmt.Println("ready")
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		fmt.Println("= " + p.obey(t, strings.Fields(in.Text())))
	}
	if p.locker != nil {
		require.NoError(t, p.locker.Close())
	}
}

// lockProcess is the state of such a process.
type lockProcess struct {
	c      *redis.Client
	name   string
	locker *lock.Locker
	leases map[string]*lock.Lease
	kept   context.Context
}

// obey does what one line says; a lease has the name that the order gives it.
func (p *lockProcess) obey(t *testing.T, words []string) string {
	order, arg := words[0], append(words[1:], "", "", "")
	lease := p.leases[arg[0]]
	switch order {
	case "locker": // ttl claim
		opts := lock.Options{
			TTL: lab.Must(time.ParseDuration(arg[0])), Claim: lab.Must(time.ParseDuration(arg[1])),
			Note: strconv.Itoa(os.Getpid()),
		}
		p.locker = lock.New(p.c, &opts)
	case "try", "acquire", "queue":
		return p.acquire(t, order, arg[0])
	case "keep":
		p.kept = lease.Keep(t.Context())
	case "extend":
		return fmt.Sprint(lease.Extend(t.Context()))
	case "release":
		return fmt.Sprint(lease.Release(t.Context()))
	case "spin":
		return p.spin(lease)
	case "write":
		q, err := queue.New(lua.Guard(p.c, lease), p.name, nil)
		require.NoError(t, err)
		_, err = q.Push(t.Context(), queue.Job{Body: []byte(arg[1])})
		return fmt.Sprint(errors.Is(err, lua.ErrFenced), " ", err)
	default:
		return "unknown order " + order
	}
	return "ok"
}

func (p *lockProcess) acquire(t *testing.T, order, as string) string {
	if order == "queue" { // in the background, for a process that is killed there
		n, err := strconv.Atoi(as)
		require.NoError(t, err)
		for range n {
			go func() {
				_ = p.locker.Do(context.Background(), p.name, func(ctx context.Context, _ *lock.Lease) error {
					<-ctx.Done()
					return nil
				})
			}()
		}
		return "ok"
	}
	take := p.locker.Try
	if order == "acquire" {
		take = p.locker.Acquire
	}
	lease, err := take(t.Context(), p.name)
	if err != nil {
		return err.Error()
	}
	p.leases[as] = lease
	return "fence " + strconv.FormatInt(lease.Fence(), 10)
}

// spin checks the kept context without a pause, until the clock has made a jump of
// more than a lease, and returns what the first check after that saw.
func (p *lockProcess) spin(lease *lock.Lease) string {
	before := time.Now() // whatever stops the process after the next line shows
	fmt.Println("spinning")
	for {
		now := time.Now()
		err := p.kept.Err()
		if now.Sub(before) > pausedTTL {
			return fmt.Sprint(err != nil, " ", lease.Err())
		}
		before = now
	}
}

// order is a process that obeys.
type order struct {
	lab.Worker
	t   testing.TB
	in  io.Writer
	pid int
}

func startLockProcess(t testing.TB, url, name string, env ...string) *order {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, "-test.run=^TestLockProcess$", "-test.timeout=10m")
	cmd.Env = append(os.Environ(), lockEnvName+"="+name, lockEnvURL+"="+url, "GORACE=atexit_sleep_ms=0")
	cmd.Env = append(cmd.Env, env...)
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	worker := lab.Worker{Cmd: cmd, Stdin: stdin, Out: bufio.NewScanner(stdout)}
	o := &order{Worker: worker, t: t, in: stdin, pid: cmd.Process.Pid}
	t.Cleanup(o.Kill)
	o.read("ready")
	return o
}

// send gives an order without waiting for the answer.
func (o *order) send(format string, args ...any) {
	o.t.Helper()
	_, err := fmt.Fprintf(o.in, format+"\n", args...)
	require.NoError(o.t, err)
}

// read returns what follows the prefix in the next line that begins with the prefix.
func (o *order) read(prefix string) string {
	o.t.Helper()
	for o.Out.Scan() {
		if rest, ok := strings.CutPrefix(o.Out.Text(), prefix); ok {
			return strings.TrimSpace(rest)
		}
	}
	require.FailNow(o.t, "the process has ended", "waiting for %q", prefix)
	return ""
}

// do gives an order and returns the answer.
func (o *order) do(format string, args ...any) string {
	o.t.Helper()
	o.send(format, args...)
	return o.read("= ")
}

func (o *order) fence(format string, args ...any) int64 {
	o.t.Helper()
	text, ok := strings.CutPrefix(o.do(format, args...), "fence ")
	require.True(o.t, ok, text)
	return lab.Must(strconv.ParseInt(text, 10, 64))
}

func (o *order) pause() { require.NoError(o.t, launch.Stop(o.pid)) }

func (o *order) resume() { require.NoError(o.t, launch.Continue(o.pid)) }
