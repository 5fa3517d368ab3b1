package lua_test

import (
	"context"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/send"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// readAfter returns a script that writes a mark and returns what the command before it has stored. No server has it.
func readAfter(t testing.TB) *lua.Script {
	source := "-- " + luatomictest.Namespace(t) +
		"\nredis.call('INCR', KEYS[2])\nreturn redis.call('GET', KEYS[1]) or 'none'"
	return newScript("read", source, lua.RetrySafe)
}

// runAfter runs the script behind a SET of the key.
func runAfter(ctx context.Context, c lua.Client, s *lua.Script, key, value string) (got string,
	set *send.Ahead, _ error) {
	set = &send.Ahead{UniversalClient: c, Size: len(value), New: func() redis.Cmder {
		return redis.NewStatusCmd(ctx, "set", key, value)
	}}
	got, err := lua.Run(ctx, set, newCall(s, key, key+":mark"), decodeText)
	return got, set, err
}

// A command ahead of a script is stored before the script runs, in its round trip: for a call that is sent by itself,
// too, for many calls at once, and for one whose script is not loaded.
func TestACommandAheadOfAScriptSharesItsRoundTrip(t *testing.T) {
	t.Parallel()
	for name, direct := range map[string]bool{"shared": false, "direct": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, s, trips := luatomictest.Client(t), readAfter(t), new(lab.RoundTrips)
			if direct {
				lua.Direct(c)
			}
			key := "{" + luatomictest.Namespace(t) + "}"
			got, _, err := runAfter(t.Context(), c, s, key, "cold")
			require.NoError(t, err)
			require.Equal(t, "cold", got)
			c.AddHook(trips)
			got, set, err := runAfter(t.Context(), c, s, key, "warm")
			require.NoError(t, err)
			require.NoError(t, set.Err())
			require.Equal(t, "warm", got)
			require.EqualValues(t, 1, trips.Load())
			var callers sync.WaitGroup
			for i := range 50 {
				callers.Go(func() {
					value := strconv.Itoa(i)
					got, _, err := runAfter(t.Context(), c, s, key+value, value)
					require.NoError(t, err)
					require.Equal(t, value, got)
				})
			}
			callers.Wait()
		})
	}
}

// The command is sent again with the script behind it, and has an error of its own.
func TestACommandAheadOfAScriptIsRepeatedWithIt(t *testing.T) {
	t.Parallel()
	n, s := overSingle(t), readAfter(t)
	preload(t, n.direct, s)
	key := "{" + luatomictest.Namespace(t) + "}"
	n.drop(1, evalsha(s))
	got, set, err := runAfter(t.Context(), n.client, s, key, "v")
	require.NoError(t, err)
	require.NoError(t, set.Err())
	require.Equal(t, "v", got)
	require.Equal(t, 2, n.proxies[0].Executed(luatomictest.Command("SET", key)))

	require.NoError(t, n.direct.Del(t.Context(), key).Err())
	refused := &send.Ahead{UniversalClient: n.client, New: func() redis.Cmder {
		return redis.NewStatusCmd(t.Context(), "set", key, "v", "px", 0)
	}}
	got, err = lua.Run(t.Context(), refused, newCall(s, key, key+":mark"), decodeText)
	require.NoError(t, err)
	require.Equal(t, "none", got)
	require.ErrorContains(t, refused.Err(), "invalid expire time")
}

// A call that leaves a replica takes the command with it.
func TestACommandAheadOfAScriptLeavesAReplica(t *testing.T) {
	t.Parallel()
	for name, callers := range map[string]int{"one call": 1, "calls that share round trips": 20} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			master, replica, s := luatomictest.StartServer(t), luatomictest.StartServer(t), readAfter(t)
			preload(t, master.Client(), s)
			preload(t, replica.Client(), s)
			host, port, err := net.SplitHostPort(master.Addr())
			require.NoError(t, err)
			require.NoError(t, replica.Client().ReplicaOf(t.Context(), host, port).Err())
			var dials atomic.Int64
			c := replica.Client(func(o *redis.Options) {
				o.PoolSize = 1
				o.Dialer = func(_ context.Context, network, _ string) (net.Conn, error) {
					if dials.Add(1) <= 3 {
						return net.Dial(network, replica.Addr())
					}
					return net.Dial(network, master.Addr())
				}
			})
			var calls sync.WaitGroup
			for i := range callers {
				calls.Go(func() {
					key := "{" + strconv.Itoa(i) + "}"
					got, set, err := runAfter(within(t, 30*time.Second), c, s, key, "v")
					require.NoError(t, err)
					require.NoError(t, set.Err())
					require.Equal(t, "v", got)
				})
			}
			calls.Wait()
			require.Greater(t, dials.Load(), int64(3))
		})
	}
}

// Calls whose commands are large go out one by one. Small ones do not wait for them.
func TestALargeCommandAheadOfAScriptSharesNoRoundTrip(t *testing.T) {
	t.Parallel()
	const callers = 20 // more than the round trips of calls that share
	c, s := luatomictest.Client(t), readAfter(t)
	preload(t, c, s)
	var trips atomic.Int64
	all := make(chan struct{})
	c.AddHook(lab.Before(func(cmds ...redis.Cmder) {
		if trips.Add(1) == callers {
			close(all)
		}
		<-all
	}))
	var calls sync.WaitGroup
	value, name := strings.Repeat("x", 70_000), luatomictest.Namespace(t)
	for i := range callers {
		calls.Go(func() {
			_, _, err := runAfter(t.Context(), c, s, "{"+name+strconv.Itoa(i)+"}", value)
			require.NoError(t, err)
		})
	}
	lab.Soon(t, 20*time.Second, "a round trip for each call", all)
	calls.Wait()
}

// A server that refuses the connection runs neither the command nor the script.
func TestACommandAheadOfAScriptWithoutAConnection(t *testing.T) {
	t.Parallel()
	opts := *luatomictest.Client(t).Options()
	opts.Username, opts.Password = "nobody", "wrong"
	c := redis.NewClient(&opts)
	t.Cleanup(func() { _ = c.Close() })
	_, _, err := runAfter(within(t, 10*time.Second), c, readAfter(t), "{"+luatomictest.Namespace(t)+"}", "v")
	requireOutcome(t, err, lua.ErrNotExecuted)
}
