package luatomic_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic"
	"github.com/luatomic/luatomic/luatomictest"
)

// Under Sentinel, with go-redis' failover client, all goes on with the server that takes
// over: one that is asked to, and one that finds its master killed.
func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := luatomictest.StartSentinel(t)
	c := s.Client()
	q, err := luatomic.NewQueue(c, "q", nil)
	require.NoError(t, err)
	holder := locker(t, c, &luatomic.LockerOptions{TTL: time.Minute})
	other := locker(t, s.Client(), &luatomic.LockerOptions{TTL: time.Minute})
	serving(t, echo, s.Client(), "bus", nil, func(_ context.Context, text string) (string, error) { return text, nil })
	bus := openBus(t, c, "bus", nil)
	for round, replace := range []func(){
		func() { s.FailOver(ctx) },
		func() {
			master := s.Master(ctx)
			master.Kill()
			s.Replaced(ctx, master)
		},
	} {
		name := fmt.Sprint("x", round)
		lease, err := holder.Try(ctx, name)
		require.NoError(t, err)
		waiting := acquireLater(ctx, other, name)
		waitFor(t, other, name, 1)
		_, err = q.Push(ctx, luatomic.Job{ID: name, Body: []byte("b")})
		require.NoError(t, err)
		replicated(t, s.Master(ctx).Client())

		replace()
		// What was replicated is there. The answers to what is on its way may be lost.
		luatomictest.Eventually(t, time.Minute, "the job is with the new master", func() bool {
			taken, err := q.Take(ctx, 1)
			if err != nil || len(taken.Deliveries) == 0 {
				return false
			}
			// One that was acked by the old master in its last moment comes again.
			require.NoError(t, taken.Deliveries[0].Ack(ctx))
			return taken.Deliveries[0].ID == name
		})
		require.NoError(t, lease.Release(ctx))
		next := soon(t, 90*time.Second, "the lock is handed over by the new master", waiting)
		require.NoError(t, next.err)
		require.Greater(t, next.lease.Fence(), lease.Fence())
		require.NoError(t, next.lease.Release(ctx))
		luatomictest.Eventually(t, time.Minute, "calls are answered", func() bool {
			out, err := echo.Call(ctx, bus, name)
			return err == nil && out == name
		})
	}
}

// replicated returns when a replica has what was written so far.
func replicated(t *testing.T, master *redis.Client) {
	t.Helper()
	c := master.Conn() // WAIT is for what its own connection wrote
	defer c.Close()
	require.NoError(t, c.Set(t.Context(), "written", 1, 0).Err())
	luatomictest.Eventually(t, 30*time.Second, "a replica has it", func() bool {
		n, err := c.Wait(t.Context(), 1, time.Second).Result()
		return err == nil && n == 1
	})
}
