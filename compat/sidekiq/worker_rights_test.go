package sidekiq_test

import (
	"context"
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
