package lock

import (
	"fmt"
	"testing"
	"time"
	"unsafe"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	lockscript "github.com/luatomic/luatomic/gen/lock"
	"github.com/luatomic/luatomic/internal/keeper"
	"github.com/luatomic/luatomic/internal/keys"
)

// asleep is how at looks to a machine that was suspended for d since: its wall clock went on, its monotonic clock did
// not. Only the reading of the wall clock can be moved by the exported methods.
func asleep(t *testing.T, at time.Time, d time.Duration) time.Time {
	t.Helper()
	moved := at.Add(-d) // both readings
	monotonic := (*int64)(unsafe.Add(unsafe.Pointer(&moved), unsafe.Sizeof(uint64(0))))
	*monotonic += int64(d)
	require.Equal(t, at.Sub(moved), time.Duration(0), "the layout of time.Time has changed")
	require.Equal(t, d, at.Round(0).Sub(moved.Round(0)), "the layout of time.Time has changed")
	return moved
}

// A waiter whose machine was suspended reads, after the resume, the message of a grant that ended meanwhile. Another
// process has the lock by then: the waiter makes another attempt.
func TestAGrantThatEndedWhileTheMachineWasSuspendedIsNotTaken(t *testing.T) {
	t.Parallel()
	for slept, taken := range map[time.Duration]bool{0: true, time.Minute: false} {
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // nothing is sent
		t.Cleanup(func() { _ = client.Close() })
		h := newHub(client, "")
		w := h.waiters.add(&request{token: "process.1", opts: &Options{}}, "channel")
		w.asked = asleep(t, time.Now(), slept)
		h.queued(w, lockscript.AcquireResult{Now: 1_000_000_000})
		// The lock was handed over a second after the attempt, for 20 s.
		require.True(t, h.waiters.received("g", "process.1", "1001000000 1001000000 20000 lock:{x}"))
		_, again, err := h.await(t.Context(), w)
		require.NoError(t, err)
		require.Equal(t, taken, !again, "suspended for %v", slept)
	}
}

// The masters of a cluster have clocks of their own. The end of a grant is read from the clock of the lock's server.
func TestAGrantIsReadFromTheClockOfItsServer(t *testing.T) {
	t.Parallel()
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}}) // nothing is sent
	t.Cleanup(func() { _ = client.Close() })
	h := newHub(client, "")
	attempt := func(token string, clock time.Duration) *waiter {
		w := h.waiters.add(&request{token: token, opts: &Options{}, keys: keys.Lock{Record: token}}, "channel")
		w.asked = time.Now()
		h.queued(w, lockscript.AcquireResult{Now: clock.Microseconds()})
		return w
	}
	w := attempt("process.1", time.Hour)
	attempt("process.2", time.Hour+time.Minute) // at another server
	now := time.Hour.Microseconds()
	require.True(t, h.waiters.received("g", "process.1", fmt.Sprint(now, " ", now, " 10000 lock:{x}")))
	g, _, err := h.await(t.Context(), w)
	require.NoError(t, err)
	require.Greater(t, keeper.Left(g.deadline), 5*time.Second)
}

// What two clocks may differ by grows with the time between the reading of the server's clock and the grant. A waiter
// uses the last reading of its process, also where another waiter had that reply.
func TestAWaiterThatHasWaitedForLongTakesItsGrant(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // nothing is sent
	t.Cleanup(func() { _ = client.Close() })
	h := newHub(client, "")
	const waited = time.Hour
	attempt := func(token string, ago time.Duration) *waiter {
		w := h.waiters.add(&request{token: token, opts: &Options{}}, "channel")
		w.asked = time.Now().Add(-ago)
		h.queued(w, lockscript.AcquireResult{Now: (2*waited - ago).Microseconds()})
		return w
	}
	w := attempt("process.1", waited)
	attempt("process.2", 0)
	attempt("process.3", waited/2) // whose reply is late
	now := (2 * waited).Microseconds()
	require.True(t, h.waiters.received("g", "process.1", fmt.Sprint(now, " ", now, " 1000 lock:{x}")))
	g, again, err := h.await(t.Context(), w)
	require.NoError(t, err)
	require.False(t, again, "another attempt")
	require.Greater(t, keeper.Left(g.deadline), 500*time.Millisecond)
}

// A waiter that leaves, or is granted the lock, before its attempt makes room for another one.
func TestAWaiterThatLeavesMakesRoomForTheNextCheck(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // nothing is sent
	t.Cleanup(func() { _ = client.Close() })
	h := newHub(client, "")
	all := make([]*waiter, 3*maxChecks)
	for i := range all {
		all[i] = h.waiters.add(&request{token: fmt.Sprint("process.", i), opts: &Options{}}, "channel")
	}
	h.waiters.arm(all[0].group, time.Hour) // so that none leaves its attempt to another
	notified := func() (n int) {
		for _, w := range all {
			n += len(w.wake)
		}
		return n
	}
	h.waiters.signalAll("channel")
	require.Equal(t, maxChecks, notified())
	h.waiters.remove(all[0])
	h.waiters.remove(all[2*maxChecks]) // it has not begun
	require.Equal(t, maxChecks+1, notified())
	for range 2 {
		for _, w := range all[1:] {
			h.waiters.queued(w, true)
		}
	}
	require.Equal(t, len(all)-1, notified(), "each waiter gets one message")
	h.waiters.signalAll("channel")
	require.Equal(t, maxChecks, all[0].group.checking)
}
