package lua_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

func TestReadOnlyScriptsUseEvalshaRO(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	client, ctx := server.Client(), within(t, 10*time.Second)
	s := newScript("peek", "return redis.call('EXISTS', KEYS[1])", lua.RetrySafe)
	s.ReadOnly = true
	_, err := runInt(ctx, client, s, "k")
	require.NoError(t, err)
	b := lua.NewBatch(client)
	lua.Queue(b, newCall(s, "k"), decodeInt)
	require.NoError(t, b.Exec(ctx))
	require.EqualValues(t, 3, commandCalls(t, client, "evalsha_ro"))
	for _, other := range []string{"evalsha", "eval", "eval_ro"} {
		require.Zero(t, commandCalls(t, client, other), other)
	}
}

func TestReadOnlyScriptsUseEvalROWhereScriptLoadIsRefused(t *testing.T) {
	t.Parallel()
	_, client := restricted(t, "-script")
	s := newScript("peek", "return redis.call('EXISTS', KEYS[1])", lua.RetrySafe)
	s.ReadOnly = true
	_, err := runInt(within(t, 10*time.Second), client, s, "k")
	require.NoError(t, err)
	require.EqualValues(t, 1, commandCalls(t, client, "eval_ro"))
	require.Zero(t, commandCalls(t, client, "eval"))
}

func TestWriteInAReadOnlyScriptIsRefused(t *testing.T) {
	t.Parallel()
	client, key := luatomictest.Client(t), luatomictest.Namespace(t)
	s := newScript("peek", "redis.call('EXISTS', KEYS[1])\nreturn redis.call('INCR', KEYS[1])", lua.RetrySafe)
	s.ReadOnly = true
	_, err := runInt(within(t, 10*time.Second), client, s, key)
	require.Equal(t, 2, requireOutcome(t, err, lua.ErrNotExecuted).Line)
	require.Zero(t, counted(t, client, key))
}

func TestDeadServerIsNamedAndNothingWasSent(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	client, s := server.Client(), newScript("count", countSource, lua.RetryNever)
	preload(t, client, s)
	server.Kill()
	for budget, message := range map[time.Duration]string{ // shorter and longer than one try
		100 * time.Millisecond: "no connection to " + server.Addr(),
		5 * time.Second:        "connection refused|has not replied to the calls before it",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), budget)
		start := time.Now()
		_, err := runInt(ctx, client, s, "k")
		cancel()
		requireOutcome(t, err, lua.ErrNotExecuted)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, server.Addr())
		require.Regexp(t, message, err)
		require.Less(t, time.Since(start), budget+5*time.Second)
	}
}

func TestRestartedServerIsWaitedFor(t *testing.T) {
	t.Parallel()
	for name, retry := range retries {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := luatomictest.StartServer(t)
			client, s := server.Client(), newScript("count", countSource, retry)
			preload(t, client, s)
			// The pooled connection closed with the server; the client detects that before anything is written.
			server.Kill()
			back := make(chan struct{})
			time.AfterFunc(200*time.Millisecond, func() { defer close(back); server.Restart() })
			got, err := runInt(within(t, 20*time.Second), client, s, "k")
			<-back
			require.NoError(t, err)
			require.EqualValues(t, 1, got)
		})
	}
}

func TestServerKilledDuringACall(t *testing.T) {
	t.Parallel()
	for name, retry := range retries {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := luatomictest.StartServer(t)
			proxy := luatomictest.NewLossyProxy(t, server.URL())
			client := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
			t.Cleanup(func() { _ = client.Close() })
			// Runs for ever until the server has lost its data, and with it this key.
			s := newScript("slow", "while redis.call('EXISTS', KEYS[1]) == 1 do end\nreturn 1", retry)
			preload(t, client, s)
			require.NoError(t, client.Set(t.Context(), "k", 1, 0).Err())
			var sent atomic.Bool
			proxy.Drop(1, func(args []string) bool { // drops nothing, only observes
				if evalsha(s)(args) {
					sent.Store(true)
				}
				return false
			})
			done := make(chan error, 1)
			go func() {
				_, err := runInt(within(t, 20*time.Second), client, s, "k")
				done <- err
			}()
			luatomictest.Eventually(t, 15*time.Second, "the call is in flight", sent.Load)
			server.Restart()
			if err := <-done; retry == lua.RetrySafe {
				require.NoError(t, err)
			} else {
				requireOutcome(t, err, lua.ErrOutcomeUnknown)
			}
		})
	}
}

