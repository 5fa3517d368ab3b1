package lock_test

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/lock"
)

// Every fence that a Locker got is known to it, however it got the lock.
func TestEveryFenceOfALockerIsItsFloor(t *testing.T) {
	t.Parallel()
	for how, acquire := range map[string]func(*testing.T, *lock.Locker, func(time.Duration)) *lock.Lease{
		"AcquireAll in one script": func(t *testing.T, l *lock.Locker, _ func(time.Duration)) *lock.Lease {
			all, err := l.AcquireAll(t.Context(), "x", "y")
			require.NoError(t, err)
			return all[0]
		},
		"handed over": func(t *testing.T, l *lock.Locker, step func(time.Duration)) *lock.Lease {
			first, err := l.Try(t.Context(), "x")
			require.NoError(t, err)
			got := lab.AcquireLater(t.Context(), l, "x")
			lab.WaitFor(t, l, "x", 1)
			step(time.Second)
			require.NoError(t, first.Release(t.Context()))
			next := lab.Soon(t, 20*time.Second, "the lock", got)
			require.NoError(t, next.Err)
			return next.Lease
		},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			server, now := miniredis.RunT(t), time.Now()
			step := func(d time.Duration) {
				now = now.Add(d)
				server.SetTime(now)
			}
			step(0)
			c := redis.NewClient(&redis.Options{Addr: server.Addr()})
			defer c.Close()
			l := lab.Locker(t, c, &lock.Options{Tag: "t", TTL: time.Minute})
			last := acquire(t, l, step)
			require.NoError(t, last.Release(t.Context()))
			step(-time.Hour)
			next, err := l.Try(t.Context(), "x")
			require.NoError(t, err)
			require.Greater(t, next.Fence(), last.Fence())
		})
	}
}
