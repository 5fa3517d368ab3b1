package sidekiq_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/luatomictest"
)

// A worker whose user may not remove a job from where it was neither takes one nor puts one back: the job would be in
// both places, and performed twice.
func TestAWorkerWithoutTheRightToRemoveMovesNothing(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	s := &site{t: t, client: server.Client()}
	limited := server.Client(func(o *redis.Options) { o.Username, o.Password = "limited", "pw" })
	jobs := []string{payload("default", "b", ""), payload("default", "a", "")}
	for command, refused := range map[string]int32{"ltrim": 1, "hdel": 2} {
		require.NoError(t, s.client.FlushAll(t.Context()).Err())
		require.NoError(t, s.client.Do(t.Context(), "ACL", "SETUSER", "limited", "on", ">pw", "allkeys", "allchannels",
			"+@all", "-"+command).Err())
		s.enqueue("default", jobs[1], jobs[0])
		if command == "hdel" {
			s.dies("dead", payload("default", "c", ""))
		}
		var faults, performed atomic.Int32
		end := s.work(s.dialect(limited, sidekiq.V7), &sidekiq.WorkOptions{
			Lease: time.Minute, OnError: func(error, *sidekiq.Delivery) { faults.Add(1) },
		}, func(context.Context, *sidekiq.Delivery) error {
			performed.Add(1)
			return nil
		})
		s.eventually(command+": the calls are refused", func() bool { return faults.Load() > refused })
		end()
		require.Zero(t, performed.Load(), command)
		require.Equal(t, jobs, s.list("default"), command)
	}
}

// A user who may not trim the dead set buries no job where that is due: the script would end with an error after the
// job was buried.
func TestABurialWithoutTheRightToTrimMovesNothing(t *testing.T) {
	t.Parallel()
	server, ctx, buried := luatomictest.StartServer(t), t.Context(), 0
	c := server.Client()
	require.NoError(t, c.Do(ctx, "ACL", "SETUSER", "limited", "on", ">pw", "allkeys", "allchannels",
		"+@all", "-zremrangebyrank").Err())
	limited := server.Client(func(o *redis.Options) { o.Username, o.Password = "limited", "pw" })
	for _, call := range workerCalls() {
		if !strings.HasSuffix(call.keys, " dead") {
			continue
		}
		buried++
		require.NoError(t, c.FlushAll(ctx).Err())
		require.NoError(t, handed(ctx, c, "p:"))
		before := workState(ctx, c, "p:")
		_, err := call.run(ctx, limited, "p:")
		require.Error(t, err, call.script.Name)
		require.Equal(t, before, workState(ctx, c, "p:"), call.script.Name)
	}
	require.Equal(t, 3, buried)
}
