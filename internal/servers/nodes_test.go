package servers_test

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/servers"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

func TestMain(m *testing.M) { luatomictest.Main(m) }

func TestMastersOfASingleServerAndARing(t *testing.T) {
	c := luatomictest.Client(t)
	found, err := servers.Masters(t.Context(), c)
	require.NoError(t, err)
	require.Equal(t, []servers.Node{c}, found)

	one, two := luatomictest.StartServer(t), luatomictest.StartServer(t)
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": one.Addr(), "two": two.Addr()}})
	defer ring.Close()
	found, err = servers.Masters(t.Context(), ring)
	require.NoError(t, err)
	var addrs []string
	for _, n := range found {
		addrs = append(addrs, n.Options().Addr)
	}
	require.ElementsMatch(t, []string{one.Addr(), two.Addr()}, addrs)

	found, err = servers.Masters(t.Context(), lua.Guard(c, nil))
	require.NoError(t, err)
	require.Equal(t, []servers.Node{c}, found, "the guard is left out")

	none := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	defer none.Close()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = servers.Masters(over, struct{ *redis.ClusterClient }{none})
	require.Error(t, err)
	require.NotContains(t, err.Error(), "no servers to scan", "it is asked")

	_, err = servers.Masters(t.Context(), struct{ redis.UniversalClient }{c})
	require.ErrorContains(t, err, "use a Client, ClusterClient or Ring")
	_, err = servers.Masters(t.Context(), (*redis.Client)(nil))
	require.ErrorContains(t, err, "the client is nil")
}

// Glob matches the text itself and nothing else, by the server's own matcher.
func TestGlobMatchesOnlyTheText(t *testing.T) {
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	for _, odd := range []string{"*", "?", "[ab]", `\`, "^", "a]b"} {
		plain, other := name+odd+"1", name+"ab1"
		require.NoError(t, c.MSet(t.Context(), plain, "x", other, "x", name+"a1", "x").Err())
		found, _, err := c.Scan(t.Context(), 0, servers.Glob(plain), 1_000_000).Result()
		require.NoError(t, err)
		require.Equal(t, []string{plain}, found, odd)
	}
}

// A struct of the caller that has a client in it has the servers of that client.
func TestAClientInAStructHasItsServers(t *testing.T) {
	c := luatomictest.Client(t)
	in := struct{ *redis.Client }{c}
	node, name, err := servers.Of(t.Context(), in, "k")
	require.NoError(t, err)
	require.Equal(t, redis.UniversalClient(in), node)
	require.Empty(t, name)
	found, err := servers.Masters(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, []servers.Node{in}, found)

	one := luatomictest.StartServer(t)
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": one.Addr()}})
	defer ring.Close()
	_, name, err = servers.Of(t.Context(), struct{ *redis.Ring }{ring}, "k")
	require.NoError(t, err)
	require.Equal(t, one.Addr(), name)
	found, err = servers.Masters(t.Context(), struct{ *redis.Ring }{ring})
	require.NoError(t, err)
	require.Len(t, found, 1)
}

// A server that hangs hides no bus of another one.
func TestBusesOfServersThatAnswer(t *testing.T) {
	const buses = 20 // each server has some
	key := func(i int) string { return fmt.Sprintf("a:rpc:{%d}:nodes", i) }
	lab.EachHangs(t, func(ring *redis.Ring) {
		for i := range buses {
			require.NoError(t, ring.ZAdd(t.Context(), key(i), redis.Z{Member: "n"}).Err())
		}
	}, func(ring *redis.Ring, live string) {
		var want []string
		for i := range buses {
			if lab.Must(ring.GetShardClientForKey(key(i))).Options().Addr == live {
				want = append(want, strconv.Itoa(i))
			}
		}
		found, err := servers.Buses(t.Context(), ring, "a:")
		require.Error(t, err)
		require.ElementsMatch(t, want, found)
	})
}

// A ring is there while one of its servers is, whichever a PING would go to.
func TestARingAnswersWhileOneServerDoes(t *testing.T) {
	lab.EachHangs(t, func(*redis.Ring) {}, func(ring *redis.Ring, _ string) {
		for range 5 {
			require.NoError(t, servers.Answers(t.Context(), ring))
		}
	})
}

// One answer that does not come ends the questions to its server, and to no other; a reply ends none.
func TestEachAsksAServerThatIsAwayNoMore(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": "127.0.0.1:1", "two": "127.0.0.1:2"},
		HeartbeatFrequency: time.Hour})
	defer ring.Close()
	names := make([]string, 100) // each server has more than are asked at once
	for i := range names {
		names[i] = strconv.Itoa(i)
	}
	away := func(i int) bool {
		return lab.Must(ring.GetShardClientForKey("{"+names[i]+"}")).Options().Addr == "127.0.0.1:1"
	}
	var asked atomic.Int32
	errs := servers.EachBus(t.Context(), ring, names, func(ctx context.Context, i int) error {
		switch {
		case !away(i):
			return redis.ErrClosed
		case asked.Add(1) == 1:
			return io.EOF
		}
		<-ctx.Done()
		return ctx.Err()
	})
	for i, err := range errs {
		want := redis.ErrClosed
		if away(i) {
			want = io.EOF
		}
		require.ErrorIs(t, err, want)
	}
	require.LessOrEqual(t, int(asked.Load()), 16)
}
