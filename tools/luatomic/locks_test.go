package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/luatomictest"
)

// hold takes the lock for the test.
func (e *env) hold(name string) *lock.Lease {
	e.t.Helper()
	lease, err := e.locker().Try(e.t.Context(), name)
	require.NoError(e.t, err)
	return lease
}

// waits returns when that many wait for the lock.
func (e *env) waits(name string, n int) {
	e.t.Helper()
	locker := e.locker()
	luatomictest.Eventually(e.t, within, fmt.Sprint(n, " wait"), func() bool {
		info, err := locker.Info(e.t.Context(), name)
		require.NoError(e.t, err)
		return info.Waiting == n
	})
}

func TestLocksShow(t *testing.T) {
	t.Parallel()
	e := shared(t)
	holds(t, e.run("locks", "show", "x").exits(exitDone).object(), map[string]any{
		"name": "x", "held": false, "fence": nil, "note": "", "remaining_ms": 0, "waiting": 0, "waiters": "[]",
		"key": e.prefix + "lock:{x}",
	})
	lease := e.hold("x")
	c := e.start("lock", "x", "--wait", "1h", "--note", "next", "--", "true")
	e.waits("x", 1)
	o := e.run("locks", "show", "x").exits(exitDone).object()
	holds(t, o, map[string]any{"held": true, "note": "the test", "waiting": 1, "waiters": "[next]"})
	require.EqualValues(t, lease.Fence(), o["fence"])
	require.InDelta(t, 30_000, o["remaining_ms"], 30_000)
	require.NoError(t, lease.Release(t.Context()))
	c.exits(exitDone)
	o = e.run("locks", "show", "x").exits(exitDone).object()
	holds(t, o, map[string]any{"held": false, "note": "", "waiting": 0, "fence": nil})
}

// A name may hold any bytes, and so may the pattern that finds it.
func TestLocksLsFindsNamesOfAnyBytes(t *testing.T) {
	t.Parallel()
	e := shared(t)
	const name = "caf\xe9 \u00fc"
	e.hold(name)
	for pattern, found := range map[string]int{
		name: 1, "caf?*": 1, "caf\xe9*": 1, "caf? ?": 1, "*\xe9*?": 1, "caf?": 0, "caf\xe8*": 0, "caf? ??": 0,
	} {
		out := e.run("locks", "ls", pattern).exits(exitDone).stdout.String()
		require.Equal(t, found, strings.Count(out, "\n"), "%q: %s", pattern, out)
	}
}

func TestLocksShowWatch(t *testing.T) {
	t.Parallel()
	e := shared(t)
	c := e.start("locks", "show", "x", "--watch", "10ms")
	luatomictest.Eventually(t, within, "it shows a free lock", func() bool {
		return strings.Contains(c.stdout.String(), `"held":false`)
	})
	e.hold("x")
	luatomictest.Eventually(t, within, "it shows a held lock", func() bool {
		return strings.Contains(c.stdout.String(), `"held":true`)
	})
	c.signal(os.Interrupt)
	c.exits(exitInterrupted)
}

func TestLocksLs(t *testing.T) {
	t.Parallel()
	e := shared(t)
	require.Empty(t, e.run("locks", "ls").exits(exitDone).stdout.String())
	for _, name := range []string{"a.1", "a.2", "b*1", "b/1"} {
		e.hold(name)
	}
	free := e.hold("a.free")
	require.NoError(t, free.Release(t.Context()))
	for pattern, want := range map[string]string{
		"": "a.1 a.2 b*1 b/1", "a.*": "a.1 a.2", "a?2": "a.2", "b?1": "b*1 b/1", "*1": "a.1 b*1 b/1", "a": "",
		"a.1": "a.1", "[ab].1": "",
	} {
		args := []string{"locks", "ls"}
		if pattern != "" {
			args = append(args, pattern)
		}
		found := map[string]bool{}
		for _, o := range e.run(args...).exits(exitDone).objects() {
			holds(t, o, map[string]any{"held": true, "note": "the test", "waiting": 0,
				"key": fmt.Sprintf("%slock:{%v}", e.prefix, o["name"])})
			found[o["name"].(string)] = true
		}
		require.Len(t, found, len(strings.Fields(want)), pattern)
		for _, name := range strings.Fields(want) {
			require.Contains(t, found, name, pattern)
		}
	}
}

