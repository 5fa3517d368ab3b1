package lock_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/luatomictest"
)

// On a Ring, as on a cluster, the waiter that was granted the lock confirms that with a call. The others send nothing.
func TestAGrantThatIsConfirmedWakesNoOtherWaiter(t *testing.T) {
	t.Parallel()
	ctx, server := t.Context(), luatomictest.StartServer(t)
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": server.Addr()}})
	defer ring.Close()
	l := lab.Locker(t, ring, &lock.Options{TTL: time.Minute, Claim: time.Minute})
	held, err := l.Try(ctx, "x")
	require.NoError(t, err)
	require.NoError(t, held.Release(ctx)) // loads the script
	held, err = l.Try(ctx, "x")
	require.NoError(t, err)
	const waiters = 5
	got := make([]<-chan lab.Acquired, waiters)
	for i := range got {
		got[i] = lab.AcquireLater(ctx, l, "x")
		lab.WaitFor(t, l, "x", i+1)
	}
	before := lab.CommandCalls(t, server.Client())["evalsha"]
	for _, next := range got {
		require.NoError(t, held.Release(ctx))
		acquired := lab.Soon(t, 20*time.Second, "the lock", next)
		require.NoError(t, acquired.Err)
		held = acquired.Lease
	}
	require.NoError(t, held.Release(ctx))
	require.Equal(t, 2*waiters+1, lab.CommandCalls(t, server.Client())["evalsha"]-before, "releases and confirmations")
}
