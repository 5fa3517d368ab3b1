package lua_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// TestCluster shares one cluster, which takes seconds to form.
func TestCluster(t *testing.T) {
	t.Parallel()
	cluster := luatomictest.StartCluster(t)
	overProxies := func(t testing.TB) *topology { return overCluster(t, cluster) }
	for name, test := range map[string]func(*testing.T){
		"LostReplies":           func(t *testing.T) { testLostReplies(t, overProxies) },
		"LostRepliesInABatch":   func(t *testing.T) { testLostRepliesInABatch(t, overProxies) },
		"Cold":                  func(t *testing.T) { testCold(t, clusterClient(t, cluster, nil)) },
		"Slots":                 func(t *testing.T) { testSlots(t, cluster) },
		"ColdTarget":            func(t *testing.T) { testColdTarget(t, cluster) },
		"LossAfterAFailedDial":  func(t *testing.T) { testLossAfterAFailedDial(t, cluster) },
		"LossAfterARedirection": func(t *testing.T) { testLossAfterARedirection(t, cluster) },
		"Preload":               func(t *testing.T) { testPreloadCluster(t, cluster) },
		"Guard":                 func(t *testing.T) { testGuardCluster(t, cluster) },
		"GuardedLostReplies":    func(t *testing.T) { testGuardedLostReplies(t, overProxies) },
		"AutoPipeliner":         func(t *testing.T) { testAutoPipelinerOnACluster(t, cluster) },
		"TryAgain":              func(t *testing.T) { testTryAgain(t, cluster) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t)
		})
	}
}

// overCluster puts a proxy before each node: the client dials the proxy, whichever address the cluster returns.
func overCluster(t testing.TB, cluster *luatomictest.Cluster) *topology {
	n := &topology{direct: clusterClient(t, cluster, nil)}
	proxy := map[string]string{}
	for _, node := range cluster.Nodes() {
		p := luatomictest.NewLossyProxy(t, node.URL())
		n.proxies, proxy[node.Addr()] = append(n.proxies, p), p.Addr()
	}
	n.client = clusterClient(t, cluster, func(o *redis.ClusterOptions) {
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, proxy[addr])
		}
	})
	return n
}

// clusterClient returns a client that is closed at the end of the subtest.
func clusterClient(t testing.TB, cluster *luatomictest.Cluster, opt func(*redis.ClusterOptions)) *redis.ClusterClient {
	o := &redis.ClusterOptions{Addrs: cluster.Addrs()}
	if opt != nil {
		opt(o)
	}
	c := redis.NewClusterClient(o)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// testCold calls a script that no node has yet on keys of all of them, one by one and as a batch.
func testCold(t *testing.T, client lua.Client) {
	name, ctx := luatomictest.Namespace(t), within(t, time.Minute)
	t.Run("run", func(t *testing.T) {
		s := coldCount(t, lua.RetryNever)
		for i := range 30 {
			got, err := runInt(ctx, client, s, fmt.Sprintf("%s:run:%d", name, i))
			require.NoError(t, err)
			require.EqualValues(t, 1, got)
		}
	})
	t.Run("batch", func(t *testing.T) {
		s, other := coldCount(t, lua.RetryNever), newScript("twice",
			"-- "+name+"\nreturn redis.call('INCRBY', KEYS[1], 2)", lua.RetryNever)
		b := lua.NewBatch(client)
		var ones, twos []*lua.Future[int64]
		for i := range 200 {
			ones = append(ones, lua.Queue(b, newCall(s, fmt.Sprintf("%s:one:%d", name, i)), decodeInt))
			twos = append(twos, lua.Queue(b, newCall(other, fmt.Sprintf("%s:two:%d", name, i)), decodeInt))
		}
		require.NoError(t, b.Exec(ctx))
		for i := range ones {
			one, err := ones[i].Get()
			require.NoError(t, err)
			two, err := twos[i].Get()
			require.NoError(t, err)
			require.Equal(t, [2]int64{1, 2}, [2]int64{one, two})
		}
	})
}

func TestColdRing(t *testing.T) {
	t.Parallel()
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{
		"a": luatomictest.StartServer(t).Addr(), "b": luatomictest.StartServer(t).Addr(),
	}})
	t.Cleanup(func() { _ = ring.Close() })
	testCold(t, ring)
}

