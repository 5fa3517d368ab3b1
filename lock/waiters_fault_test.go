package lock

import (
	"testing"
	"time"
	"unsafe"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
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
		w.server = serverReading{w.asked, 1_000_000_000}
		// The lock was handed over a second after the attempt, for 20 s.
		require.True(t, h.waiters.received("g", "process.1", "1001000000 1001000000 20000 lock:{x}"))
		_, again, err := h.await(t.Context(), w)
		require.NoError(t, err)
		require.Equal(t, taken, !again, "suspended for %v", slept)
	}
}