// An unknown outcome of one attempt stays unknown, whatever refuses the attempts after it.
func TestUnknownStaysUnknown(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	fake := startFake(t, func(_ string, nth int) string {
		switch nth {
		case 1:
			return ""
		case 3:
			cancel()
		}
		return "-LOADING Redis is loading the dataset in memory"
	})
	_, err := runInt(ctx, fake.client(t), newScript("count", countSource, lua.RetrySafe), "k")
	require.Greater(t, requireOutcome(t, err, lua.ErrOutcomeUnknown).Tries, 1)
}

func TestTooManyClientsAreWaitedFor(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	first, second := server.Client(), server.Client()
	ctx := within(t, 20*time.Second)
	require.NoError(t, first.ConfigSet(ctx, "maxclients", "1").Err())
	done := make(chan error, 1)
	go func() {
		_, err := runInt(ctx, second, newScript("count", countSource, lua.RetryNever), "k")
		done <- err
	}()
	luatomictest.Eventually(t, 15*time.Second, "the server has refused a connection", func() bool {
		info, err := first.Info(ctx, "stats").Result()
		return err == nil && !strings.Contains(info, "rejected_connections:0")
	})
	require.NoError(t, first.ConfigSet(ctx, "maxclients", "100").Err())
	require.NoError(t, <-done)
	require.Equal(t, 1, counted(t, first, "k"))
}

// lostNodes is a client that for a while does not find the node of a key.
type lostNodes struct {
	redis.UniversalClient
	left atomic.Int32
	node *redis.Client
}

func (l *lostNodes) MasterForKey(context.Context, string) (*redis.Client, error) {
	if l.left.Add(-1) >= 0 {
		return nil, io.EOF
	}
	return l.node, nil
}

func TestUnknownNodeIsNotExecuted(t *testing.T) {
	t.Parallel()
	direct := luatomictest.Client(t)
	for name, run := range map[string]func(lua.Client, *lua.Script, string) error{
		"run": func(c lua.Client, s *lua.Script, key string) error {
			_, err := runInt(within(t, 10*time.Second), c, s, key)
			return err
		},
		"batch": func(c lua.Client, s *lua.Script, key string) error {
			b := lua.NewBatch(c)
			lua.Queue(b, newCall(s, key), decodeInt)
			return b.Exec(within(t, 10*time.Second))
		},
	} {
		t.Run(name, func(t *testing.T) {
			client, key := &lostNodes{UniversalClient: direct, node: direct}, luatomictest.Namespace(t)
			client.left.Store(2)
			require.NoError(t, run(client, coldCount(t, lua.RetryNever), key))
			require.Equal(t, 1, counted(t, direct, key))
		})
	}
}

// tracer records the commands that a hook sees.
type tracer struct{ names, texts []string }

func (h *tracer) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *tracer) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.names, h.texts = append(h.names, cmd.FullName()), append(h.texts, cmd.String())
		return next(ctx, cmd)
	}
}

func (h *tracer) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func TestTracingShowsScriptAndDigest(t *testing.T) {
	t.Parallel()
	s, key, payload := newScript("trace", "return 1", lua.RetrySafe), luatomictest.Namespace(t), secret
	client := luatomictest.Client(t)
	preload(t, client, s)
	seen := &tracer{}
	client.AddHook(seen)
	c := lua.NewCall(s, 1, 1)
	c.Key("key", key)
	c.EndKeys()
	c.String(&payload)
	_, err := lua.Run(within(t, 10*time.Second), client, c, decodeInt)
	require.NoError(t, err)
	require.Equal(t, []string{"evalsha trace"}, seen.names)
	require.Contains(t, seen.texts[0], "evalsha "+s.SHA+" 1 "+key)
	require.NotContains(t, seen.texts[0], secret)
}

