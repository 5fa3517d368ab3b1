package sidekiq_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// A server whose script cache is flushed all the time gets the scripts again, and each push happens once.
func TestPushAndMoveUnderScriptFlush(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	r := luatomictest.StartServer(t).Client()
	d, err := sidekiq.New(r, nil)
	require.NoError(t, err)
	stop, flushed := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		for {
			select {
			case <-stop:
				flushed <- n
				return
			default:
				if r.ScriptFlush(ctx).Err() == nil {
					n++
				}
			}
		}
	}()
	const n = 100
	for i := range n {
		_, err := d.PushBulk(ctx,
			[]sidekiq.Job{{Class: "W", Args: args(i)}, {Class: "W", Args: args(i), In: time.Microsecond}})
		require.NoError(t, err)
	}
	moved := 0
	for moved < n {
		got, err := d.MoveDue(ctx, sidekiq.Schedule, 0)
		require.NoError(t, err)
		moved += got.Moved
	}
	close(stop)
	require.Positive(t, <-flushed)
	require.EqualValues(t, 2*n, r.LLen(ctx, "queue:default").Val())
}

// asLimited is the dialect for the user limited, whose rights a test sets.
func asLimited(t *testing.T, r *redis.Client) *sidekiq.Dialect {
	opts := *r.Options()
	opts.Username, opts.Password = "limited", "pw"
	client := redis.NewClient(&opts)
	t.Cleanup(func() { _ = client.Close() })
	d, err := sidekiq.New(client, nil)
	require.NoError(t, err)
	return d
}

// A user without ZREM moves nothing: otherwise each poll would push the same jobs again.
func TestAMoverWithoutTheRightToRemoveAddsNothing(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	server := luatomictest.StartServer(t)
	r := server.Client()
	require.NoError(t, r.Do(ctx, "ACL", "SETUSER", "limited", "on", ">pw", "~*", "+@all", "-zrem").Err())
	require.NoError(t, dueMembers(ctx, r, ""))
	d := asLimited(t, r)
	_, err := d.MoveDue(ctx, sidekiq.Retry, 0)
	require.ErrorIs(t, err, lua.ErrNotExecuted)
	require.EqualValues(t, 2, r.LLen(ctx, "queue:a").Val())
	require.Zero(t, r.Exists(ctx, "queue:b").Val())
	require.EqualValues(t, 4, r.ZCard(ctx, "retry").Val())
}

// Members that are no jobs hold up no job either where the user has no right to the key of the quarantine.
func TestAQuarantineWithoutTheRightToItHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	r := luatomictest.StartServer(t).Client()
	require.NoError(t, r.Do(ctx, "ACL", "SETUSER", "limited", "on", ">pw", "~queue*", "~schedule", "+@all").Err())
	due := []redis.Z{{Member: "bad"}, {Score: 1, Member: job("good", "")}}
	require.NoError(t, r.ZAdd(ctx, "schedule", due...).Err())
	d := asLimited(t, r)
	got, err := d.MoveDue(ctx, sidekiq.Schedule, 0)
	require.ErrorIs(t, err, sidekiq.ErrQueueRefused)
	require.ErrorContains(t, err, `"schedule:quarantine"; what is not a job stays in the set: `)
	require.Equal(t, 1, got.Moved)
	require.Equal(t, []string{"bad"}, r.ZRange(ctx, "schedule", 0, -1).Val())
}

// A user without one of the commands pushes nothing: earlier writes of the script are undone.
func TestAPushThatMayNotWriteAllLeavesNothing(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	r := luatomictest.StartServer(t).Client()
	require.NoError(t, r.Do(ctx, "ACL", "SETUSER", "limited", "on", ">pw", "~*", "+@all", "-zadd").Err())
	d := asLimited(t, r)
	_, err := d.Push(ctx, sidekiq.Job{Class: "W"})
	require.NoError(t, err)
	_, err = d.PushBulk(ctx, []sidekiq.Job{{Class: "W"}, {Class: "W", Queue: "b"}, {Class: "W", In: time.Hour}})
	require.ErrorIs(t, err, lua.ErrExecutedInPart)
	require.EqualValues(t, 1, r.LLen(ctx, "queue:default").Val())
	require.Zero(t, r.Exists(ctx, "queue:b", "schedule").Val())
	require.Equal(t, []string{"default"}, r.SMembers(ctx, "queues").Val())
}

// A push that failed leaves no receipt, also where the user may not delete: the next one under its token adds the jobs.
func TestAPushOnceThatMayNotTakeItsReceiptBack(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	r := luatomictest.StartServer(t).Client()
	d := asLimited(t, r)
	jobs := []sidekiq.Job{{Class: "W"}, {Class: "W", Queue: "b"}}
	for _, refused := range []string{"-sadd", "-lpush"} {
		require.NoError(t, r.Do(ctx, "ACL", "SETUSER", "limited", "on", ">pw", "~*", "+@all", "-del", refused).Err())
		_, err := d.PushOnce(ctx, "token", time.Hour, jobs)
		require.ErrorIs(t, err, lua.ErrExecutedInPart)
		require.Empty(t, r.Keys(ctx, "*").Val())
	}
	require.NoError(t, r.Do(ctx, "ACL", "SETUSER", "limited", "+lpush").Err())
	pushed, err := d.PushOnce(ctx, "token", time.Hour, jobs)
	require.NoError(t, err)
	require.Equal(t, 2, pushed.Ready)
	require.EqualValues(t, 1, r.LLen(ctx, "queue:b").Val())
}

// When a key has another type, nothing is written: neither replicas nor the append-only file get a command.
func TestAPushIsCheckedBeforeItWrites(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	r := luatomictest.StartServer(t).Client()
	d, err := sidekiq.New(r, nil)
	require.NoError(t, err)
	require.NoError(t, r.Set(ctx, "queue:z", "x", 0).Err())
	jobs := []sidekiq.Job{{Class: "W"}, {Class: "W", Queue: "z"}}
	changes := func() string {
		for line := range strings.Lines(r.Info(ctx, "persistence").Val()) {
			if strings.HasPrefix(line, "rdb_changes_since_last_save:") {
				return line
			}
		}
		return ""
	}
	refused := func() {
		before := changes()
		require.NotEmpty(t, before)
		_, err = d.PushBulk(ctx, jobs)
		require.ErrorIs(t, err, lua.ErrWrongType)
		_, err = d.PushOnce(ctx, "t", time.Minute, jobs)
		require.ErrorIs(t, err, lua.ErrWrongType)
		require.Equal(t, before, changes())
	}
	refused()
	require.NoError(t, r.Rename(ctx, "queue:z", "schedule").Err())
	jobs[1].In = time.Hour
	refused()
}
