package main

import (
	"context"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// childVar is set in the command of the test below.
const childVar = "WITHSERVER_CHILD"

// TestMain is the command, too: it exits with 7 if the server answers, and refuses what other packages would notice.
func TestMain(m *testing.M) {
	if os.Getenv(childVar) == "" {
		os.Exit(m.Run())
	}
	options, err := redis.ParseURL(os.Getenv("LUATOMIC_REDIS_URL"))
	if err != nil {
		os.Exit(1)
	}
	c := redis.NewClient(options)
	err = c.FlushAll(context.Background()).Err()
	if c.Ping(context.Background()).Err() != nil || !redis.HasErrorPrefix(err, "NOPERM") {
		os.Exit(1)
	}
	os.Exit(7)
}

// The command has a server of its own, and its code is that of withserver.
func TestTheCommandHasAServer(t *testing.T) {
	t.Setenv("LUATOMIC_REDIS_URL", "")
	t.Setenv("LUATOMIC_REQUIRE", "local")
	t.Setenv(childVar, "1")
	code, err := run([]string{os.Args[0]})
	require.NoError(t, err)
	require.Equal(t, 7, code)
	code, err = run([]string{"no such command"})
	require.ErrorContains(t, err, "no such command")
	require.Equal(t, 1, code)
}
