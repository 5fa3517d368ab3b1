package lua_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// stopped is a server that accepts and never answers, and a client that has a connection and waits for a minute.
func stopped(t *testing.T) (*luatomictest.Server, *redis.Client) {
	server := luatomictest.StartServer(t)
	client := server.Client(func(o *redis.Options) { o.ReadTimeout = time.Minute })
	require.NoError(t, client.Ping(t.Context()).Err())
	server.Pause()
	t.Cleanup(server.Resume)
	return server, client
}

func TestACallReturnsWithItsContextWhileTheServerHangs(t *testing.T) {
	t.Parallel()
	_, client := stopped(t)
	s := claimMany(t, 1)
	var callers sync.WaitGroup
	for i := range 20 {
		callers.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			start := time.Now()
			_, err := lua.Run(ctx, client, claim(s, fmt.Sprint("k", i), "x"), decodeText)
			require.Less(t, time.Since(start), 30*time.Second, "go-redis itself waits for a minute")
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.True(t, errors.Is(err, lua.ErrOutcomeUnknown) || errors.Is(err, lua.ErrNotExecuted), "%v", err)
		})
	}
	callers.Wait()
}

// Of the calls of callers that left, those that were withdrawn never run, and those whose outcome is unknown run once
// or not at all.
func TestCallsOfCallersThatLeft(t *testing.T) {
	t.Parallel()
	server, client := stopped(t)
	s := coldCount(t, lua.RetryNever)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	outcomes := make([]error, 50)
	var callers sync.WaitGroup
	for i := range outcomes {
		callers.Go(func() {
			_, err := runInt(ctx, client, s, fmt.Sprint("k", i))
			outcomes[i] = err
		})
	}
	callers.Wait()
	server.Resume()
	require.NoError(t, client.Ping(t.Context()).Err())
	withdrawn := 0
	for i, err := range outcomes {
		key := fmt.Sprint("k", i)
		if errors.Is(err, lua.ErrNotExecuted) {
			withdrawn++
			require.Zero(t, client.Exists(t.Context(), key).Val(), "%v", err)
			continue
		}
		requireOutcome(t, err, lua.ErrOutcomeUnknown)
	}
	require.Positive(t, withdrawn, "calls behind others wait, and are withdrawn")
}

// A client without a free connection has not written the call: it is withdrawn, and the pool's connection works on.
func TestACallThatWasNotWrittenIsWithdrawn(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	client := server.Client(func(o *redis.Options) { o.PoolSize, o.PoolTimeout = 1, time.Minute })
	s := coldCount(t, lua.RetryNever)
	preload(t, client, s)
	busy := make(chan error)
	go func() { busy <- client.BLPop(t.Context(), 4*time.Second, "empty").Err() }()
	luatomictest.Eventually(t, 10*time.Second, "the connection is taken", func() bool {
		return client.PoolStats().IdleConns == 0 && client.PoolStats().TotalConns == 1
	})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := runInt(ctx, client, s, "k")
	requireOutcome(t, err, lua.ErrNotExecuted)
	require.ErrorIs(t, <-busy, redis.Nil)
	n, err := runInt(t.Context(), client, s, "other")
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	require.Zero(t, client.Exists(t.Context(), "k").Val(), "it never ran")
}

// A caller may change its bytes as soon as the call has returned.
func TestBytesBelongToTheCallerAgain(t *testing.T) {
	t.Parallel()
	server, client := stopped(t)
	s := newScript("keep", "return redis.call('SET', KEYS[1], ARGV[1])", lua.RetrySafe)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	var callers sync.WaitGroup
	for i := range 50 {
		callers.Go(func() {
			body := make([]byte, 1000)
			c := lua.NewCall(s, 1, 3)
			c.Key("key", fmt.Sprint("k", i))
			c.EndKeys()
			c.Bytes(&body) // in the Call itself
			c.Bytes(&body)
			c.BytesAt(&body)
			_, err := lua.Run(ctx, client, c, decodeText)
			require.Error(t, err)
			for j := range body {
				body[j] = 'x' // the race detector sees a write beside that of the connection
			}
		})
	}
	callers.Wait()
	server.Resume()
	require.NoError(t, client.Ping(t.Context()).Err())
}

// The calls on a client do not keep the client.
func TestAClientThatIsGoneIsForgotten(t *testing.T) {
	collected := make(chan struct{})
	func() {
		options, err := redis.ParseURL(luatomictest.URL(t))
		require.NoError(t, err)
		client := redis.NewClient(options)
		_, err = runInt(t.Context(), client, coldCount(t, lua.RetrySafe), luatomictest.Namespace(t))
		require.NoError(t, err)
		runtime.AddCleanup(client, func(done chan struct{}) { close(done) }, collected)
		require.NoError(t, client.Close())
	}()
	luatomictest.Eventually(t, 20*time.Second, "the client is collected", func() bool {
		runtime.GC()
		select {
		case <-collected:
			return true
		default:
			return false
		}
	})
}

