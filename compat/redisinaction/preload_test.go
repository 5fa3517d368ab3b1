package redisinaction_test

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/redisinaction"
	"github.com/luatomic/luatomic/luatomictest"
)

// The commands that docs/redisinaction.md lists suffice, and each script runs with them.
func TestTheListedCommandsAreEnough(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	r := luatomictest.StartServer(t).Client()
	text, err := os.ReadFile("../../docs/redisinaction.md")
	require.NoError(t, err)
	_, list, found := strings.Cut(string(text), "- **The Redis user** needs ")
	require.True(t, found)
	list, _, _ = strings.Cut(list, ".")
	rule := []any{"ACL", "SETUSER", "limited", "on", ">pw", "~*", "-@all"}
	for _, word := range regexp.MustCompile("`[^`]+`").FindAllString(list, -1) {
		for _, command := range strings.Fields(strings.Trim(word, "`")) {
			rule = append(rule, "+"+strings.TrimPrefix(command, "+"))
		}
	}
	require.NoError(t, r.Do(ctx, rule...).Err())
	opts := *r.Options()
	opts.Username, opts.Password = "limited", "pw"
	limited := redis.NewClient(&opts)
	defer func() { require.NoError(t, limited.Close()) }()

	c := redisinaction.New(limited, nil)
	_, err = c.ExecuteAll(ctx, "q", redisinaction.Task{Name: "late", Delay: time.Microsecond},
		redisinaction.Task{Name: "now"})
	require.NoError(t, err)
	require.NoError(t, r.ZAdd(ctx, "delayed:", redis.Z{Score: 1, Member: "malformed"}).Err())
	luatomictest.Eventually(t, 20*time.Second, "the delayed item is due", func() bool {
		_, err := c.PollQueue(ctx)
		require.NoError(t, err)
		return r.LLen(ctx, "queue:q").Val() == 2
	})
	w := newWorker(t, c, "w", nil, "q")
	waiting, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	_, err = newWorker(t, c, "w2", nil, "empty").Take(waiting)
	cancel()
	require.ErrorIs(t, err, context.DeadlineExceeded)
	for range 2 {
		item, err := w.Take(ctx)
		require.NoError(t, err)
		require.NoError(t, w.Done(ctx, item))
	}
	require.NoError(t, r.RPush(ctx, "queue:q", "malformed").Err())
	_, err = w.Take(ctx)
	require.ErrorIs(t, err, redisinaction.ErrMalformed)
	require.Equal(t, int64(2), r.LLen(ctx, "malformed:").Val())
	id, err := c.AcquireLock(ctx, "l", nil)
	require.NoError(t, err)
	require.NoError(t, c.ExtendLock(ctx, "l", id, time.Minute))
	_, err = c.AcquireLock(ctx, "l", &redisinaction.LockOptions{Once: true, Heal: time.Minute})
	require.ErrorIs(t, err, redisinaction.ErrHeld)
	require.NoError(t, c.ReleaseLock(ctx, "l", id))
	for _, refused := range r.ACLLog(ctx, 100).Val() {
		require.NotEqual(t, "blmove", refused.Object, "a worker that waits sends it twenty times a second")
	}
	stats := r.Info(ctx, "commandstats").Val()
	require.NotContains(t, stats, "cmdstat_eval:", "a command that is not listed")
}
