package plainlock_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/plainlock"
)

func TestANilClientIsAnError(t *testing.T) {
	t.Parallel()
	_, err := plainlock.New((*redis.Client)(nil), nil).Acquire(t.Context(), "l")
	require.EqualError(t, err, "plainlock: the client is nil: make it before its first call")
}
