package lock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	lockscript "github.com/luatomic/luatomic/gen/lock"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/internal/testkit/scriptcase"
)

// Two releases of one lease can be two rows of one call: the second takes the lock from nobody.
func TestReleaseThatIsThereTwiceHandsTheLockOverOnce(t *testing.T) {
	t.Parallel()
	const channel = "release:rows:"
	k := newLockKeys(t, scriptcase.WantedMe, time.Minute, scriptcase.EntryOf("a.1"), scriptcase.EntryOf("b.1"))
	a, b := k.inbox(k.lock+channel, "a"), k.inbox(k.lock+channel, "b")
	row := []any{"me", "", "0", k.lock + channel}
	keys := []string{k.lock, k.queue, k.lock, k.queue}
	released, err := k.c.Eval(t.Context(), lab.Text(k.c, &lockscript.ReleaseScript), keys, append(row,
		row...)...).Slice()
	require.NoError(t, err)
	require.Equal(t, []any{int64(1), int64(1)}, released)
	require.Contains(t, k.text(), " a.1 ", "the first waiter has the lock")
	require.Equal(t, []string{scriptcase.EntryOf("b.1")}, k.entries())
	m, err := a.ReceiveMessage(t.Context())
	require.NoError(t, err)
	require.Contains(t, m.Payload, "g a.1 ")
	m, err = b.ReceiveMessage(t.Context())
	require.NoError(t, err)
	require.Contains(t, m.Payload, "n b.1 ", "the second is notified when to check")
}
