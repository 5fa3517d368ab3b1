package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/plainlock"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/luatomictest"
)

// A wait ends in time, whatever the server does: when it hangs from the start, and when it stops meanwhile.
func TestLockWaitEndsInTimeWithoutAServer(t *testing.T) {
	t.Parallel()
	for name, stopped := range map[string]bool{"stopped": true, "stops": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := luatomictest.StartServer(t)
			locker := lock.New(server.Client(), &lock.Options{TTL: time.Minute})
			lease, err := locker.Try(t.Context(), "x")
			require.NoError(t, err)
			e := &env{t: t, url: server.URL()}
			wait := 4 * time.Second // in which the command comes to wait, on a busy machine too
			if stopped {
				wait, e.extra = 2*time.Second, []string{inHaste}
				server.Pause()
			}
			begun := time.Now()
			silent := begun
			c := e.start("lock", "x", "--wait", wait.String(), "--", "echo", "ran")
			if !stopped {
				luatomictest.Eventually(t, within, "it waits", func() bool {
					info, err := locker.Info(t.Context(), "x")
					return err == nil && info.Waiting == 1
				})
				server.Pause()
				silent = time.Now()
			}
			c.exits(exitTryLater)
			took, silence := time.Since(begun), time.Since(silent)
			server.Resume()
			require.Empty(t, c.stdout.String())
			require.GreaterOrEqual(t, took, wait, c.stderr.String())
			require.Less(t, silence, 9*time.Second, "go-redis itself waits for 10 s and more: %s", c.stderr.String())
			require.NoError(t, lease.Release(t.Context()))
		})
	}
}

// In another dialect, too, a server that hangs is a reason to try later, for a command that waits.
func TestLockWaitOfADialectWithoutAServer(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	server.Pause()
	t.Cleanup(server.Resume)
	e := &env{t: t, url: server.URL(), extra: []string{inHaste}}
	var all []*cli
	for _, dialect := range []string{plain, redisInAction, actionHero} {
		all = append(all, e.start("lock", "x", "--wait", "2s", "--dialect", dialect, "--", "echo", "ran"))
	}
	for _, c := range all {
		c.exits(exitTryLater)
		require.Empty(t, c.stdout.String())
		require.Contains(t, c.stderr.String(), "no answer within")
	}
}

// A wait that ends before or while the server is asked is over as any other is.
func TestLockWaitThatEndsBeforeAnAnswer(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	c := server.Client()
	plain := plainlock.New(c, &plainlock.Options{TTL: time.Minute})
	t.Cleanup(func() { _ = plain.Close() })
	locker := lock.New(c, &lock.Options{TTL: time.Minute})
	s := &session{args: []string{"x"}, signals: &signals{stop: t.Context()}}
	server.Pause()
	t.Cleanup(server.Resume)
	for name, obtain := range map[string]func(*lockCmd) error{
		"plain":    func(l *lockCmd) error { _, err := l.obtainPlain(s, plain); return err },
		"luatomic": func(l *lockCmd) error { _, err := l.obtain(s, locker); return err },
	} {
		for _, begun := range []time.Time{time.Now(), time.Now().Add(-time.Minute)} {
			err := obtain(&lockCmd{wait: 50 * time.Millisecond, begun: begun})
			var end *exitError
			require.ErrorAs(t, err, &end, name)
			require.Equal(t, exitTryLater, end.code, name)
			require.ErrorContains(t, err, `lock "x" was not obtained within 50ms`, name)
		}
	}
}

// An interrupt while the lock is extended for the first time leaves no lock behind.
func TestForeignLockIsReleasedAfterAnInterrupt(t *testing.T) {
	t.Parallel()
	stop, interrupt := context.WithCancel(t.Context())
	released := errors.New("not released")
	f := &foreignLock{ttl: time.Minute,
		extend:  func(ctx context.Context) error { interrupt(); return ctx.Err() },
		release: func(ctx context.Context) error { released = ctx.Err(); return released },
	}
	require.ErrorIs(t, f.begin(stop, t.Context()), context.Canceled)
	require.NoError(t, released)
}

// A lease that is over before the command is started leaves it alone, and the message says so.
func TestLostBeforeTheCommandIsStarted(t *testing.T) {
	t.Parallel()
	started := filepath.Join(t.TempDir(), "started")
	s := &session{child: []string{"touch", started}}
	l := &lockCmd{}
	require.NoError(t, l.look(s))
	late := &foreignLock{ttl: time.Second, begun: time.Now().Add(-time.Minute)}
	for cause, keep := range map[error]func(context.Context) context.Context{
		lock.ErrLost: func(ctx context.Context) context.Context {
			over, end := context.WithCancelCause(ctx)
			end(lock.ErrLost)
			return over
		},
		errNotExtended: late.keep,
	} {
		work, lost := l.runChild(s, keep)
		require.NoError(t, work)
		require.ErrorIs(t, lost, cause)
		require.ErrorContains(t, lost, "; the command was not started")
		require.NoFileExists(t, started)
	}
}

// A release at a server that hangs takes seconds. Interrupts then end the program, as they do anywhere else: CMD, to
// which they went, has ended.
func TestInterruptsEndAReleaseThatHangs(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	t.Cleanup(server.Resume)
	end := filepath.Join(t.TempDir(), "end")
	c := (&env{t: t, url: server.URL()}).start("lock", "x", "--ttl", "1h", "--", "sh", "-c",
		`trap '' INT; echo started >&2; while [ ! -e "$0" ]; do sleep 0.05; done; echo ended >&2; exit 5`, end)
	c.shows("started")
	server.Pause()
	require.NoError(t, os.WriteFile(end, nil, 0o600))
	c.shows("ended")
	ended := make(chan int, 1)
	go func() { ended <- c.wait() }()
	every := time.NewTicker(100 * time.Millisecond)
	defer every.Stop()
	for began := time.Now(); ; {
		select {
		case code := <-ended:
			require.Equal(t, exitInterrupted, code, c.stderr.String())
			require.Less(t, time.Since(began), 8*time.Second, "the release tries for 10 s")
			return
		case <-every.C:
			_ = c.cmd.Process.Signal(os.Interrupt) // it may have ended
		}
	}
}

// The cures of the library that name a method are of no use in a shell.
func TestTheErrorOfAReleaseNamesNoMethod(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	lease, err := lock.New(server.Client(), &lock.Options{TTL: time.Hour}).Try(t.Context(), "x")
	require.NoError(t, err)
	server.Kill()
	err = lease.Release(t.Context())
	require.ErrorContains(t, err, "call Release again")
	require.Regexp(t, `refused \(lock_release\); the lease ends in .*s$`, oneLine(err))
}