// testSlots compares the slot of a key with the server's.
func testSlots(t *testing.T, cluster *luatomictest.Cluster) {
	keys := []string{"", "a", "123456789", "{}", "{}x", "{}{x}", "{a}b", "a{b}", "a{b", "a}b", "}a{", "{{a}}", "{a}{b}",
		"x{}y{z}", "{a", "foo{{bar}}zap", "\x00\xff"}
	random := rand.New(rand.NewPCG(1, 2))
	const alphabet = "ab{}:1\x00\xe4"
	for range 1000 {
		key := make([]byte, random.IntN(20))
		for i := range key {
			key[i] = alphabet[random.IntN(len(alphabet))]
		}
		keys = append(keys, string(key))
	}
	node, ctx := clusterClient(t, cluster, nil), within(t, 20*time.Second)
	master, err := node.MasterForKey(ctx, "a")
	require.NoError(t, err)
	cmds, err := master.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, key := range keys {
			p.ClusterKeySlot(ctx, key)
		}
		return nil
	})
	require.NoError(t, err)
	for i, cmd := range cmds {
		require.EqualValues(t, cmd.(*redis.IntCmd).Val(), lua.Slot(keys[i]), "slot of %q", keys[i])
	}
	require.Equal(t, 12739, lua.Slot("123456789"), "the check value of the specification, 0x31C3")
}

// keyIn returns keys of one tag in the range of a node.
func keyIn(t testing.TB, cluster *luatomictest.Cluster, node int) (tag string, slot int) {
	name := luatomictest.Namespace(t)
	for i := 0; ; i++ {
		tag = "{" + name + strconv.Itoa(i) + "}"
		if slot = lua.Slot(tag); slot >= node*16384/3 && slot < (node+1)*16384/3 {
			return tag, slot
		}
	}
}

// migrating starts to move the slot of a new tag from node 0 to node 1 and moves it back at the end.
func migrating(t testing.TB, cluster *luatomictest.Cluster) (tag string, m *luatomictest.Migration) {
	tag, slot := keyIn(t, cluster, 0)
	m, err := cluster.MigrateSlot(within(t, 10*time.Second), slot, 0, 1)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Cancel(context.Background())) })
	return tag, m
}

// While a slot moves, calls on keys that have left the source are redirected to a node that may not have the script
// yet.
func testColdTarget(t *testing.T, cluster *luatomictest.Cluster) {
	tag, _ := migrating(t, cluster)
	client, ctx := clusterClient(t, cluster, nil), within(t, 10*time.Second)
	got, err := runInt(ctx, client, coldCount(t, lua.RetryNever), tag+"run")
	require.NoError(t, err)
	require.EqualValues(t, 1, got)

	s, b := coldCount(t, lua.RetryNever), lua.NewBatch(client)
	futures := make([]*lua.Future[int64], 10)
	for i := range futures {
		futures[i] = lua.Queue(b, newCall(s, fmt.Sprintf("%s:%d", tag, i)), decodeInt)
	}
	require.NoError(t, b.Exec(ctx))
	require.Zero(t, requireBatch(t, client, tag, lua.RetryNever, futures))
}

