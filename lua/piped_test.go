package lua_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// pipeliners are the kinds of AutoPipeliners on a client.
var pipeliners = map[string]func(redis.UniversalClient) (*redis.AutoPipeliner, error){
	"blocking": func(c redis.UniversalClient) (*redis.AutoPipeliner, error) { return c.AutoPipeline() },
	"async":    func(c redis.UniversalClient) (*redis.AutoPipeliner, error) { return c.AsyncAutoPipeline() },
	"full duplex": func(c redis.UniversalClient) (*redis.AutoPipeliner, error) {
		return c.AutoPipelineWithOptions(&redis.AutoPipelineOptions{FullDuplex: true})
	},
}

// claimAtOnce has many callers claim a key each, and returns the most rows that a command had.
func claimAtOnce(t *testing.T, client lua.Client, s *lua.Script, key func(caller, turn int) string) int64 {
	ctx, most := within(t, 20*time.Second), atomic.Int64{}
	var callers sync.WaitGroup
	for i := range 64 {
		callers.Go(func() {
			for turn := range 10 {
				token := fmt.Sprint(i)
				got, err := lua.Run(ctx, client, claim(s, key(i, turn), token), decodeRow)
				if err != nil || got.holder != token {
					t.Errorf("caller %d: %v, %v", i, got, err)
					return
				}
				for old := most.Load(); got.rows > old && !most.CompareAndSwap(old, got.rows); old = most.Load() {
				}
			}
		})
	}
	callers.Wait()
	return most.Load()
}

func TestCallsOnAnAutoPipelinerShareCommands(t *testing.T) {
	t.Parallel()
	for name, open := range pipeliners {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, ns, s := luatomictest.Client(t), luatomictest.Namespace(t), claimMany(t, 2)
			preload(t, client, s)
			piped, err := open(client)
			require.NoError(t, err)
			t.Cleanup(func() { _ = piped.Close() })
			key := func(caller, turn int) string { return fmt.Sprint(ns, caller, ":", turn) }
			require.Greater(t, claimAtOnce(t, piped, s, key), int64(1))
		})
	}
}

// An AutoPipeliner on a cluster does not say which node has a key, so each call is sent by itself.
func testAutoPipelinerOnACluster(t *testing.T, cluster *luatomictest.Cluster) {
	client := clusterClient(t, cluster, nil)
	ns, s := luatomictest.Namespace(t), claimMany(t, 2)
	preload(t, client, s)
	piped, err := client.AutoPipeline()
	require.NoError(t, err)
	t.Cleanup(func() { _ = piped.Close() })
	oneSlot := func(caller, turn int) string { return fmt.Sprint("{", ns, "}", caller, ":", turn) }
	require.EqualValues(t, 1, claimAtOnce(t, piped, s, oneSlot))
	b := lua.NewBatch(piped)
	for i := range 20 {
		lua.Queue(b, claim(s, fmt.Sprint(ns, i), fmt.Sprint(i)), decodeRow)
	}
	require.NoError(t, b.Exec(within(t, 10*time.Second)), "keys of several nodes")
}

func TestACallOnAnAutoPipelinerReturnsWithItsContext(t *testing.T) {
	t.Parallel()
	for name, open := range pipeliners {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, client := stopped(t)
			piped, err := open(client)
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			start := time.Now()
			_, err = runInt(ctx, piped, coldCount(t, lua.RetryNever), "k")
			require.Less(t, time.Since(start), 30*time.Second, "go-redis itself waits for a minute")
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.True(t, errors.Is(err, lua.ErrOutcomeUnknown) || errors.Is(err, lua.ErrNotExecuted), "%v", err)
		})
	}
}
