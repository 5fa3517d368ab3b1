package queue_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// No push shows the token that it refuses: a token can be a secret.
func TestRefusedTokensAreNotShown(t *testing.T) {
	t.Parallel()
	q, c := lab.NewQueue(t, nil)
	shards, err := queue.NewShards(c, luatomictest.Namespace(t), 2, nil)
	require.NoError(t, err)
	const token = "secret{"
	_, one := q.PushOnce(t.Context(), token, queue.Job{})
	_, all := queue.PushAllOnce(t.Context(), token, queue.Batch{Queue: q, Jobs: lab.Bodies(1)})
	_, spread := shards.PushOnce(t.Context(), token, queue.Job{})
	for _, err := range []error{one, all, spread} {
		require.ErrorIs(t, err, lua.ErrBadName)
		require.NotContains(t, err.Error(), "secret")
	}
}
