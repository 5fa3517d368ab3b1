package queue

import (
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/lua"
)

// A consumer retries an error that it does not know, such as that of a proxy or of SCRIPT KILL, and ends with one that
// no retry cures.
func TestOnlyWhatNoRetryCuresIsPermanent(t *testing.T) {
	t.Parallel()
	require.False(t,
		isPermanent(&lua.Error{Outcome: lua.ErrExecutedInPart, Err: errors.New("ERR Connection timed out")}))
	require.False(t, isPermanent(lua.ErrOutcomeUnknown))
	for _, err := range []error{lua.ErrWrongType, lua.ErrOutOfRange, redis.ErrClosed, ErrLayout} {
		require.True(t, isPermanent(err), err)
	}
}
