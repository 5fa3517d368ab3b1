package lua_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// replaced returns a client of a cluster whose one master is replaced by another server when it ends.
func replaced(t *testing.T, end func(*luatomictest.Server)) (client *redis.ClusterClient, fail func()) {
	t.Helper()
	first, second := luatomictest.StartServer(t), luatomictest.StartServer(t)
	masters := make(chan string, 1)
	masters <- first.Addr()
	client = redis.NewClusterClient(&redis.ClusterOptions{
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			addr := <-masters
			masters <- addr
			return []redis.ClusterSlot{{End: 16383, Nodes: []redis.ClusterNode{{Addr: addr}}}}, nil
		},
		ReadTimeout: time.Second, DialerRetries: 1, MaxRedirects: -1,
	})
	t.Cleanup(func() { _ = client.Close() })
	return client, func() {
		end(first)
		<-masters
		masters <- second.Addr()
	}
}

// A master that dies sends no MOVED, and go-redis by itself asks for the new one once a minute only.
func TestCallsFollowAMasterThatIsReplaced(t *testing.T) {
	t.Parallel()
	kill := func(s *luatomictest.Server) { s.Kill() }
	for name, c := range map[string]struct {
		end  func(*luatomictest.Server)
		call func(context.Context, lua.Client, *lua.Script) error
	}{
		"one that shares round trips":  {kill, runCount},
		"one that is sent by itself":   {kill, runCountDirect},
		"a batch":                      {kill, runCountInBatch},
		"one without an answer so far": {(*luatomictest.Server).Pause, runCount},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, fail := replaced(t, c.end)
			s := newScript("count", countSource, lua.RetrySafe)
			require.NoError(t, c.call(within(t, 20*time.Second), client, s))
			fail()
			require.NoError(t, c.call(within(t, 20*time.Second), client, s))
		})
	}
}

// A call that may not be repeated leaves the next one a client that knows the new master, and so does a caller who
// leaves before there is an answer.
func TestACallThatFailsSendsTheNextToTheNewMaster(t *testing.T) {
	t.Parallel()
	client, fail := replaced(t, (*luatomictest.Server).Pause)
	s := newScript("count", countSource, lua.RetryNever)
	require.NoError(t, runCount(within(t, 20*time.Second), client, s))
	fail()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	requireOutcome(t, runCount(ctx, client, s), lua.ErrOutcomeUnknown)
	luatomictest.Eventually(t, time.Minute, "a call reaches the new master", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		return runCount(ctx, client, s) == nil
	})
}

// A replica may be behind, and this one has nothing. It has the scripts, as after a Preload.
func TestScriptsThatReadRunAtTheMasterOfACluster(t *testing.T) {
	t.Parallel()
	ctx, master, replica := within(t, 20*time.Second), luatomictest.StartServer(t), luatomictest.StartServer(t)
	client := redis.NewClusterClient(&redis.ClusterOptions{
		ReadOnly: true,
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			nodes := []redis.ClusterNode{{Addr: master.Addr()}, {Addr: replica.Addr()}}
			return []redis.ClusterSlot{{End: 16383, Nodes: nodes}}, nil
		},
	})
	t.Cleanup(func() { _ = client.Close() })
	s := newScript("read", "return redis.call('STRLEN', KEYS[1])", lua.RetrySafe)
	s.ReadOnly = true
	require.NoError(t, lua.Preload(ctx, client, s))
	require.NoError(t, client.Set(ctx, "k", "x", 0).Err())
	require.ErrorIs(t, client.Get(ctx, "k").Err(), redis.Nil, "a plain command reads at the replica")

	got, err := runInt(ctx, client, s, "k")
	require.NoError(t, err)
	require.EqualValues(t, 1, got)
	b := lua.NewBatch(client)
	one := lua.Queue(b, newCall(s, "k"), decodeInt)
	require.NoError(t, b.Exec(ctx))
	got, err = one.Get()
	require.NoError(t, err)
	require.EqualValues(t, 1, got)
}

func runCount(ctx context.Context, client lua.Client, s *lua.Script) error {
	_, err := runInt(ctx, client, s, "k")
	return err
}

func runCountDirect(ctx context.Context, client lua.Client, s *lua.Script) error {
	return runCount(ctx, lua.Direct(client), s)
}

func runCountInBatch(ctx context.Context, client lua.Client, s *lua.Script) error {
	b := lua.NewBatch(client)
	lua.Queue(b, newCall(s, "k"), decodeInt)
	return b.Exec(ctx)
}
