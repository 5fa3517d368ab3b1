package queue_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// A user who may call only some of the commands meets the undo, in the second queue
// after the first has been written. Holds that were over stand as they stood.
func TestPushAllUndoesAWriteRefusedHalfWay(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	admin := luatomictest.StartServer(t).Client()
	full := lab.Tagged(t, admin, "t", 2)
	lab.Push(t, full[0], queue.Job{ID: "there"})
	for _, q := range full {
		lab.Push(t, q, queue.Job{ID: "over", Unique: "free", UniqueTTL: time.Millisecond})
	}
	luatomictest.Eventually(t, 5*time.Second, "the holds are over", func() bool {
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

// limited is a client of a user who may call all but some commands.
func limited(t *testing.T, admin *redis.Client, forbidden ...string) *redis.Client {
	t.Helper()
	rules := []any{"ACL", "SETUSER", "app", "reset", "on", "nopass", "~*", "&*", "+@all"}
	for _, command := range forbidden {
		rules = append(rules, "-"+command)
	}
	require.NoError(t, admin.Do(t.Context(), rules...).Err())
	opts := *admin.Options()
	opts.Username, opts.Password = "app", "any"
	c := redis.NewClient(&opts)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// A server over its memory limit takes no part of a batch.
func TestPushAllIsRefusedWholeWithoutMemory(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := luatomictest.StartServer(t).Client()
	q := lab.Tagged(t, c, "t", 2)
	lab.Push(t, q[0], queue.Job{})
	require.NoError(t, c.ConfigSet(ctx, "maxmemory", "1mb").Err())
	before := lab.Dump(ctx, t, c, "t")
	_, err := queue.PushAll(ctx, queue.Batch{Queue: q[0], Jobs: lab.Bodies(1)}, queue.Batch{Queue: q[1], Jobs: lab.Bodies(1)})
	require.ErrorIs(t, err, lua.ErrNotExecuted)
	require.ErrorContains(t, err, "OOM")
	require.Equal(t, before, lab.Dump(ctx, t, c, "t"))
}

// Readers of two queues see a batch in both or in neither.
func TestPushAllIsAllOrNothingToReaders(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	c, tag := luatomictest.Client(t), luatomictest.Namespace(t)
	q := lab.Tagged(t, c, tag, 2)
	watched := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			var a, b *redis.IntCmd
			_, err := c.TxPipelined(ctx, func(p redis.Pipeliner) error {
				a, b = p.LLen(ctx, "{"+tag+"}{a}:r"), p.LLen(ctx, "{"+tag+"}{b}:r")
				return nil
			})
			if err == nil && a.Val() != b.Val() {
				watched <- errors.New(strings.Join([]string{"saw", a.String(), "and", b.String()}, " "))
				return
			}
		}
		watched <- nil
	}()
	for range 100 {
		pushAll(t, queue.Batch{Queue: q[0], Jobs: lab.Bodies(20)}, queue.Batch{Queue: q[1], Jobs: lab.Bodies(20)})
	}
	cancel()
	require.NoError(t, <-watched)
}
