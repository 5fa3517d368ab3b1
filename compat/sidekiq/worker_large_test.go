package sidekiq_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/compat/sidekiq/internal/script"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
)

// large returns jobs of 100 KiB.
func large(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = payload("default", fmt.Sprint(i), `,"x":"`+strings.Repeat("x", 100<<10)+`"`)
	}
	return out
}

// However many handlers are free, one script takes some MiB and no more; the next ones take the rest, in order.
func TestATakeOfLargeJobsIsBounded(t *testing.T) {
	t.Parallel()
	s := newSite(t, sidekiq.V7)
	jobs := large(200)
	s.enqueue("default", jobs...)
	p := takeParams(s.ns + ":")
	p.Queues, p.Dones, p.First, p.Want = []string{s.key("queue:default"), s.key("queue:low")}, nil, 1, 500
	s.enqueue("low", payload("low", "low", ""))
	var got []string
	for len(got) < len(jobs)+1 {
		r, err := script.WorkerTake(t.Context(), s.client, p)
		require.NoError(t, err)
		require.NotEmpty(t, r.Jobs)
		bytes := 0
		for _, j := range r.Jobs {
			bytes += len(j.Payload)
			got = append(got, string(j.Payload))
		}
		require.Less(t, bytes, 5<<20)
		require.EqualValues(t, len(got), r.Last)

		again, err := script.WorkerTake(t.Context(), s.client, p)
		require.NoError(t, err)
		require.Equal(t, r, again, "a repeat has the same jobs")
		p.First = r.Last + 1
	}
	require.Equal(t, append(jobs, payload("low", "low", "")), got)
	require.Empty(t, s.list("default"))
}

// A worker goes on after such a take without waiting for its queues: none of its waits ends here.
func TestAWorkerTakesAllLargeJobsAtOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t, sidekiq.V7)
	s.enqueue("default", large(100)...)
	var started atomic.Int64
	all := make(chan struct{})
	release := sync.OnceFunc(func() { close(all) })
	defer release()
	client := luatomictest.Client(t)
	client.AddHook(lab.Before(func(cmds ...redis.Cmder) {
		if cmds[0].Name() == "blmove" {
			<-all
		}
	}))
	end := s.work(s.dialect(client, sidekiq.V7), &sidekiq.WorkOptions{Concurrency: 200},
		func(context.Context, *sidekiq.Delivery) error {
			if started.Add(1) == 100 {
				release()
			}
			<-all
			return nil
		})
	s.eventually("all have started", func() bool { return started.Load() == 100 })
	require.Equal(t, sidekiq.Worked{Done: 100}, end())
}

// A dead process may have hundreds of large jobs: no reply and no script of its rescue has all of them.
func TestARescueOfLargeJobsIsBounded(t *testing.T) {
	t.Parallel()
	s := newSite(t, sidekiq.V7)
	jobs := large(100)
	s.dies("p", jobs...)
	client := luatomictest.Client(t)
	largest := &largestReply{}
	client.AddHook(largest)
	end := s.work(s.dialect(client, sidekiq.V7), &sidekiq.WorkOptions{
		Queues: []sidekiq.Queue{{Name: "other"}}, Lease: time.Second}, content)
	s.eventually("all are rescued", func() bool { return len(s.list("default")) == len(jobs) })
	require.Equal(t, sidekiq.Worked{Rescued: 100}, end())
	require.Less(t, largest.bytes.Load(), int64(4<<20))
	require.Positive(t, largest.bytes.Load())
	back := s.list("default")
	slices.Reverse(back)
	require.Equal(t, jobs, back, "the oldest is served first")
}

// largestReply is a hook that notes the bytes of the largest reply to a read of a hash.
type largestReply struct{ bytes atomic.Int64 }

func (l *largestReply) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l *largestReply) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (l *largestReply) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if strings.HasPrefix(cmd.Name(), "h") {
			l.bytes.Store(max(l.bytes.Load(), int64(len(cmd.String()))))
		}
		return err
	}
}
