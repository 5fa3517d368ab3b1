package luatomic_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// Under Sentinel, with go-redis' failover client, everything continues on the new master, after a requested failover
// and after the master was killed.
func TestSentinelFailover(t *testing.T) {
	lab.Long(t)
	t.Parallel()
	ctx := t.Context()
	s := luatomictest.StartSentinel(t)
	c := s.Client()
	q, err := queue.New(c, "q", nil)
	require.NoError(t, err)
	holder := lab.Locker(t, c, &lock.Options{TTL: time.Minute})
	other := lab.Locker(t, s.Client(), &lock.Options{TTL: time.Minute})
	lab.Serving(t, lab.Echo, s.Client(), "bus", nil, func(_ context.Context, text string) (string, error) {
		return text, nil
	})
	bus := lab.OpenBus(t, c, "bus", nil)
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
		waiting := lab.AcquireLater(ctx, other, name)
		lab.WaitFor(t, other, name, 1)
		_, err = q.Push(ctx, queue.Job{ID: name, Body: []byte("b")})
		require.NoError(t, err)
		lab.Replicated(t, s.Master(ctx).Client())

		replace()
		// Replicated data is on the new master. Replies to calls in flight may be lost.
		luatomictest.Eventually(t, time.Minute, "the job is on the new master", func() bool {
			taken, err := q.Take(ctx, 1)
			if err != nil || len(taken.Deliveries) == 0 {
				return false
			}
			// A job that the old master acked last is delivered again.
			require.NoError(t, taken.Deliveries[0].Ack(ctx))
			return taken.Deliveries[0].ID == name
		})
		require.NoError(t, lease.Release(ctx))
		next := lab.Soon(t, 90*time.Second, "the new master grants the lock", waiting)
		require.NoError(t, next.Err)
		require.Greater(t, next.Lease.Fence(), lease.Fence())
		require.NoError(t, next.Lease.Release(ctx))
		luatomictest.Eventually(t, time.Minute, "calls get replies", func() bool {
			out, err := lab.Echo.Call(ctx, bus, name, nil)
			return err == nil && out == name
		})
	}
}
