package plainlock_test

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/plainlock"
	"github.com/luatomic/luatomic/luatomictest"
)

// The commands and channels that docs/plainlock.md lists suffice; without the channels waiters poll.
func TestTheListedCommandsAreEnough(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	r := luatomictest.StartServer(t).Client()
	page, err := os.ReadFile("../../docs/plainlock.md")
	require.NoError(t, err)
	_, list, found := strings.Cut(string(page), "- **The Redis user** needs ")
	require.True(t, found)
	list, _, _ = strings.Cut(list, "\n- ")
	rule := []any{"ACL", "SETUSER", "limited", "reset", "on", ">pw", "~*", "-@all"}
	channels := ""
	for _, word := range regexp.MustCompile("`[^`]+`").FindAllString(list, -1) {
		for _, command := range strings.Fields(strings.Trim(word, "`")) {
			if strings.Contains(command, "*") {
				channels = "&" + command
				continue
			}
			rule = append(rule, "+"+strings.TrimPrefix(command, "+"))
		}
	}
	require.NotEmpty(t, channels)
	for _, poll := range []time.Duration{time.Hour, 10 * time.Millisecond} {
		require.NoError(t, r.Do(ctx, append(rule, channels)...).Err())
		opts := *r.Options()
		opts.Username, opts.Password = "limited", "pw"
		limited := redis.NewClient(&opts)
		l := plainlock.New(limited, &plainlock.Options{Fence: true, TTL: time.Hour, Poll: poll})
		lock, err := l.Try(ctx, "x")
		require.NoError(t, err)
		require.NoError(t, lock.Extend(ctx))
		got := make(chan error, 1)
		go func() { got <- l.Do(ctx, "x", func(context.Context) error { return nil }) }()
		if poll == time.Hour { // the user has the channels
			name := "luatomic:released:x"
			luatomictest.Eventually(t, time.Minute, "it waits", func() bool {
				return r.PubSubNumSub(ctx, name).Val()[name] == 1
			})
		}
		require.NoError(t, lock.Release(ctx))
		require.NoError(t, <-got)
		l.Close()
		require.NoError(t, limited.Close())
		channels = "resetchannels"
	}
}