// A cluster client itself sends a pipeline again after a failed dial. A reply lost then must not count as never sent.
func testLossAfterAFailedDial(t *testing.T, cluster *luatomictest.Cluster) {
	tag, _ := keyIn(t, cluster, 2)
	n := overCluster(t, cluster)
	s := coldCount(t, lua.RetryNever)
	preload(t, n.direct, s)
	var refuse atomic.Bool
	proxied := n.client.(*redis.ClusterClient).Options().Dialer
	client := clusterClient(t, cluster, func(o *redis.ClusterOptions) {
		o.DialerRetries = 1
		o.ConnMaxIdleTime = time.Nanosecond // each pipeline dials
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if addr == cluster.Nodes()[2].Addr() && refuse.CompareAndSwap(true, false) {
				return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
			}
			return proxied(ctx, network, addr)
		}
	})
	require.NoError(t, client.Ping(within(t, 10*time.Second)).Err())
	refuse.Store(true)
	n.drop(1, evalsha(s))
	b := lua.NewBatch(client)
	futures := make([]*lua.Future[int64], 20)
	for i := range futures {
		futures[i] = lua.Queue(b, newCall(s, fmt.Sprintf("%s:%d", tag, i)), decodeInt)
	}
	require.ErrorIs(t, b.Exec(within(t, 10*time.Second)), lua.ErrOutcomeUnknown)
	require.False(t, refuse.Load(), "a dial has failed")
	require.NotZero(t, requireBatch(t, n.direct, tag, lua.RetryNever, futures))
}

// The same after an ASK: the redirection must not count as the outcome of the call that followed it.
func testLossAfterARedirection(t *testing.T, cluster *luatomictest.Cluster) {
	tag, _ := migrating(t, cluster)
	n, s := overCluster(t, cluster), coldCount(t, lua.RetryNever)
	preload(t, n.direct, s)
	n.proxies[1].Drop(1, evalsha(s))
	b := lua.NewBatch(n.client)
	futures := make([]*lua.Future[int64], 20)
	for i := range futures {
		futures[i] = lua.Queue(b, newCall(s, fmt.Sprintf("%s:%d", tag, i)), decodeInt)
	}
	require.ErrorIs(t, b.Exec(within(t, 10*time.Second)), lua.ErrOutcomeUnknown)
	require.NotZero(t, requireBatch(t, n.direct, tag, lua.RetryNever, futures))
}

// Two keys of which one has moved: the server refuses until the other has moved too.
func testTryAgain(t *testing.T, cluster *luatomictest.Cluster) {
	tag, slot := keyIn(t, cluster, 1)
	client, ctx := clusterClient(t, cluster, nil), within(t, 60*time.Second)
	require.NoError(t, client.MSet(ctx, tag+"a", 0, tag+"b", 0).Err())
	m, err := cluster.MigrateSlot(ctx, slot, 1, 2)
	require.NoError(t, err)
	require.NoError(t, m.MoveKeys(ctx, tag+"a"))
	s := newScript("both", "redis.call('INCR', KEYS[1])\nreturn redis.call('INCR', KEYS[2])", lua.RetryNever)

	impatient := clusterClient(t, cluster, nil)
	short, cancel := context.WithCancel(ctx)
	defer cancel()
	impatient.AddHook(afterError(s, cancel))
	_, err = runInt(short, lua.Direct(impatient), s, tag+"a", tag+"b")
	requireOutcome(t, err, lua.ErrNotExecuted)
	require.ErrorContains(t, err, "TRYAGAIN")

	done := make(chan error, 1)
	go func() {
		_, err := runInt(ctx, client, s, tag+"a", tag+"b")
		done <- err
	}()
	require.NoError(t, m.Finish(ctx))
	require.NoError(t, <-done)
	require.Equal(t, [2]int{1, 1}, [2]int{counted(t, client, tag+"a"), counted(t, client, tag+"b")})
}

func testPreloadCluster(t *testing.T, cluster *luatomictest.Cluster) {
	a, b := coldCount(t, lua.RetryNever), newScript("other", "-- "+luatomictest.Namespace(t), lua.RetrySafe)
	preload(t, clusterClient(t, cluster, nil), a, b)
	for _, node := range cluster.Nodes() {
		known, err := node.Client().ScriptExists(within(t, 10*time.Second), a.SHA, b.SHA).Result()
		require.NoError(t, err)
		require.Equal(t, []bool{true, true}, known)
	}
}
