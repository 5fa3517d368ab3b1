//go:build container

package container_test

import (
	"os"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/luatomictest/container"
)

func TestMain(m *testing.M) { luatomictest.Main(m, container.Start) }

// Start has a server that answers until Stop, or an error with its reason. Where a container is required, it has one.
func TestStartHasAServerOrAReason(t *testing.T) {
	t.Parallel()
	got, err := container.Start(t.Logf)
	if err != nil {
		require.NotEqual(t, "docker", os.Getenv("LUATOMIC_REQUIRE"), "%v", err)
		require.Regexp(t, "no Docker engine answers|cannot be pulled", err)
		require.Zero(t, got)
		return
	}
	require.Regexp(t, "^container of .", got.From)
	options, err := redis.ParseURL(got.URL)
	require.NoError(t, err)
	options.MaxRetries, options.DialerRetries = -1, 1
	client := redis.NewClient(options)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	id := runID(t, client)
	require.NotEmpty(t, id)
	got.Stop()
	require.NotEqual(t, id, runID(t, client), "another container may have the address meanwhile")
}

// runID is the server's own name for this run of it; empty where none answers.
func runID(t *testing.T, client *redis.Client) string {
	info, err := client.InfoMap(t.Context(), "server").Result()
	if err != nil {
		return ""
	}
	return info["Server"]["run_id"]
}

func TestTheSharedServerAnswers(t *testing.T) {
	t.Parallel()
	require.NoError(t, luatomictest.Client(t).Ping(t.Context()).Err())
}