// The end of the context cuts off an attempt that follows others: the error says what they failed with.
func TestAnAttemptThatIsCutOffNamesTheFailureBeforeIt(t *testing.T) {
	t.Parallel()
	s := coldCount(t, lua.RetryNever)
	for name, open := range map[string]func(*redis.Client) lua.Client{
		"shared": func(c *redis.Client) lua.Client { return c },
		"direct": func(c *redis.Client) lua.Client { return lua.Direct(c) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			over := make(chan struct{})
			server := startFake(t, func(_ string, nth int) string {
				if nth == 1 {
					return "-READONLY You can't write against a read only replica."
				}
				<-over
				return ""
			})
			t.Cleanup(func() { close(over) }) // before the server's
			client := server.client(t, func(o *redis.Options) { o.ContextTimeoutEnabled, o.MaxRetries = true, -1 })
			_, err := runInt(within(t, 3*time.Second), open(client), s, "k")
			require.ErrorIs(t, err, lua.ErrOutcomeUnknown)
			require.ErrorContains(t, err, "the attempt before it: READONLY")
		})
	}
}

// A cluster client asks for the servers of the cluster with its first call, and with each one after it until it knows
// them. That ends with the context, too.
func TestTheFirstCallOnAClusterReturnsWithItsContext(t *testing.T) {
	t.Parallel()
	var hangs atomic.Bool
	over := make(chan struct{})
	server := startFake(t, func(string, int) string {
		if !hangs.Load() {
			return "-ERR not yet"
		}
		<-over
		return ""
	})
	t.Cleanup(func() { close(over) }) // before the server's
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{server.listener.Addr().String()}, Protocol: 2, DisableIdentity: true, ReadTimeout: time.Minute,
	})
	t.Cleanup(func() { _ = client.Close() })
	s := coldCount(t, lua.RetryNever)
	_, err := runInt(within(t, 10*time.Second), client, s, "k")
	require.ErrorContains(t, requireOutcome(t, err, lua.ErrNotExecuted), "not yet")
	hangs.Store(true)
	start := time.Now()
	_, err = runInt(within(t, 100*time.Millisecond), client, s, "k")
	require.Less(t, time.Since(start), 30*time.Second, "go-redis itself waits for a minute")
	require.ErrorIs(t, requireOutcome(t, err, lua.ErrNotExecuted), context.DeadlineExceeded)
}

// A call whose caller has left is not written again: neither by an attempt that had not begun then, nor where go-redis
// sends a command a second time, as it does after a redirection.
func TestACallOfACallerThatLeftIsNotWrittenAgain(t *testing.T) {
	t.Parallel()
	c, s := luatomictest.Client(t), coldCount(t, lua.RetrySafe)
	preload(t, c, s)
	ctx, cancel := context.WithCancel(t.Context())
	left, again := make(chan struct{}), make(chan struct{})
	c.AddHook(&lab.Around{Sha: s.SHA, Do: func(run func() error) error {
		_ = run()
		cancel()
		<-left
		defer close(again)
		return run()
	}})
	key := luatomictest.Namespace(t)
	_, err := runInt(ctx, c, s, key)
	require.ErrorIs(t, err, lua.ErrOutcomeUnknown)
	close(left)
	<-again
	require.Equal(t, 1, counted(t, c, key))
}

// The attempt after a lost reply begins in another goroutine. It may do so when the caller has left already.
func TestAnAttemptThatBeginsLateIsNotSent(t *testing.T) {
	t.Parallel()
	n, s := overSingle(t), coldCount(t, lua.RetrySafe)
	preload(t, n.direct, s)
	client := n.client.(*redis.Client)
	for i := range 300 {
		key := fmt.Sprint(luatomictest.Namespace(t), i)
		n.drop(1, evalsha(s))
		ctx, cancel := context.WithCancel(t.Context())
		stop := time.AfterFunc(time.Duration(i%30)*100*time.Microsecond, cancel)
		_, err := runInt(ctx, client, s, key)
		stop.Stop()
		cancel()
		if err == nil {
			continue
		}
		luatomictest.Eventually(t, 20*time.Second, "no attempt is under way", func() bool {
			conns := client.PoolStats()
			return conns.TotalConns == conns.IdleConns
		})
		before := counted(t, n.direct, key)
		require.NoError(t, client.Ping(t.Context()).Err())
		require.Equal(t, before, counted(t, n.direct, key))
	}
}

// exits ends the goroutine of each command, as a failed assertion in a hook of a test does.
type exits struct{}

func (exits) DialHook(next redis.DialHook) redis.DialHook { return next }
func (exits) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(context.Context, redis.Cmder) error { runtime.Goexit(); return nil }
}
func (exits) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(context.Context, []redis.Cmder) error { runtime.Goexit(); return nil }
}

// A hook that ends the goroutine of a round trip leaves the caller an error, and not waiting for ever.
func TestAHookThatExitsIsAnError(t *testing.T) {
	t.Parallel()
	client := luatomictest.Client(t)
	client.AddHook(exits{})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_, err := lua.Run(ctx, client, claim(claimMany(t, 1), "k", "x"), decodeText)
	require.ErrorIs(t, err, lua.ErrNotExecuted)
	require.ErrorContains(t, err, "a hook of the client ended the goroutine")
	for replicas, outcome := range []error{lua.ErrOutcomeUnknown, lua.ErrNotExecuted} { // two ways to the server
		b := lua.NewBatch(client)
		b.Wait(replicas, time.Millisecond)
		f := lua.Queue(b, claim(claimMany(t, 1), "k", "x"), decodeText)
		require.ErrorContains(t, b.Exec(ctx), "a hook of the client ended the goroutine")
		_, err := f.Get()
		require.ErrorIs(t, err, outcome)
	}
	require.NoError(t, ctx.Err())
}
