package queue_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
)

// One shard fails: the others have their jobs, the error names it, and a repeat adds what is missing and nothing
// else.
func TestShardsPushInPart(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, c := newShards(t, 4)
	broken := lab.Key(s.Queues()[2], "b")
	require.NoError(t, c.Set(ctx, broken, "x", 0).Err())
	jobs := lab.Bodies(100)
	out, err := s.Push(ctx, jobs...)
	require.ErrorIs(t, err, lua.ErrWrongType)
	require.ErrorContains(t, err, fmt.Sprintf("push to %q", s.Queues()[2].Name()))
	require.Len(t, out.Parts, 4)
	failed := out.Parts[2]
	require.ErrorIs(t, failed.Err, lua.ErrWrongType)
	require.Zero(t, failed.Ready)
	require.Equal(t, 100-len(failed.IDs), out.Ready)
	require.Len(t, out.IDs, 100)

	require.NoError(t, c.Del(ctx, broken).Err())
	again, err := s.PushOnce(ctx, out.Token, jobs...)
	require.NoError(t, err)
	require.Equal(t, 100, again.Ready, "the other shards return their first result")
	require.Equal(t, out.IDs, again.IDs)
	for i := range out.Parts {
		if i != 2 {
			require.Equal(t, out.Parts[i], again.Parts[i])
		}
	}
	total, err := s.Stats(ctx)
	require.NoError(t, err)
	require.Equal(t, 100, total.Ready, "nothing twice")
}
