package actionhero_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/actionhero"
)

// A node publishes in a goroutine that no caller can recover.
func TestANilClientIsAnError(t *testing.T) {
	t.Parallel()
	n := actionhero.NewNode((*redis.Client)(nil), nil)
	require.EqualError(t, n.Run(t.Context()), "actionhero: the client is nil: make it before its first call")
	err := n.Cast(t.Context(), "api.jobs.run", nil, "")
	require.EqualError(t, err, "actionhero: publish: the client is nil: make it before its first call")
}
