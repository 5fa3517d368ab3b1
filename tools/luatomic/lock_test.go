package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/luatomictest"
)

// goes waits until the process whose id follows the mark is gone.
func goes(t *testing.T, text, mark string) {
	t.Helper()
	for _, found := range regexp.MustCompile(regexp.QuoteMeta(mark)+`(\d+)\.`).FindAllStringSubmatch(text, -1) {
		pid, err := strconv.Atoi(found[1])
		require.NoError(t, err)
		luatomictest.Eventually(t, within, "process "+found[1]+" is gone", func() bool { return !runs(pid) })
	}
	require.Contains(t, text, mark)
}

// runs reports whether a process is there and has not ended: one that nobody
// waited for has.
func runs(pid int) bool {
	if p, err := os.FindProcess(pid); err != nil || p.Signal(syscall.Signal(0)) != nil {
		return false
	}
	state, err := exec.Command("ps", "-o", "state=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && !strings.HasPrefix(strings.TrimSpace(string(state)), "Z")
}

// locker is what others see of the lock.
func (e *env) locker() *lock.Locker {
	return lock.New(luatomictest.Client(e.t), &lock.Options{
		Prefix: e.prefix, Note: "the test", TTL: time.Minute, Claim: time.Minute,
	})
}

// free checks that the lock can be had at once.
func (e *env) free(name string) {
	e.t.Helper()
	lease, err := e.locker().Try(e.t.Context(), name)
	require.NoError(e.t, err)
	require.NoError(e.t, lease.Release(e.t.Context()))
}

func TestLock(t *testing.T) {
	t.Parallel()
	e := shared(t)
	last := 0
	for range 3 {
		c := e.with("the input").run("lock", "x", "--", "sh", "-c",
			`cat >&2; echo "$LUATOMIC_FENCE $LUATOMIC_KEY"; exit 7`).exits(7)
		require.Equal(t, "the input", c.stderr.String())
		fence, key, _ := strings.Cut(strings.TrimSpace(c.stdout.String()), " ")
		require.Equal(t, e.prefix+"lock:{x}", key)
		n, err := strconv.Atoi(fence)
		require.NoError(t, err)
		require.Greater(t, n, last)
		last = n
		e.free("x")
	}
	e.run("lock", "x", "--", "true").exits(0)
	e.run("lock", "x", "--", "sh", "-c", "kill -9 $$").exits(137)
	e.free("x")
}

func TestLockHeld(t *testing.T) {
	t.Parallel()
	e := shared(t)
	lease, err := e.locker().Try(t.Context(), "x")
	require.NoError(t, err)
	for _, args := range [][]string{{}, {"--wait", "3s"}} {
		c := e.run(append(append([]string{"lock", "x"}, args...), "--", "echo", "ran")...).exits(exitTryLater)
		require.Contains(t, c.stderr.String(), `luatomic: lock is held: "x" by the test, for `)
		require.Empty(t, c.stdout.String())
	}
	c := e.start("lock", "x", "--wait", "1h", "--", "echo", "ran")
	require.NoError(t, lease.Release(t.Context()))
	require.Equal(t, "ran\n", c.exits(exitDone).stdout.String())
}

func TestLockNote(t *testing.T) {
	t.Parallel()
	e := shared(t)
	script, file := untilFile(t)
	host, err := os.Hostname()
	require.NoError(t, err)
	for note, args := range map[string][]string{"me": {"--note", "me"}, host + ", process ": {}} {
		c := e.start(append(append([]string{"lock", "x"}, args...), "--", "sh", "-c", script)...)
		c.shows("started")
		_, err := e.locker().Try(t.Context(), "x")
		var held *lock.HeldError
		require.ErrorAs(t, err, &held)
		require.Contains(t, held.Holder, note)
		require.NoError(t, os.WriteFile(file, nil, 0o600))
		c.exits(exitDone)
		require.NoError(t, os.Remove(file))
	}
}

// The lease is renewed for as long as the command runs.
func TestLockRenews(t *testing.T) {
	t.Parallel()
	e := shared(t)
	script, file := untilFile(t)
	c := e.start("lock", "x", "--ttl", "6s", "--", "sh", "-c", script)
	c.shows("started")
	locker, began := e.locker(), time.Now()
	luatomictest.Eventually(t, within, "more than the lease passes", func() bool {
		_, err := locker.Try(t.Context(), "x")
		require.ErrorIs(t, err, lock.ErrHeld)
		return time.Since(began) > 7*time.Second
	})
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	c.exits(exitDone)
}

func TestLockLost(t *testing.T) {
	t.Parallel()
	e := shared(t)
	c := e.start("lock", "x", "--ttl", "9s", "--", "sh", "-c",
		`sleep 1000 & echo "grandchild $!." >&2; echo "child $$." >&2; wait`)
	c.shows("\nchild ")
	c.shows("grandchild ")
	require.NoError(t, luatomictest.Client(t).Del(t.Context(), e.prefix+"lock:{x}").Err())
	c.exits(exitFailed)
	require.Contains(t, c.stderr.String(), `luatomic: lock lost: "x" has expired; the command was killed`)
	goes(t, c.stderr.String(), "grandchild ")
	goes(t, c.stderr.String(), "\nchild ")
}

// A lock that is lost in the command's last moment is no success. Where the holder notices the loss first, as it looks
// again once its subscription stands, it kills the command.
func TestLockLostAtTheEnd(t *testing.T) {
	t.Parallel()
	e := shared(t)
	script, file := untilFile(t)
	for _, end := range []struct{ with, code int }{{0, exitFailed}, {7, 7}} {
		lost := func() string {
			c := e.start("lock", "x", "--ttl", "1h", "--", "sh", "-c", script+"; exit "+strconv.Itoa(end.with))
			c.shows("started")
			require.NoError(t, luatomictest.Client(t).Del(t.Context(), e.prefix+"lock:{x}").Err())
			require.NoError(t, os.WriteFile(file, nil, 0o600))
			c.wait()
			require.NoError(t, os.Remove(file))
			if strings.Contains(c.stderr.String(), "the command was killed") {
				c.exits(exitFailed)
			} else {
				c.exits(end.code)
			}
			return c.stderr.String()
		}
		luatomictest.Eventually(t, within, "the command ends before the loss is noticed", func() bool {
			return strings.Contains(lost(), `luatomic: release "x": lock lost`)
		})
	}
}

func TestLockServerGone(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	e := &env{t: t, url: server.URL()}
	c := e.start("lock", "x", "--ttl", "3s", "--", "sh", "-c", `echo "child $$." >&2; sleep 1000`)
	c.shows("child ")
	server.Kill()
	c.exits(exitFailed)
	require.Contains(t, c.stderr.String(), `lock lost: "x" was not extended in time`)
	goes(t, c.stderr.String(), "child ")
}

func TestLockInterruptedWaiting(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	client := server.Client()
	locker := lock.New(client, &lock.Options{TTL: time.Minute})
	lease, err := locker.Try(t.Context(), "x")
	require.NoError(t, err)
	c := (&env{t: t, url: server.URL()}).start("lock", "x", "--wait", "1h", "--", "echo", "ran")
	luatomictest.Eventually(t, within, "it waits", func() bool {
		info, err := locker.Info(t.Context(), "x")
		require.NoError(t, err)
		return info.Waiting == 1
	})
	c.signal(os.Interrupt)
	require.Empty(t, c.exits(exitInterrupted).stdout.String())
	info, err := locker.Info(t.Context(), "x")
	require.NoError(t, err)
	require.Zero(t, info.Waiting, "it has left the queue")
	require.NoError(t, lease.Release(t.Context()))
	lease, err = locker.Try(t.Context(), "x")
	require.NoError(t, err)
	require.NoError(t, lease.Release(t.Context()))
}

// A command that cannot run ends as in a shell, and the lock is not taken or free again.
func TestLockNoSuchCommand(t *testing.T) {
	t.Parallel()
	e, dir := shared(t), t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), mode))
		return path
	}
	for _, test := range []struct {
		command string
		code    int
	}{
		{"no-such-command", 127}, {filepath.Join(dir, "none"), 127},
		{file("data", "text", 0o600), 126}, {dir, 126}, {file("program", "no program", 0o700), 126},
	} {
		for _, verb := range [][]string{{"lock", "x"}, {"locks", "steal", "x"}} {
			c := e.run(append(verb, "--", test.command)...).exits(test.code)
			require.Contains(t, c.stderr.String(), "luatomic: cannot run ")
			require.Equal(t, 1, strings.Count(c.stderr.String(), "\n"), c.stderr.String())
			require.Empty(t, c.stdout.String())
			e.free("x")
		}
	}
}
