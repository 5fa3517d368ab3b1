package lua_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// evalsha matches for a proxy the requests that run one script by digest.
func evalsha(s *lua.Script) func(args []string) bool {
	return luatomictest.Command("EVALSHA", s.SHA)
}

// topology has a client that reaches the server through proxies, and one that does not.
type topology struct {
	client, direct lua.Client
	proxies        []*luatomictest.LossyProxy
}

// drop loses that many replies of each node; the keys of one call are on one of them.
func (n *topology) drop(replies int, match func([]string) bool) {
	for _, p := range n.proxies {
		p.Drop(replies, match)
	}
}

// overSingle reaches the shared server through a proxy.
func overSingle(t testing.TB) *topology {
	proxy := luatomictest.NewLossyProxy(t, luatomictest.URL(t))
	o, err := redis.ParseURL(proxy.URL())
	require.NoError(t, err)
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	return &topology{client: client, direct: luatomictest.Client(t), proxies: []*luatomictest.LossyProxy{proxy}}
}

// overRing reaches the shared server through two proxies, which a ring takes for two shards.
func overRing(t testing.TB) *topology {
	n := &topology{direct: luatomictest.Client(t)}
	addrs := map[string]string{}
	for _, shard := range []string{"a", "b"} {
		proxy := luatomictest.NewLossyProxy(t, luatomictest.URL(t))
		n.proxies, addrs[shard] = append(n.proxies, proxy), proxy.Addr()
	}
	ring := redis.NewRing(&redis.RingOptions{Addrs: addrs})
	t.Cleanup(func() { _ = ring.Close() })
	n.client = ring
	return n
}

func TestLostRepliesClient(t *testing.T) {
	t.Parallel()
	testLostReplies(t, overSingle)
}

func TestLostRepliesRing(t *testing.T) {
	t.Parallel()
	testLostReplies(t, overRing)
}

// testLostReplies loses 0 to 4 replies of one call: go-redis alone would run a script up to four times.
func testLostReplies(t *testing.T, over func(testing.TB) *topology) {
	for name, retry := range retries {
		for lost := range 5 {
			t.Run(fmt.Sprintf("%s %d lost", name, lost), func(t *testing.T) {
				t.Parallel()
				n, key, s := over(t), luatomictest.Namespace(t), coldCount(t, retry)
				preload(t, n.direct, s)
				n.drop(lost, evalsha(s))
				got, err := runInt(within(t, 20*time.Second), n.client, s, key)
				if lost > 0 && retry == lua.RetryNever {
					e := requireOutcome(t, err, lua.ErrOutcomeUnknown)
					require.Equal(t, 1, e.Tries)
					require.Equal(t, 1, counted(t, n.direct, key), "executed once")
					return
				}
				require.NoError(t, err)
				require.EqualValues(t, lost+1, got)
				require.Equal(t, lost+1, counted(t, n.direct, key))
			})
		}
	}
}

func TestLostRepliesInABatchClient(t *testing.T) {
	t.Parallel()
	testLostRepliesInABatch(t, overSingle)
}

func TestLostRepliesInABatchRing(t *testing.T) {
	t.Parallel()
	testLostRepliesInABatch(t, overRing)
}

func testLostRepliesInABatch(t *testing.T, over func(testing.TB) *topology) {
	for name, retry := range retries {
		for lost := range 5 {
			t.Run(fmt.Sprintf("%s %d lost", name, lost), func(t *testing.T) {
				t.Parallel()
				n, name, s := over(t), luatomictest.Namespace(t), coldCount(t, retry)
				preload(t, n.direct, s)
				n.drop(lost, evalsha(s))
				b := lua.NewBatch(n.client)
				futures := make([]*lua.Future[int64], 30)
				for i := range futures {
					futures[i] = lua.Queue(b, newCall(s, fmt.Sprintf("%s:%d", name, i)), decodeInt)
				}
				err := b.Exec(within(t, 20*time.Second))
				unknown := requireBatch(t, n.direct, name, retry, futures)
				if lost == 0 || retry == lua.RetrySafe {
					require.NoError(t, err)
					require.Zero(t, unknown)
				} else {
					require.ErrorIs(t, err, lua.ErrOutcomeUnknown)
					require.NotZero(t, unknown)
				}
			})
		}
	}
}