// takenAway is the end of a command whose lock was taken away; the name is there where its keeper asked the server.
const takenAway = `luatomic: lock lost: it was taken away(: "x")?; the command was killed`

func TestLocksRelease(t *testing.T) {
	t.Parallel()
	e := shared(t)
	c := e.start("lock", "x", "--note", "the victim", "--ttl", "1h", "--", "sh", "-c",
		`echo "child $$." >&2; sleep 1000`)
	c.shows("child ")
	next := e.start("lock", "x", "--wait", "1h", "--note", "next", "--", "echo", "ran")
	e.waits("x", 1)
	r := e.run("locks", "release", "x").exits(exitDone)
	holds(t, r.object(), map[string]any{"name": "x", "released": true, "note": "the victim", "waiting": 1})
	require.Contains(t, r.stderr.String(), `lock "x" was held by the victim under fence `)
	c.exits(exitFailed)
	require.Regexp(t, takenAway, c.stderr.String())
	goes(t, c.stderr.String(), "child ")
	require.Equal(t, "ran\n", next.exits(exitDone).stdout.String())
}

func TestLocksReleaseByFence(t *testing.T) {
	t.Parallel()
	e := shared(t)
	lease := e.hold("x")
	r := e.run("locks", "release", "x", "--fence", "7").exits(exitFailed)
	require.Empty(t, r.stdout.String())
	require.Contains(t, r.stderr.String(),
		fmt.Sprintf(`cannot release lock "x": the test holds it under fence %d, not 7`, lease.Fence()))
	require.NoError(t, lease.Extend(t.Context()), "it was spared")
	r = e.run("locks", "release", "x", "--fence", strconv.FormatInt(lease.Fence(), 10)).exits(exitDone)
	require.EqualValues(t, lease.Fence(), r.object()["fence"])
	require.Empty(t, r.stderr.String())
	require.ErrorIs(t, lease.Extend(t.Context()), lock.ErrLost)
	e.free("x")
}

func TestLocksReleaseOfAFreeLock(t *testing.T) {
	t.Parallel()
	e := shared(t)
	for _, args := range [][]string{{}, {"--fence", "7"}} {
		r := e.run(append([]string{"locks", "release", "x"}, args...)...).exits(exitFailed)
		require.Equal(t, "luatomic: lock \"x\" is free: there is nothing to release\n", r.stderr.String())
		require.Empty(t, r.stdout.String())
	}
	died := e.locker().With(lock.Options{TTL: time.Millisecond, LockDelay: time.Hour})
	if _, err := died.Try(t.Context(), "x"); err != nil {
		require.ErrorIs(t, err, lock.ErrHeld) // the lease was over before the answer, and the lock is closed
	}
	luatomictest.Eventually(t, within, "the lease is over", func() bool {
		info, err := died.Info(t.Context(), "x")
		require.NoError(t, err)
		return !info.Held
	})
	r := e.run("locks", "release", "x").exits(exitFailed)
	require.Contains(t, r.stderr.String(), `lock "x" is free, and closed for 59m`)
}

func TestLocksSteal(t *testing.T) {
	t.Parallel()
	e := shared(t)
	c := e.start("lock", "x", "--note", "the victim", "--ttl", "1h", "--", "sh", "-c",
		`echo "child $$ $LUATOMIC_FENCE." >&2; sleep 1000`)
	c.shows("child ")
	script, file := untilFile(t)
	thief := e.start("locks", "steal", "x", "--note", "the thief", "--", "sh", "-c",
		`echo "$LUATOMIC_FENCE $LUATOMIC_KEY"; `+script+"; exit 7")
	thief.shows("started")
	c.exits(exitFailed)
	require.Regexp(t, takenAway, c.stderr.String())
	holds(t, e.run("locks", "show", "x").exits(exitDone).object(), map[string]any{"held": true, "note": "the thief"})
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	fence, key, _ := strings.Cut(strings.TrimSpace(thief.exits(7).stdout.String()), " ")
	require.Equal(t, e.prefix+"lock:{x}", key)
	var pid, old int
	_, err := fmt.Sscanf(c.stderr.String(), "child %d %d.", &pid, &old)
	require.NoError(t, err)
	n, err := strconv.Atoi(fence)
	require.NoError(t, err)
	require.Greater(t, n, old)
	luatomictest.Eventually(t, within, "the child is gone", func() bool { return !runs(pid) })
	e.free("x")
}

