package container_test

import (
	"os"
	"os/exec"
	"testing"
	"time"

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
	options.MaxRetries = -1
	client := redis.NewClient(options)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	require.NoError(t, client.Ping(t.Context()).Err())
	got.Stop()
	require.Error(t, client.Ping(t.Context()).Err())
}

// gone is the address of an engine that does not exist.
const gone = "DOCKER_HOST=tcp://127.0.0.1:1"

// rerun runs a test of this binary in a process of its own, which chooses its server anew.
func rerun(t *testing.T, env ...string) (output string, ok bool) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.v", "-test.run", "^TestTheSharedServerAnswers$")
	cmd.Env = append(os.Environ(), append(env, "LUATOMIC_REDIS_URL=")...)
	out, err := cmd.CombinedOutput()
	return string(out), err == nil
}

func TestTheSharedServerAnswers(t *testing.T) {
	t.Parallel()
	require.NoError(t, luatomictest.Client(t).Ping(t.Context()).Err())
}

func TestWithoutAnEngine(t *testing.T) {
	t.Parallel()
	began := time.Now()
	output, ok := rerun(t, gone, "LUATOMIC_REQUIRE=docker")
	require.False(t, ok, "a container that is required must not be replaced: %s", output)
	require.Contains(t, output, "LUATOMIC_REQUIRE is docker, but no container: no Docker engine answers")
	require.Less(t, time.Since(began), time.Minute)

	output, ok = rerun(t, gone, "LUATOMIC_REQUIRE=")
	require.True(t, ok, output)
	require.Contains(t, output, "no container, a local server is tried")
	require.Regexp(t, `/(redis|valkey)-server`, output)
}
