package actionhero_test

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/actionhero"
	"github.com/luatomic/luatomic/luatomictest"
)

// The commands that docs/actionhero.md lists suffice for the cache and for the cluster.
func TestTheListedCommandsAreEnough(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r := luatomictest.StartServer(t).Client()
	text, err := os.ReadFile("../../docs/actionhero.md")
	require.NoError(t, err)
	_, list, found := strings.Cut(string(text), "- The Redis user needs, ")
	require.True(t, found)
	list, _, _ = strings.Cut(list, "\n- ")
	rule := []any{"ACL", "SETUSER", "limited", "on", ">pw", "~actionhero:*", "-@all"}
	for _, word := range regexp.MustCompile("`[^`]+`").FindAllString(list, -1) {
		for _, command := range strings.Fields(strings.Trim(word, "`")) {
			if !strings.HasPrefix(command, "&") {
				command = "+" + strings.TrimPrefix(command, "+")
			}
			rule = append(rule, command)
		}
	}
	require.NoError(t, r.Do(ctx, rule...).Err())
	opts := *r.Options()
	opts.Username, opts.Password = "limited", "pw"
	limited := redis.NewClient(&opts)
	defer func() { require.NoError(t, limited.Close()) }()

	c := actionhero.NewCache(limited, &actionhero.CacheOptions{Relock: actionhero.Refresh})
	for range 2 {
		ok, err := c.Lock(ctx, "k", time.Minute)
		require.NoError(t, err)
		require.True(t, ok)
	}
	_, err = c.CheckLock(ctx, "k", 0)
	require.NoError(t, err)
	require.NoError(t, c.Save(ctx, "k", "v", time.Minute))
	_, err = c.Load(ctx, "k", &actionhero.LoadOptions{Extend: time.Minute})
	require.NoError(t, err)
	for _, end := range []func(context.Context, string) (bool, error){c.Destroy, c.Unlock} {
		ok, err := end(ctx, "k")
		require.NoError(t, err)
		require.True(t, ok)
	}

	a, b := actionhero.NewNode(limited, nil), actionhero.NewNode(limited, nil)
	runNode(t, a)
	runNode(t, b)
	require.NoError(t, b.Handle("api.echo", echo))
	_, err = a.DoCluster(ctx, "api.echo", []any{"x"}, "")
	require.NoError(t, err)
}