func TestLocksStealWithoutCommand(t *testing.T) {
	t.Parallel()
	e := shared(t)
	holds(t, e.run("locks", "steal", "y", "--ttl", "100ms").exits(exitDone).object(),
		map[string]any{"name": "y", "from": nil, "ttl_ms": 100})
	luatomictest.Eventually(t, within, "its lease ends", func() bool {
		lease, err := e.locker().Try(t.Context(), "y")
		return err == nil && lease.Release(t.Context()) == nil
	})
	lease := e.hold("x")
	o := e.run("locks", "steal", "x", "--ttl", "1h", "--note", "maintenance").exits(exitDone).object()
	holds(t, o, map[string]any{"name": "x", "from": "the test", "key": e.prefix + "lock:{x}"})
	require.EqualValues(t, 3_600_000, o["ttl_ms"])
	require.Greater(t, o["fence"], float64(lease.Fence()))
	require.NotEmpty(t, o["token"])
	require.ErrorIs(t, lease.Extend(t.Context()), lock.ErrLost)
	c := e.run("lock", "x", "--", "true").exits(exitTryLater)
	require.Contains(t, c.stderr.String(), `held: "x" by maintenance, for 59m`)
	e.run("locks", "release", "x").exits(exitDone)
	e.free("x")
}

func TestLocksOnACluster(t *testing.T) {
	t.Parallel()
	cluster := luatomictest.StartCluster(t)
	e := &env{t: t, url: "redis://" + cluster.Addrs()[0]}
	for _, name := range []string{"a", "b", "c", "d"} { // in several slots
		e.run("locks", "steal", name, "--ttl", "1h").exits(exitDone)
	}
	require.Len(t, e.run("locks", "ls").exits(exitDone).objects(), 4)
	for _, name := range []string{"a", "b", "c", "d"} {
		holds(t, e.run("locks", "show", name).exits(exitDone).object(), map[string]any{"held": true})
		e.run("locks", "release", name).exits(exitDone)
	}
	require.Empty(t, e.run("locks", "ls").exits(exitDone).objects())
}

func TestLockToken(t *testing.T) {
	t.Parallel()
	e := shared(t)
	c := e.run("lock", "x", "--", "sh", "-c", `echo "$LUATOMIC_TOKEN"`).exits(exitDone)
	require.Regexp(t, `^[A-Z0-9]+\.\w+\n$`, c.stdout.String())
}

func TestLockReadWrite(t *testing.T) {
	t.Parallel()
	e := shared(t)
	script, file := untilFile(t)
	readers := []*cli{e.start("lock", "x", "--read", "--note", "a reader", "--", "sh", "-c", script)}
	readers[0].shows("started")
	readers = append(readers, e.start("lock", "x", "--read", "--", "sh", "-c", script))
	readers[1].shows("started") // together with the first
	e.run("lock", "x", "--", "true").exits(exitDone)
	c := e.run("lock", "x", "--write", "--", "echo", "ran").exits(exitTryLater)
	require.Contains(t, c.stderr.String(), `lock is held: "x"`)
	require.Empty(t, c.stdout.String())
	rw := e.locker().RW("x")
	waits := func(n int) {
		luatomictest.Eventually(t, within, fmt.Sprint(n, " wait"), func() bool {
			info, err := rw.Info(t.Context())
			require.NoError(t, err)
			return info.Waiting == n
		})
	}
	gone := e.start("lock", "x", "--write", "--wait", "1h", "--", "echo", "ran")
	waits(1)
	gone.signal(os.Interrupt)
	require.Empty(t, gone.exits(exitInterrupted).stdout.String())
	waits(0)
	writer := e.start("lock", "x", "--write", "--wait", "1h", "--", "sh", "-c", `echo "$LUATOMIC_KEY $LUATOMIC_FENCE"`)
	waits(1)
	e.run("lock", "x", "--read", "--", "true").exits(exitTryLater) // the writer was first
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for _, r := range readers {
		r.exits(exitDone)
	}
	require.Regexp(t, `rw:\{x\} \d+\n$`, writer.exits(exitDone).stdout.String())
	e.run("lock", "x", "--write", "--", "true").exits(exitDone)
}