// requireBatch compares each future with its key on the server, and counts those of unknown outcome.
func requireBatch(t *testing.T, direct redis.Cmdable, name string, retry lua.Retry,
	futures []*lua.Future[int64]) (unknown int) {
	t.Helper()
	for i, f := range futures {
		got, err := f.Get()
		ran := counted(t, direct, fmt.Sprintf("%s:%d", name, i))
		switch {
		case err == nil:
			require.EqualValues(t, ran, got)
		case errors.Is(err, lua.ErrNotExecuted):
			require.Zero(t, ran, "call %d: %v", i, err)
		default:
			requireOutcome(t, err, lua.ErrOutcomeUnknown)
			unknown++
		}
		if retry == lua.RetryNever {
			require.LessOrEqual(t, ran, 1, "call %d ran again", i)
		}
	}
	return unknown
}

// A received reply counts, although go-redis sets the error of a lost connection on all commands of a pipeline.
func TestRepliesBeforeALossAreKept(t *testing.T) {
	t.Parallel()
	n, name := overSingle(t), luatomictest.Namespace(t)
	s := coldCount(t, lua.RetryNever)
	preload(t, n.direct, s)
	const answered, calls = 40, 100
	seen := 0
	n.proxies[0].Drop(1, func(args []string) bool {
		if evalsha(s)(args) {
			seen++
		}
		return seen == answered+1
	})
	b := lua.NewBatch(n.client)
	futures := make([]*lua.Future[int64], calls)
	for i := range futures {
		futures[i] = lua.Queue(b, newCall(s, fmt.Sprintf("%s:%d", name, i)), decodeInt)
	}
	require.ErrorContains(t, b.Exec(within(t, 20*time.Second)), "60 of 100 calls failed: outcome unknown")
	for i, f := range futures {
		got, err := f.Get()
		if i < answered {
			require.NoError(t, err)
			require.EqualValues(t, 1, got, "it did not run again")
		} else {
			requireOutcome(t, err, lua.ErrOutcomeUnknown)
		}
	}
}

// A truncated reply must not count as an empty one.
func TestReplyCutInTheMiddleIsLost(t *testing.T) {
	t.Parallel()
	for name, part := range map[string]string{"text": "$10\r\nabc", "array": "*2\r\n:1\r\n", "length": "*2\r\n$1",
		"integer": ":4", "nothing": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for mode, run := range map[string]func(lua.Client, *lua.Script) (string, error){
				"run": func(c lua.Client, s *lua.Script) (string, error) {
					return lua.Run(within(t, 10*time.Second), c, newCall(s, "k"), decodeText)
				},
				"batch": func(c lua.Client, s *lua.Script) (string, error) {
					b := lua.NewBatch(c)
					f := lua.Queue(b, newCall(s, "k"), decodeText)
					_ = b.Exec(within(t, 10*time.Second))
					return f.Get()
				},
			} {
				for _, retry := range retries {
					fake := startFake(t, func(_ string, nth int) string {
						if nth == 1 {
							return part + cutHere
						}
						return "+whole"
					})
					got, err := run(fake.client(t), newScript("text", "return 'whole'", retry))
					if retry == lua.RetryNever {
						requireOutcome(t, err, lua.ErrOutcomeUnknown)
						require.Equal(t, 1, fake.count("EVALSHA"))
					} else {
						require.NoError(t, err, mode)
						require.Equal(t, "whole", got)
					}
				}
			}
		})
	}
}

func TestBatchOverACutConnection(t *testing.T) {
	t.Parallel()
	for name, retry := range retries {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, name, s := overSingle(t), luatomictest.Namespace(t), coldCount(t, retry)
			preload(t, n.direct, s)
			b := lua.NewBatch(n.client)
			futures := make([]*lua.Future[int64], 2000)
			for i := range futures {
				futures[i] = lua.Queue(b, newCall(s, fmt.Sprintf("%s:%d", name, i)), decodeInt)
			}
			done := make(chan error, 1)
			go func() { done <- b.Exec(within(t, 20*time.Second)) }()
			luatomictest.Eventually(t, 10*time.Second, "the batch is half-way", func() bool {
				return n.proxies[0].Stats().Executed > 100
			})
			n.proxies[0].CutAll()
			err := <-done
			unknown := requireBatch(t, n.direct, name, retry, futures)
			if retry == lua.RetrySafe {
				require.NoError(t, err)
			} else if unknown > 0 {
				require.ErrorIs(t, err, lua.ErrOutcomeUnknown)
			}
		})
	}
}