func TestCancelledWhileDialingWasNotSent(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	client := redis.NewClient(&redis.Options{DialerRetries: 1,
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			<-ended // go-redis does not cancel a dial when its caller gives up
			return nil, net.ErrClosed
		}})
	t.Cleanup(func() { close(ended); _ = client.Close() })
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	_, err := runInt(ctx, client, newScript("count", countSource, lua.RetryNever), "k")
	requireOutcome(t, err, lua.ErrNotExecuted)
	require.ErrorIs(t, err, context.Canceled)
}

func TestDialTimeoutWasNotSent(t *testing.T) {
	t.Parallel()
	var dials atomic.Int32
	fake := startFake(t, func(string, int) string { return ":1" })
	client := fake.client(t, func(o *redis.Options) {
		o.DialerRetries = 1
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			var d net.Dialer
			if dials.Add(1) <= 2 {
				d.Deadline = time.Now().Add(-time.Second) // the dial then returns a timeout
			}
			return d.DialContext(ctx, network, addr)
		}
	})
	_, err := runInt(within(t, 10*time.Second), client, newScript("count", countSource, lua.RetryNever), "k")
	require.NoError(t, err)
	require.EqualValues(t, 3, dials.Load())
}

func TestLostGreetingWasNotSent(t *testing.T) {
	t.Parallel()
	proxy := luatomictest.NewLossyProxy(t, luatomictest.URL(t))
	s, key := coldCount(t, lua.RetryNever), luatomictest.Namespace(t)
	direct := luatomictest.Client(t)
	preload(t, direct, s)
	proxy.Drop(2, luatomictest.Command("HELLO"))
	o, err := redis.ParseURL(proxy.URL())
	require.NoError(t, err)
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	_, err = runInt(within(t, 10*time.Second), client, s, key)
	require.NoError(t, err)
	require.Equal(t, 1, counted(t, direct, key))
}

func TestRefusedConnectionWasNotSent(t *testing.T) {
	t.Parallel()
	server, _ := restricted(t)
	s := newScript("count", countSource, lua.RetryNever)
	for name, tc := range map[string]struct {
		opt  func(*redis.Options)
		code string
	}{
		"password": {func(o *redis.Options) { o.Username, o.Password = "app", "wrong" }, "WRONGPASS"},
		"database": {func(o *redis.Options) { o.DB = 99 }, "ERR"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, ctx := server.Client(tc.opt), within(t, 10*time.Second)
			_, err := runInt(ctx, client, s, "k")
			require.Equal(t, tc.code, requireOutcome(t, err, lua.ErrNotExecuted).Code)

			b := lua.NewBatch(client)
			f := lua.Queue(b, newCall(s, "k"), decodeInt)
			require.ErrorIs(t, b.Exec(ctx), lua.ErrNotExecuted)
			_, err = f.Get()
			require.Equal(t, tc.code, requireOutcome(t, err, lua.ErrNotExecuted).Code)
		})
	}
}

func TestClusterClientOnASingleServer(t *testing.T) {
	t.Parallel()
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{luatomictest.StartServer(t).Addr()}})
	t.Cleanup(func() { _ = client.Close() })
	_, err := runInt(within(t, 10*time.Second), client, newScript("count", countSource, lua.RetryNever), "k")
	requireOutcome(t, err, lua.ErrNotExecuted)
	require.ErrorContains(t, err, "cluster support disabled")
}

func TestClosedClientIsNotExecuted(t *testing.T) {
	t.Parallel()
	client := untouched(t)
	require.NoError(t, client.Close())
	_, err := runInt(t.Context(), client, newScript("count", countSource, lua.RetrySafe), "k")
	requireOutcome(t, err, lua.ErrNotExecuted)
	require.True(t, errors.Is(err, redis.ErrClosed))
}