// A reader whose permit is taken away is killed as any other.
func TestLockReadLost(t *testing.T) {
	t.Parallel()
	e := shared(t)
	c := e.start("lock", "x", "--read", "--ttl", "3s", "--", "sh", "-c", `echo "child $$." >&2; sleep 1000`)
	c.shows("child ")
	require.NoError(t, luatomictest.Client(t).Del(t.Context(), e.prefix+"rw:{x}").Err())
	c.exits(exitFailed)
	require.Contains(t, c.stderr.String(), "lock lost")
	goes(t, c.stderr.String(), "child ")
}

func TestLockMaxHold(t *testing.T) {
	t.Parallel()
	e := shared(t)
	c := e.run("lock", "x", "--max-hold", "8s", "--", "sh", "-c", `echo "child $$." >&2; sleep 1000`).exits(exitFailed)
	require.Contains(t, c.stderr.String(), "held for MaxHold")
	require.Contains(t, c.stderr.String(), "the command was killed")
	goes(t, c.stderr.String(), "child ")
	e.free("x")
}

func TestLockDelay(t *testing.T) {
	t.Parallel()
	e := shared(t)
	script, file := untilFile(t)
	c := e.start("lock", "x", "--ttl", "3s", "--lock-delay", "1h", "--", "sh", "-c", script)
	c.shows("started")
	c.signal(syscall.SIGKILL)
	require.NoError(t, os.WriteFile(file, nil, 0o600)) // its child outlived it
	c.wait()
	luatomictest.Eventually(t, within, "the lease is over", func() bool {
		o := e.run("locks", "show", "x").exits(exitDone).object()
		return o["held"] == false && o["remaining_ms"].(float64) > 3_500_000
	})
	e.run("lock", "x", "--", "true").exits(exitTryLater)
}

func TestLockReplicas(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	e := &env{t: t, url: server.URL()}
	c := e.run("lock", "x", "--replicas", "1", "--", "echo", "ran").exits(exitTryLater)
	require.Contains(t, c.stderr.String(),
		`luatomic: lock not replicated: 0 of 1 replicas confirmed "x" within 1s; see INFO replication, or raise ReplicaTimeout; try later, or ask for fewer --replicas`)
	require.Empty(t, c.stdout.String())
	host, port, _ := strings.Cut(server.Addr(), ":")
	luatomictest.StartServer(t, "--replicaof", host+" "+port)
	luatomictest.Eventually(t, within, "the replica follows", func() bool {
		info, err := server.Client().Info(t.Context(), "replication").Result()
		return err == nil && strings.Contains(info, "state=online")
	})
	luatomictest.Eventually(t, within, "the replica confirms within a second", func() bool {
		c = e.run("lock", "x", "--replicas", "1", "--", "echo", "ran")
		return c.wait() != exitTryLater
	})
	require.Equal(t, "ran\n", c.exits(exitDone).stdout.String())
}

// A server that goes away while the command waits.
func TestLockServerGoneWaiting(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	e := &env{t: t, url: server.URL()}
	locker := lock.New(server.Client(), &lock.Options{TTL: time.Minute})
	_, err := locker.Try(t.Context(), "x")
	require.NoError(t, err)
	c := e.start("lock", "x", "--wait", "5s", "--", "echo", "ran")
	luatomictest.Eventually(t, within, "it waits", func() bool {
		info, err := locker.Info(t.Context(), "x")
		require.NoError(t, err)
		return info.Waiting == 1
	})
	server.Kill()
	c.exits(exitTryLater)
	require.Contains(t, c.stderr.String(), `"x"`)
	require.Contains(t, c.stderr.String(), "try later, or wait longer with --wait")
	require.Empty(t, c.stdout.String())
	for line := range strings.Lines(c.stderr.String()) {
		require.True(t, strings.Contains(line, "try later") ||
			strings.Contains(line, server.URL()+" does not answer: "), c.stderr.String())
	}
}
