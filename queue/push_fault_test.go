package queue_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// A user who may call only some of the commands of the push script meets its undo. The guard is the list of writes
// to revert. A hold that had ended is as before.
func TestPushUndoesAWriteRefusedHalfWay(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	admin := luatomictest.StartServer(t).Client()
	full, err := queue.New(admin, "q", nil)
	require.NoError(t, err)
	lab.Push(t, full, lab.Bodies(3)...)
	out := lab.Push(t, full, queue.Job{ID: "over", Unique: "free", UniqueTTL: time.Millisecond})
	luatomictest.Eventually(t, 5*time.Second, "the hold has ended",
		func() bool { return admin.Time(ctx).Val().Sub(out.Now) > 2*time.Millisecond })
	for _, forbidden := range []string{"hset", "zadd", "rpush", "set"} {
		q, err := queue.New(limited(t, admin, forbidden), "q", nil)
		require.NoError(t, err)
		before := lab.Dump(ctx, t, admin, "q")
		for _, jobs := range [][]queue.Job{{{ID: "a"}, {ID: "b", Delay: time.Hour}},
			{{ID: "a", Unique: "free"}, {ID: "b", Delay: time.Hour}}, {{ID: "a"}}} {
			if forbidden == "zadd" && len(jobs) == 1 {
				continue // one job needs no ZADD
			}
			_, err = q.Push(ctx, jobs...)
			require.ErrorIs(t, err, lua.ErrExecutedInPart, forbidden)
			require.Equal(t, before, lab.Dump(ctx, t, admin, "q"), forbidden)
		}
	}
}

// Where the user may not delete, a repeat still learns that the job was not added.
func TestPushOfOneRefusedHalfWayLeavesNoReceipt(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	admin := luatomictest.StartServer(t).Client()
	q, err := queue.New(limited(t, admin, "rpush", "del"), "q", nil)
	require.NoError(t, err)
	_, err = q.PushOnce(ctx, "token", queue.Job{ID: "a"})
	require.ErrorIs(t, err, lua.ErrExecutedInPart)
	full, err := queue.New(admin, "q", nil)
	require.NoError(t, err)
	out, err := full.PushOnce(ctx, "token", queue.Job{ID: "a"})
	require.NoError(t, err)
	require.Equal(t, 1, out.Ready)
	require.Empty(t, out.Duplicates)
	require.Equal(t, "a", lab.TakeOne(t, full).ID)
}

// limited is a client of a user who may call all commands but some.
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

// A full queue refuses a push, and nothing of it is kept. Where the reply was lost, a copy of the request may arrive
// when there is space: the push is not refused then.
func TestAPushWhoseReplyWasLostIsNotRefused(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	require.NoError(t, q.SetLimit(ctx, 1))
	lab.Push(t, q, queue.Job{})
	proxy := luatomictest.NewLossyProxy(t, luatomictest.URL(t))
	far := redis.NewClient(lab.Must(redis.ParseURL(proxy.URL())))
	t.Cleanup(func() { _ = far.Close() })
	behind := lab.Must(queue.New(far, q.Name(), nil))
	for name, push := range map[string]func() error{
		"Push": func() error { _, err := behind.Push(ctx, queue.Job{}); return err },
		"PushAll": func() error {
			_, err := queue.PushAll(ctx, queue.Batch{Queue: behind, Jobs: lab.Bodies(2)})
			return err
		},
	} {
		require.ErrorIs(t, push(), queue.ErrFull, name)
		one, many := lab.Sent(&queuescript.PushScript), lab.Sent(&queuescript.PushManyScript)
		proxy.Drop(1, func(args []string) bool { return one(args) || many(args) })
		err := push()
		require.ErrorIs(t, err, lua.ErrOutcomeUnknown, name)
		require.NotErrorIs(t, err, queue.ErrFull, name)
	}
	require.Equal(t, int64(1), c.LLen(ctx, lab.Key(q, "r")).Val())
}
