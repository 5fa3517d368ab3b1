package queue_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// A user who may call only some of the commands meets the undo, in the second queue after the first has been
// written. Holds that had ended are as before.
func TestPushAllUndoesAWriteRefusedHalfWay(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	admin := luatomictest.StartServer(t).Client()
	full := lab.Tagged(t, admin, "t", 2)
	lab.Push(t, full[0], queue.Job{ID: "there"})
	for _, q := range full {
		lab.Push(t, q, queue.Job{ID: "over", Unique: "free", UniqueTTL: time.Millisecond})
	}
	luatomictest.Eventually(t, 5*time.Second, "the holds have ended", func() bool {
		out, err := full[0].Push(ctx, queue.Job{ID: "over", Unique: "free"})
		require.NoError(t, err)
		now := admin.Time(ctx).Val()
		return len(out.Duplicates) == 1 && float64(now.UnixMilli()) > admin.ZScore(ctx, "{t}{b}:ux", "free").Val()
	})
	for _, forbidden := range []string{"zadd", "rpush", "set"} {
		c := limited(t, admin, forbidden)
		q := lab.Tagged(t, c, "t", 2)
		before := lab.Dump(ctx, t, admin, "t")
		_, err := queue.PushAll(ctx, queue.Batch{Queue: q[0], Jobs: []queue.Job{{ID: "a"}, {ID: "b", Unique: "other"}}},
			queue.Batch{Queue: q[1], Jobs: []queue.Job{{ID: "a", Unique: "free"}, {ID: "b", Delay: time.Hour}}})
		require.ErrorIs(t, err, lua.ErrExecutedInPart, forbidden)
		require.Equal(t, before, lab.Dump(ctx, t, admin, "t"), forbidden)
	}
}

// A server over its memory limit refuses the whole batch.
func TestPushAllIsRefusedWholeWithoutMemory(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := luatomictest.StartServer(t).Client()
	q := lab.Tagged(t, c, "t", 2)
	lab.Push(t, q[0], queue.Job{})
	require.NoError(t, c.ConfigSet(ctx, "maxmemory", "1mb").Err())
	before := lab.Dump(ctx, t, c, "t")
	_, err := queue.PushAll(ctx, queue.Batch{Queue: q[0], Jobs: lab.Bodies(1)},
		queue.Batch{Queue: q[1], Jobs: lab.Bodies(1)})
	require.ErrorIs(t, err, lua.ErrNotExecuted)
	require.ErrorContains(t, err, "OOM")
	require.Equal(t, before, lab.Dump(ctx, t, c, "t"))
}

// The script finds a key of the wrong type in the second queue before it writes the first one: a large body would
// change the encoding of its hash for good, which no undo reverts.
func TestPushAllReadsAllKeysFirst(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), luatomictest.Client(t)
	for _, suffix := range []string{"b", "ux", "r", "s", "l", "c", "w"} {
		tag := luatomictest.Namespace(t)
		q := lab.Tagged(t, c, tag, 2)
		lab.Push(t, q[0], queue.Job{ID: "there", Body: []byte("small")})
		require.NoError(t, c.Set(ctx, "{"+tag+"}{b}:"+suffix, "x", 0).Err())
		before := lab.Dump(ctx, t, c, tag)
		_, err := queue.PushAll(ctx, queue.Batch{Queue: q[0], Jobs: []queue.Job{{Body: make([]byte, 100)}}},
			queue.Batch{Queue: q[1], Jobs: []queue.Job{{Unique: "u"}, {Delay: time.Hour}}})
		require.ErrorIs(t, err, lua.ErrWrongType, suffix)
		require.Equal(t, before, lab.Dump(ctx, t, c, tag), suffix)
	}
}
