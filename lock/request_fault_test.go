package lock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/luatomictest"
)

// The runtime repeats a call through an outage. What it acquires then is a lease that lasts: it does not count from the
// first time that the call was sent.
func TestALockThatAnOutageDelaysIsNotOverWhenItIsThere(t *testing.T) {
	t.Parallel()
	const ttl = 3 * time.Second
	for how, acquire := range map[string]func(context.Context, *lock.Locker) (lock.Leases, error){
		"Try": func(ctx context.Context, l *lock.Locker) (lock.Leases, error) {
			lease, err := l.Try(ctx, "x")
			return lock.Leases{lease}, err
		},
		"Acquire": func(ctx context.Context, l *lock.Locker) (lock.Leases, error) {
			lease, err := l.Acquire(ctx, "x")
			return lock.Leases{lease}, err
		},
		"Steal": func(ctx context.Context, l *lock.Locker) (lock.Leases, error) {
			lease, err := l.Steal(ctx, "x")
			return lock.Leases{lease}, err
		},
		"AcquireAll in one script": func(ctx context.Context, l *lock.Locker) (lock.Leases, error) {
			return l.AcquireAll(ctx, "x", "y")
		},
		"AcquireAll": func(ctx context.Context, l *lock.Locker) (lock.Leases, error) {
			return l.AcquireAll(ctx, "x", "y")
		},
		"Semaphore": func(ctx context.Context, l *lock.Locker) (lock.Leases, error) {
			permit, err := l.Semaphore("x", 1).Acquire(ctx, 1)
			return lock.Leases{permit}, err
		},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			tag := ""
			if how == "AcquireAll in one script" {
				tag = "t"
			}
			server := luatomictest.StartServer(t)
			l := lab.Locker(t, server.Client(), &lock.Options{TTL: ttl, Tag: tag})
			server.Kill()
			back := time.AfterFunc(ttl+ttl/2, server.Restart)
			defer back.Stop()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			began := time.Now()
			leases, err := acquire(ctx, l)
			require.NoError(t, err)
			require.Greater(t, time.Since(began), ttl, "the call outlasts the outage")
			for _, lease := range leases {
				require.NoError(t, lease.Err())
				require.NoError(t, lease.Release(t.Context()))
			}
		})
	}
}
