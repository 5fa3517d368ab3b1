package main

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	lockscript "github.com/luatomic/luatomic/gen/lock"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
)

// A script that is under way while the demo deletes its keys has ended before, and none runs later: the withdrawal of
// an interrupted acquire writes a record that stays for ten seconds.
func TestDemoDeletesWhatALateScriptWrites(t *testing.T) {
	t.Parallel()
	client, ctx := luatomictest.Client(t), t.Context()
	key := "{" + luatomictest.Namespace(t) + "}"
	leave := lockscript.LeaveParams{Lock: key, Queue: key + ":q", Owner: "late.1"}
	_, err := lockscript.Leave(ctx, client, leave) // the server has the script from now on
	require.NoError(t, err)
	require.NoError(t, client.Del(ctx, key).Err())
	log, began := newKeyLog(), make(chan struct{})
	client.AddHook(log)
	client.AddHook(&lab.Around{Sha: lab.Digest(&lockscript.LeaveScript), Do: func(run func() error) error {
		close(began)
		<-log.scripts.Closed()
		return run()
	}})
	left := make(chan error, 1)
	go func() {
		_, err := lockscript.Leave(ctx, client, leave)
		left <- err
	}()
	lab.Soon(t, 20*time.Second, "the script", began)
	require.NoError(t, log.end(client))
	require.NoError(t, lab.Soon(t, 20*time.Second, "its end", left))
	require.Zero(t, client.Exists(ctx, key).Val())
	_, err = lockscript.Leave(ctx, client, leave)
	require.ErrorIs(t, err, redis.ErrClosed)
	require.Zero(t, client.Exists(ctx, key).Val())
}
