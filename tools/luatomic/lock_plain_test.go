package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/plainlock"
	"github.com/luatomic/luatomic/luatomictest"
)

func TestLockPlain(t *testing.T) {
	t.Parallel()
	e := shared(t)
	r, ctx := luatomictest.Client(t), t.Context()
	key := e.prefix + "x"
	inPlain := "--dialect=plain"
	c := e.run("lock", "x", inPlain, "--", "sh", "-c",
		`echo "$LUATOMIC_KEY $LUATOMIC_TOKEN [$LUATOMIC_FENCE]"; exit 7`).exits(7)
	require.Regexp(t, "^"+key+` \S+ \[\]`+"\n$", c.stdout.String())
	c = e.run("lock", "x", inPlain, "--fence", "--", "sh", "-c", `echo "$LUATOMIC_FENCE"`).exits(0)
	require.Regexp(t, `^\d{16}`+"\n$", c.stdout.String())
	require.Zero(t, r.Exists(ctx, key).Val())

	other := plainlock.New(r, &plainlock.Options{Prefix: e.prefix, TTL: time.Minute})
	t.Cleanup(func() { _ = other.Close() })
	lock, err := other.Try(ctx, "x")
	require.NoError(t, err)
	for _, wait := range []string{"0s", "3s"} {
		c = e.run("lock", "x", inPlain, "--wait", wait, "--", "echo", "ran").exits(exitTryLater)
		require.Empty(t, c.stdout.String())
		require.Contains(t, c.stderr.String(), `lock "x" is held, for at most`)
	}
	waiting := e.start("lock", "x", inPlain, "--wait", "1m", "--ttl", "6s", "--", "sh", "-c", "echo ran; exec sleep 60")
	require.NoError(t, lock.Release(ctx))
	luatomictest.Eventually(t, within, "it runs", func() bool { return waiting.stdout.String() == "ran\n" })
	token := r.Get(ctx, key).Val()
	for end := time.Now().Add(7500 * time.Millisecond); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		require.Equal(t, token, r.Get(ctx, key).Val(), "it is kept beyond its time")
	}
	require.NoError(t, r.Set(ctx, key, "another", 0).Err())
	waiting.exits(exitFailed)
	require.Contains(t, waiting.stderr.String(), "the command was killed")
	require.Equal(t, "another", r.Get(ctx, key).Val())
}
