package sidekiq_test

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/luatomictest"
)

// The commands that docs/sidekiq.md lists suffice for the whole client side.
func TestTheListedCommandsAreEnough(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	r := luatomictest.StartServer(t).Client()
	text, err := os.ReadFile("../../docs/sidekiq.md")
	require.NoError(t, err)
	_, list, found := strings.Cut(string(text), "- **The Redis user** needs ")
	require.True(t, found)
	list, _, _ = strings.Cut(list, ".")
	rule := []any{"ACL", "SETUSER", "limited", "on", ">pw", "~*", "-@all"}
	commands := strings.Join(regexp.MustCompile("`[^`]+`").FindAllString(list, -1), " ")
	for _, word := range regexp.MustCompile("[a-z|_+]+").FindAllString(commands, -1) {
		rule = append(rule, "+"+strings.TrimPrefix(word, "+"))
	}
	require.Greater(t, len(rule), 25)
	require.NoError(t, r.Do(ctx, rule...).Err())
	d := asLimited(t, r)
	_, err = d.PushBulk(ctx, []sidekiq.Job{
		{Class: "W", In: time.Hour, JID: "x"}, {Class: "W", In: time.Microsecond}, {Class: "W"}})
	require.NoError(t, err)
	_, err = d.PushOnce(ctx, "t", time.Minute, []sidekiq.Job{{Class: "W", In: time.Hour, JID: "y"}})
	require.NoError(t, err)
	require.NoError(t, r.ZAdd(ctx, "schedule", redis.Z{Score: 1, Member: "bad"}).Err())
	_, err = d.MoveDue(ctx, sidekiq.Schedule, 1) // where more are due than it reads, it counts them
	require.NoError(t, err)
	luatomictest.Eventually(t, 20*time.Second, "the job is due", func() bool {
		m, err := d.MoveDue(ctx, sidekiq.Schedule, 0)
		require.NoError(t, err)
		return m.Moved == 1
	})
	score, ok, err := d.Reschedule(ctx, sidekiq.Ref{Set: sidekiq.Schedule, JID: "x"}, time.Now().Add(time.Hour))
	require.NoError(t, err)
	require.True(t, ok)
	ok, err = d.Delete(ctx, sidekiq.Ref{Set: sidekiq.Schedule, JID: "x", Score: score})
	require.NoError(t, err)
	require.True(t, ok)
	_, err = d.Stats(ctx)
	require.NoError(t, err)
	ok, err = d.Requeue(ctx, sidekiq.Ref{Set: sidekiq.Schedule, JID: "y"})
	require.NoError(t, err)
	require.True(t, ok)
	_, err = d.SetEntries(ctx, sidekiq.Retry, 0, 1)
	require.NoError(t, err)
	ok, err = d.Drop(ctx, "default", "y")
	require.NoError(t, err)
	require.True(t, ok)
}
