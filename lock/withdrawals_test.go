package lock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// A program that is interrupted while it waits, and ends, leaves nothing in the queue.
func TestCloseWaitsForWithdrawals(t *testing.T) {
	t.Parallel()
	name := luatomictest.Namespace(t)
	holder := lab.Locker(t, luatomictest.Client(t), nil)
	for kind, acquire := range map[string]func(ctx context.Context, l *lock.Locker) (*lock.Lease, error){
		"lock": func(ctx context.Context, l *lock.Locker) (*lock.Lease, error) { return l.Acquire(ctx, name) },
		"semaphore": func(ctx context.Context, l *lock.Locker) (*lock.Lease, error) {
			return l.Semaphore(name, 1).Acquire(ctx, 1)
		},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			_, err := acquire(t.Context(), holder)
			require.NoError(t, err)
			waiting := func() int {
				if kind == "lock" {
					return lab.Must(holder.Info(t.Context(), name)).Waiting
				}
				return lab.Must(holder.Semaphore(name, 1).Info(t.Context())).Waiting
			}
			c := luatomictest.Client(t)
			slow := func(run func() error) error {
				time.Sleep(100 * time.Millisecond) // longer than Acquire waits for its withdrawal
				return run()
			}
			c.AddHook(&lab.Around{Sha: lab.Digest(&gen.LockLeaveScript), Do: slow})
			c.AddHook(&lab.Around{Sha: lab.Digest(&gen.SemReleaseScript), Do: slow})
			l := lock.New(lua.Direct(c), nil)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() {
				_, err := acquire(ctx, l)
				ended <- err
			}()
			luatomictest.Eventually(t, 20*time.Second, "it waits", func() bool { return waiting() == 1 })
			cancel()
			require.ErrorIs(t, lab.Soon(t, 20*time.Second, "the end of Acquire", ended), context.Canceled)
			require.NoError(t, l.Close())
			require.Zero(t, waiting())
		})
	}
}

func TestCloseDoesNotWaitForAServerThatHangs(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	_, err := lab.Locker(t, server.Client(), nil).Try(t.Context(), "x")
	require.NoError(t, err)
	l := lock.New(server.Client(), nil)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := l.Acquire(ctx, "x")
		ended <- err
	}()
	lab.WaitFor(t, lab.Locker(t, server.Client(), nil), "x", 1)
	server.Pause()
	t.Cleanup(server.Resume)
	cancel()
	require.ErrorIs(t, lab.Soon(t, 20*time.Second, "the end of Acquire", ended), context.Canceled)
	began := time.Now()
	require.NoError(t, l.Close())
	require.Less(t, time.Since(began), 3*time.Second, "go-redis itself waits for 5 s and more")
}
