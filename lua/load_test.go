package lua_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// flushing flushes the script cache about every millisecond until the test ends, and returns how often.
func flushing(t testing.TB, client *redis.Client) (flushes func() int64) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				_ = client.ScriptFlush(ctx).Err()
			}
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	return func() int64 { return commandCalls(t, client, "script|flush") }
}

// commandCalls returns how often the server ran a command.
func commandCalls(t testing.TB, client *redis.Client, name string) int64 {
	t.Helper()
	info, err := client.Info(within(t, 10*time.Second), "commandstats").Result()
	require.NoError(t, err)
	_, after, found := strings.Cut(info, "cmdstat_"+name+":calls=")
	if !found {
		return 0
	}
	var calls int64
	_, err = fmt.Sscanf(after, "%d", &calls)
	require.NoError(t, err)
	return calls
}

func TestCallsUnderScriptFlush(t *testing.T) {
	lab.Long(t)
	t.Parallel()
	server := luatomictest.StartServer(t)
	client, s := server.Client(), newScript("count", countSource, lua.RetryNever)
	flushes := flushing(t, server.Client())
	const callers, calls = 8, 6250
	var running sync.WaitGroup
	errs := make(chan error, callers)
	for range callers {
		running.Go(func() {
			for range calls {
				if _, err := runInt(context.Background(), client, s, "k"); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	running.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	require.Equal(t, callers*calls, counted(t, client, "k"))
	require.Greater(t, flushes(), int64(50), "the flushes were felt")
	require.Zero(t, commandCalls(t, client, "eval"))
}

func TestBatchesUnderScriptFlush(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	client := server.Client()
	scripts := []*lua.Script{newScript("count", countSource, lua.RetryNever),
		newScript("other", "-- other\n"+countSource, lua.RetryNever)}
	flushes := flushing(t, server.Client())
	const batches, calls = 500, 100
	b := lua.NewBatch(client)
	for range batches {
		for i := range calls {
			lua.Queue(b, newCall(scripts[i%2], "k"), decodeInt)
		}
		require.NoError(t, b.Exec(t.Context()))
	}
	require.Equal(t, batches*calls, counted(t, client, "k"))
	require.Greater(t, flushes(), int64(20), "the flushes were felt")
}

func TestMissingScriptIsLoadedNotEvaluated(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	client, s := server.Client(), newScript("count", countSource, lua.RetryNever)
	for i := range 3 {
		got, err := runInt(within(t, 10*time.Second), client, s, "k")
		require.NoError(t, err)
		require.EqualValues(t, i+1, got)
	}
	known, err := client.ScriptExists(t.Context(), s.SHA).Result()
	require.NoError(t, err)
	require.Equal(t, []bool{true}, known)
	require.Zero(t, commandCalls(t, client, "eval"))
	require.EqualValues(t, 1, commandCalls(t, client, "script|load"))
	require.EqualValues(t, 4, commandCalls(t, client, "evalsha"),
		"three calls, one of them without the script at first")
}

// A flush in the middle of a long pipeline must not fail all later calls.
func TestLongBatchesLoadTheScriptAgain(t *testing.T) {
	t.Parallel()
	const calls = 200
	s := newScript("count", countSource, lua.RetryNever)
	fake := startFake(t, func(verb string, nth int) string {
		switch {
		case verb == "SCRIPT LOAD":
			return "+" + s.SHA
		case nth <= calls:
			return "-NOSCRIPT No matching script."
		}
		return ":1"
	})
	b := lua.NewBatch(fake.client(t))
	for range calls {
		lua.Queue(b, newCall(s, "k"), decodeInt)
	}
	require.NoError(t, b.Exec(within(t, 10*time.Second)))
	require.Equal(t, 4, fake.count("SCRIPT LOAD"), "for each 64 calls")
	require.Equal(t, 2*calls, fake.count("EVALSHA"))
}

// restricted starts a server with a user that may run all commands but these.
func restricted(t testing.TB, without ...any) (server *luatomictest.Server, client *redis.Client) {
	server = luatomictest.StartServer(t)
	rule := append([]any{"ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all"}, without...)
	require.NoError(t, server.Client().Do(within(t, 10*time.Second), rule...).Err())
	return server, server.Client(as("app"))
}

func TestEvalWhereScriptLoadIsRefused(t *testing.T) {
	t.Parallel()
	_, client := restricted(t, "-script")
	ctx, s := within(t, 10*time.Second), newScript("count", countSource, lua.RetryNever)
	got, err := runInt(ctx, client, s, "k")
	require.NoError(t, err)
	require.EqualValues(t, 1, got)
	got, err = runInt(ctx, client, s, "k")
	require.NoError(t, err)
	require.EqualValues(t, 2, got)
	require.EqualValues(t, 1, commandCalls(t, client, "eval"), "EVAL has taught the server the script")

	b, other := lua.NewBatch(client), newScript("other", "-- other\n"+countSource, lua.RetryNever)
	for range 10 {
		lua.Queue(b, newCall(other, "k"), decodeInt)
	}
	require.NoError(t, b.Exec(ctx))
	require.Equal(t, 12, counted(t, client, "k"))
}

func TestLoadWhereEvalIsRefused(t *testing.T) {
	t.Parallel()
	_, client := restricted(t, "-eval", "-eval_ro")
	got, err := runInt(within(t, 10*time.Second), client, newScript("count", countSource, lua.RetryNever), "k")
	require.NoError(t, err)
	require.EqualValues(t, 1, got)
}

func TestPreloadByAnotherUserWhereBothAreRefused(t *testing.T) {
	t.Parallel()
	server, client := restricted(t, "-script", "-eval", "-eval_ro")
	ctx, s := within(t, 10*time.Second), newScript("count", countSource, lua.RetrySafe)
	_, err := runInt(ctx, client, s, "k")
	e := requireOutcome(t, err, lua.ErrNotExecuted)
	require.Equal(t, "NOPERM", e.Code)
	require.ErrorContains(t, err, "Preload")
	require.ErrorIs(t, err, lua.ErrNotLoaded)

	b := lua.NewBatch(client)
	f := lua.Queue(b, newCall(s, "k"), decodeInt)
	require.ErrorIs(t, b.Exec(ctx), lua.ErrNotExecuted)
	_, err = f.Get()
	require.Equal(t, "NOPERM", requireOutcome(t, err, lua.ErrNotExecuted).Code)

	require.ErrorContains(t, lua.Preload(ctx, client, s), "preload count on "+server.Addr())
	preload(t, server.Client(), s)
	got, err := runInt(ctx, client, s, "k")
	require.NoError(t, err)
	require.EqualValues(t, 1, got)
}

// Between the refused SCRIPT LOAD and the EVAL another client may have loaded the script: then it has already run.
func TestNoEvalAfterTheScriptHasRun(t *testing.T) {
	t.Parallel()
	for name, reply := range map[string]string{"answered": ":1", "lost": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fake := startFake(t, func(verb string, nth int) string {
				switch {
				case verb == "SCRIPT LOAD":
					return "-NOPERM this user has no permissions to run the 'script|load' command"
				case verb == "EVALSHA" && nth == 1:
					return "-NOSCRIPT No matching script."
				}
				return reply
			})
			_, err := runInt(within(t, 10*time.Second), fake.client(t), newScript("count", countSource, lua.RetryNever),
				"k")
			if reply == "" {
				requireOutcome(t, err, lua.ErrOutcomeUnknown)
			} else {
				require.NoError(t, err)
			}
			require.Equal(t, 2, fake.count("EVALSHA"))
			require.Zero(t, fake.count("EVAL"))
		})
	}
}

func TestNoEvalAfterAPassingRefusal(t *testing.T) {
	t.Parallel()
	s := newScript("count", countSource, lua.RetryNever)
	fake := startFake(t, func(verb string, nth int) string {
		switch {
		case verb == "SCRIPT LOAD" && nth == 1, verb == "EVALSHA" && nth == 2:
			return "-LOADING Redis is loading the dataset in memory"
		case verb == "SCRIPT LOAD":
			return "+" + s.SHA
		case nth <= 3:
			return "-NOSCRIPT No matching script."
		}
		return ":1"
	})
	_, err := runInt(within(t, 10*time.Second), fake.client(t), s, "k")
	require.NoError(t, err)
	require.Equal(t, 2, fake.count("SCRIPT LOAD"))
	require.Zero(t, fake.count("EVAL"), "a script that came by EVAL can be evicted")
}

func TestWrongDigestIsReported(t *testing.T) {
	t.Parallel()
	s := coldCount(t, lua.RetrySafe)
	right := s.SHA
	s.SHA = strings.Repeat("0", 40)
	client, key, ctx := luatomictest.Client(t), luatomictest.Namespace(t), within(t, 10*time.Second)
	preloaded := lua.Preload(ctx, client, s)
	_, ran := runInt(ctx, client, s, key)
	b := lua.NewBatch(client)
	lua.Queue(b, newCall(s, key), decodeInt)
	for _, err := range []error{preloaded, ran, b.Exec(ctx)} {
		require.ErrorContains(t, err, "the server computed "+right+", the generated code has 000")
		require.ErrorContains(t, err, "go generate")
	}
	require.Equal(t, 2, requireOutcome(t, ran, lua.ErrNotExecuted).Tries)
	require.Zero(t, counted(t, client, key))
}

func TestScriptThatDoesNotCompileIsNotExecuted(t *testing.T) {
	t.Parallel()
	s := newScript("broken", "redis.call('INCR', KEYS[1]) return return", lua.RetrySafe)
	client, key := luatomictest.Client(t), luatomictest.Namespace(t)
	_, err := runInt(within(t, 10*time.Second), client, s, key)
	requireOutcome(t, err, lua.ErrNotExecuted)
	require.ErrorContains(t, err, "compiling")
	require.Zero(t, counted(t, client, key))
}

func TestPreloadNeedsAClientThatTellsItsNodes(t *testing.T) {
	t.Parallel()
	s := newScript("count", countSource, lua.RetrySafe)
	require.ErrorContains(t, lua.Preload(t.Context(), wrapped{untouched(t)}, s),
		"pass the Client, ClusterClient or Ring")
}

// wrapped hides the type of a client, as an auto-pipelining one does.
type wrapped struct{ redis.UniversalClient }

func TestClientOfUnknownKindEvaluates(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	client, s := server.Client(), newScript("count", countSource, lua.RetryNever)
	for range 2 {
		_, err := runInt(within(t, 10*time.Second), wrapped{client}, s, "k")
		require.NoError(t, err)
	}
	require.Equal(t, 2, counted(t, client, "k"))
	require.EqualValues(t, 1, commandCalls(t, client, "eval"))
	require.Zero(t, commandCalls(t, client, "script|load"))
}

func TestPreloadReportsTheNodeThatFails(t *testing.T) {
	t.Parallel()
	up, down := luatomictest.StartServer(t), luatomictest.StartServer(t)
	ring := redis.NewRing(&redis.RingOptions{
		Addrs:         map[string]string{"up": up.Addr(), "down": down.Addr()},
		DialerRetries: 1, MaxRetries: -1,
		HeartbeatFrequency: time.Hour, // a ring skips shards that its heartbeat has found down
	})
	t.Cleanup(func() { _ = ring.Close() })
	down.Kill()
	s := newScript("count", countSource, lua.RetrySafe)
	err := lua.Preload(within(t, 10*time.Second), ring, s)
	require.ErrorContains(t, err, "preload count on "+down.Addr())
	require.ErrorContains(t, err, "connection refused")
	require.NotContains(t, err.Error(), up.Addr())
	known, err := up.Client().ScriptExists(t.Context(), s.SHA).Result()
	require.NoError(t, err)
	require.Equal(t, []bool{true}, known, "the others are loaded")
}

// After a failover the pool may hold connections to the old master and to the new one, and return one to the old for
// each pipeline and one to the new for each call: the old has the script and may not write, the new does not have it.
func TestReplicaBehindEveryPipelineIsGotPast(t *testing.T) {
	t.Parallel()
	s := coldCount(t, lua.RetryNever)
	for name, run := range map[string]func(ctx context.Context, c lua.Client) (int64, error){
		"call": func(ctx context.Context, c lua.Client) (int64, error) { return runInt(ctx, c, s, "k") },
		"batch": func(ctx context.Context, c lua.Client) (int64, error) {
			b := lua.NewBatch(c)
			f := lua.Queue(b, newCall(s, "k"), decodeInt)
			_ = b.Exec(ctx)
			return f.Get()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := startFake(t, func(verb string, nth int) string {
				switch {
				case verb == "SCRIPT":
					return "+" + s.SHA
				case verb == "EVAL":
					return ":7"
				case nth%2 == 1:
					return "-NOSCRIPT No matching script."
				}
				return "-READONLY You can't write against a read only replica."
			})
			got, err := run(within(t, 10*time.Second), server.client(t))
			require.NoError(t, err)
			require.EqualValues(t, 7, got)
		})
	}
}

// Behind a proxy, SCRIPT LOAD and the call may go to different servers, each with a valid reply.
func TestEvalWhereLoadingIsInVain(t *testing.T) {
	t.Parallel()
	s := coldCount(t, lua.RetryNever)
	for name, run := range map[string]func(ctx context.Context, c lua.Client) (int64, error){
		"call": func(ctx context.Context, c lua.Client) (int64, error) { return runInt(ctx, c, s, "k") },
		"batch": func(ctx context.Context, c lua.Client) (int64, error) {
			b := lua.NewBatch(c)
			f := lua.Queue(b, newCall(s, "k"), decodeInt)
			_ = b.Exec(ctx)
			return f.Get()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, evaluates := range []bool{true, false} {
				proxy := startFake(t, func(verb string, _ int) string {
					switch {
					case verb == "SCRIPT LOAD":
						return "+" + s.SHA
					case verb == "EVAL" && evaluates:
						return ":7"
					}
					return "-NOSCRIPT No matching script."
				})
				if evaluates {
					got, err := run(within(t, 20*time.Second), proxy.client(t))
					require.NoError(t, err)
					require.EqualValues(t, 7, got)
					require.Equal(t, 1, proxy.count("EVAL"))
				} else {
					_, err := run(within(t, time.Second), proxy.client(t))
					require.Error(t, err)
					require.Less(t, proxy.count("EVAL"), 30, "with waits between")
				}
				require.LessOrEqual(t, proxy.count("SCRIPT LOAD"), 3)
			}
		})
	}
}

// Git may give the scripts of a checkout other line ends, and so another digest. Running go generate would make it that
// of one checkout.
func TestPreloadNamesTheLineEndsOfACheckout(t *testing.T) {
	t.Parallel()
	client := luatomictest.Client(t)
	for text, cure := range map[string]string{
		"return 1\r\n": "its lines end with CRLF: tell git *.lua -text",
		"return 1 \n":  "run go generate",
	} {
		s := newScript("ends", "return 1\n", lua.RetryNever)
		s.Source = &text
		require.ErrorContains(t, lua.Preload(t.Context(), client, s), s.SHA+": "+cure)
	}
}
