package lock_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	lockscript "github.com/luatomic/luatomic/gen/lock"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/internal/testkit/scriptcase"
	"github.com/luatomic/luatomic/luatomictest"
)

// The server's clock gives its microseconds without leading zeros. A fence has six digits of them, or the next one
// would be smaller.
func TestFenceOfAHandOverHasAllItsDigits(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	require.NoError(t, c.Set(ctx, "lock:{"+name+"}", "2 5 0 - P.1:1 0 1000 note", time.Hour).Err())
	require.NoError(t, c.RPush(ctx, "lockq:{"+name+"}", "60000 Q.1:2 0 1000 other").Err())
	require.NoError(t, lab.Subscribe(ctx, t, c, name+"Q"))
	text := lab.Text(c, &lockscript.ReleaseScript)
	fixed := strings.Replace(text, "redis.call('TIME')", "{'1732280000', '999'}", 1)
	require.NotEqual(t, text, fixed)
	released, err := c.Eval(ctx, fixed, []string{"lock:{" + name + "}", "lockq:{" + name + "}"}, "P.1:1", "", 0,
		name).Slice()
	require.NoError(t, err)
	require.Equal(t, []any{int64(1)}, released)
	record := scriptcase.LockRecord(t, c, name)
	require.Equal(t, "Q.1:2", record[scriptcase.RecordOwner])
	require.Equal(t, "1732280000000999", record[scriptcase.RecordFence])
}
