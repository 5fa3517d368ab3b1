package luatomictest_test

import (
	"context"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/luatomic/luatomic/luatomictest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestClientIsConnectedAndTakesOptions(t *testing.T) {
	t.Parallel()
	client := luatomictest.Client(t, func(o *redis.Options) { o.ClientName = "chosen"; o.PoolSize = 3 })
	name, err := client.ClientGetName(t.Context()).Result()
	require.NoError(t, err)
	require.Equal(t, "chosen", name)
	require.Equal(t, 3, client.Options().PoolSize)
}

func TestClientIsClosedWithItsTest(t *testing.T) {
	t.Parallel()
	var client *redis.Client
	t.Run("owner", func(t *testing.T) { client = luatomictest.Client(t) })
	require.ErrorIs(t, client.Ping(context.Background()).Err(), redis.ErrClosed)
}

func TestURLIsTheSameServerEachTime(t *testing.T) {
	t.Parallel()
	require.Equal(t, luatomictest.URL(t), luatomictest.URL(t))
	_, err := redis.ParseURL(luatomictest.URL(t))
	require.NoError(t, err)
}

func TestNamespace(t *testing.T) {
	t.Parallel()
	safe := regexp.MustCompile(`^[a-z0-9-]+$`)
	seen := map[string]bool{}
	for _, name := range []string{"plain", "Größe und {tag}", strings.Repeat("long", 40), "---", "日本"} {
		t.Run(name, func(t *testing.T) {
			ns := luatomictest.Namespace(t)
			require.Regexp(t, safe, ns)
			require.Less(t, len(ns), 60)
			require.Contains(t, ns, "namespace", "the name says which test it belongs to")
			require.False(t, seen[ns])
			seen[ns] = true
		})
	}
}

func TestNamespaceDeletesOnlyItsOwnKeys(t *testing.T) {
	t.Parallel()
	client, other := luatomictest.Client(t), luatomictest.Namespace(t)
	ctx := t.Context()
	require.NoError(t, client.Set(ctx, other, "stays", 0).Err())
	var mine string
	t.Run("owner", func(t *testing.T) {
		mine = luatomictest.Namespace(t)
		for _, key := range []string{mine, "{" + mine + "}:r", "prefix:" + mine + ":suffix"} {
			require.NoError(t, client.Set(ctx, key, "goes", 0).Err())
		}
	})
	require.Zero(t, client.Exists(ctx, mine, "{"+mine+"}:r", "prefix:"+mine+":suffix").Val())
	require.EqualValues(t, 1, client.Exists(ctx, other).Val())
}

func TestEventually(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	luatomictest.Eventually(t, 20*time.Second, "the third poll", func() bool { return asked.Add(1) == 3 })
	require.EqualValues(t, 3, asked.Load())

	failed := outcome(t, func(t testing.TB) {
		luatomictest.Eventually(t, 30*time.Millisecond, "a condition that is never true", func() bool { return false })
	})
	require.Contains(t, failed, "a condition that is never true")
}

func TestEmbeddedExpiresByRealTime(t *testing.T) {
	t.Parallel()
	client := luatomictest.Embedded(t)
	ctx := t.Context()
	require.NoError(t, client.Set(ctx, "k", "v", 5*time.Second).Err())
	require.EqualValues(t, 1, client.Exists(ctx, "k").Val())
	luatomictest.Eventually(t, 20*time.Second, "the key expires", func() bool {
		return client.Exists(ctx, "k").Val() == 0
	})
}

// outcome runs f with a new test and returns the test's failure, or "" if it passed.
func outcome(t *testing.T, f func(testing.TB)) string {
	t.Helper()
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(r)
	}()
	<-done
	return r.failure
}
