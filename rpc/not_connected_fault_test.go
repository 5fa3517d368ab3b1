package rpc_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	rpcscript "github.com/luatomic/luatomic/gen/rpc"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

// A bus whose Run cannot connect says why: the cure is at the server, and not in a call of Run. The class of the error
// is that of the call, whatever became of the heartbeat.
func TestABusThatCannotConnectSaysWhy(t *testing.T) {
	t.Parallel()
	for command, why := range map[string]string{"SUBSCRIBE": "EOF", "EVALSHA": "announce on bus"} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			proxy := luatomictest.NewLossyProxy(t, luatomictest.URL(t))
			proxy.Drop(1<<30, luatomictest.Command(command))
			client := redis.NewClient(lab.Must(redis.ParseURL(proxy.URL())))
			t.Cleanup(func() { _ = client.Close() })
			b, err := rpc.New(client, luatomictest.Namespace(t), &rpc.Options{Grace: -1, Lease: time.Second})
			require.NoError(t, err)
			lab.RunBus(t, b)
			luatomictest.Eventually(t, 20*time.Second, "an attempt has failed", func() bool {
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				_, err = lab.Echo.Call(ctx, b, "", nil)
				require.ErrorIs(t, err, lua.ErrNotExecuted)
				require.NotErrorIs(t, err, lua.ErrOutcomeUnknown)
				return strings.Contains(err.Error(), why)
			})
			require.NotContains(t, err.Error(), "is its Run running?")
		})
	}
}

// An outage is reported when it begins, and not with each attempt to end it, ten a second.
func TestAnOutageIsReportedOnce(t *testing.T) {
	t.Parallel()
	proxy := luatomictest.NewLossyProxy(t, luatomictest.URL(t))
	client := redis.NewClient(lab.Must(redis.ParseURL(proxy.URL())))
	t.Cleanup(func() { _ = client.Close() })
	var reported atomic.Int64
	b := lab.OpenBus(t, client, luatomictest.Namespace(t), &rpc.Options{Grace: -1, Lease: time.Hour,
		OnError: func(error) { reported.Add(1) }})
	require.NoError(t, b.Ready(t.Context()))
	for outage := range int64(6) { // where the loop of the link is in the last attempt differs
		up, before, attempts := b.Resubscribed(), proxy.Stats().Lost, int(3+outage)
		proxy.Drop(attempts, luatomictest.Command("SUBSCRIBE"))
		proxy.CutAll()
		luatomictest.Eventually(t, 20*time.Second, "it is over", func() bool {
			return proxy.Stats().Lost == before+attempts && b.Resubscribed() > up
		})
		require.Equal(t, outage+1, reported.Load())
	}
}

// A server that is gone is one outage: the heartbeats that fail meanwhile are not reported beside it.
func TestHeartbeatsReportNoOutageAgain(t *testing.T) {
	t.Parallel()
	proxy := luatomictest.NewLossyProxy(t, luatomictest.URL(t))
	client := redis.NewClient(lab.Must(redis.ParseURL(proxy.URL())))
	t.Cleanup(func() { _ = client.Close() })
	var failed atomic.Int64
	client.AddHook(&lab.Around{Sha: lab.Digest(&rpcscript.JoinScript), Do: func(run func() error) error {
		err := run()
		if err != nil {
			failed.Add(1)
		}
		return err
	}})
	reported := make(chan error, 1000)
	b := lab.OpenBus(t, client, luatomictest.Namespace(t), &rpc.Options{Grace: -1, Lease: 300 * time.Millisecond,
		OnError: func(err error) { reported <- err }})
	require.NoError(t, b.Ready(t.Context()))
	proxy.DropRequest(1<<30, nil)
	proxy.CutAll()
	ofHeartbeat := func(err error) bool { return strings.Contains(err.Error(), "announce on bus") }
	fail := func(n int64) {
		before := failed.Load()
		luatomictest.Eventually(t, time.Minute, "heartbeats fail", func() bool { return failed.Load() > before+n })
	}
	for ofHeartbeat(lab.Soon(t, 20*time.Second, "the outage is reported", reported)) {
		t.Log("a heartbeat failed before the link noticed")
	}
	fail(1) // what began before the link's report has made its own
	for range len(reported) {
		<-reported
	}
	fail(10)
	for range len(reported) {
		require.False(t, ofHeartbeat(<-reported)) // the link's is repeated on a slow machine
	}
}
