package lua_test

import (
	"context"
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

func TestBatchRunsInOrder(t *testing.T) {
	t.Parallel()
	client, key := luatomictest.Client(t), luatomictest.Namespace(t)
	s, b := coldCount(t, lua.RetryNever), lua.NewBatch(client)
	for _, state := range []string{"cold", "warm"} {
		require.NoError(t, client.Del(t.Context(), key).Err())
		futures := make([]*lua.Future[int64], 300) // more calls than one SCRIPT LOAD covers
		for i := range futures {
			futures[i] = lua.Queue(b, newCall(s, key), decodeInt)
		}
		require.Equal(t, len(futures), b.Len())
		require.NoError(t, b.Exec(within(t, 10*time.Second)))
		require.Zero(t, b.Len())
		for i, f := range futures {
			got, err := f.Get()
			require.NoError(t, err)
			require.EqualValues(t, i+1, got, state)
		}
	}
}

func TestBatchMixesScriptsAndTypes(t *testing.T) {
	t.Parallel()
	client, key := luatomictest.Client(t), luatomictest.Namespace(t)
	name := newScript("name", "return 'n' .. redis.call('INCR', KEYS[1])", lua.RetryNever)
	nothing := newScript("nothing", "return false", lua.RetrySafe)
	nothing.ReadOnly = true
	b := lua.NewBatch(client)
	one, two := lua.Queue(b, newCall(coldCount(t, lua.RetryNever), key), decodeInt), lua.Queue(b,
		newCall(name, key+":2"), decodeText)
	three := lua.Queue(b, newCall(nothing, key), func(r *lua.Reply) bool { return r.Absent() })
	require.NoError(t, b.Exec(within(t, 10*time.Second)))
	n, err := one.Get()
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	text, err := two.Get()
	require.NoError(t, err)
	require.Equal(t, "n1", text)
	absent, err := three.Get()
	require.NoError(t, err)
	require.True(t, absent, "a nil reply is a reply")
}

// The reply to WAIT of an attempt that ran no call says nothing of the replicas. Where an attempt may have run, its own
// connection alone knew of the writes.
func TestBatchWaitsForReplicasOfTheAttemptThatRan(t *testing.T) {
	t.Parallel()
	const lost = ""
	s := coldCount(t, lua.RetrySafe)
	for first, want := range map[string]int{"-LOADING Redis is loading the dataset in memory": 2, lost: 0} {
		t.Run("first "+first, func(t *testing.T) {
			t.Parallel()
			server := startFake(t, func(verb string, nth int) string {
				switch {
				case nth == 1 && verb == "EVALSHA", nth == 1 && verb == "WAIT" && first != lost:
					return first
				case verb == "WAIT":
					return ":2"
				case verb == "SCRIPT LOAD":
					return "+" + s.SHA
				}
				return ":7"
			})
			b := lua.NewBatch(server.client(t))
			b.Wait(2, time.Second)
			f := lua.Queue(b, newCall(s, "k"), decodeInt)
			require.NoError(t, b.Exec(within(t, 10*time.Second)))
			n, err := f.Get()
			require.NoError(t, err)
			require.EqualValues(t, 7, n)
			acked, err := b.Acked()
			require.Equal(t, want, acked)
			require.Equal(t, want == 0, err != nil, "%v", err)
		})
	}
}

// Of the servers of one batch one loads its data first. What it says of its replicas then is not of the calls, which
// ran later.
func TestBatchWaitsForReplicasOfEachServerThatRan(t *testing.T) {
	t.Parallel()
	s := coldCount(t, lua.RetrySafe)
	addrs := make(map[string]string)
	for _, name := range []string{"ready", "loading"} {
		var loaded atomic.Bool
		loaded.Store(name == "ready")
		addrs[name] = startFake(t, func(verb string, _ int) string {
			switch {
			case verb == "PING":
				return "+PONG"
			case !loaded.Load():
				loaded.Store(verb == "WAIT") // the last command of the first pipeline
				return "-LOADING Redis is loading the dataset in memory"
			case verb == "WAIT":
				return ":2"
			case verb == "SCRIPT LOAD":
				return "+" + s.SHA
			}
			return ":7"
		}).listener.Addr().String()
	}
	ring := redis.NewRing(&redis.RingOptions{Addrs: addrs, Protocol: 2, DisableIdentity: true})
	t.Cleanup(func() { _ = ring.Close() })
	b := lua.NewBatch(ring)
	b.Wait(2, time.Second)
	for i := range 20 { // each shard has some
		_ = lua.Queue(b, newCall(s, fmt.Sprint(i)), decodeInt)
	}
	require.NoError(t, b.Exec(within(t, 10*time.Second)))
	acked, err := b.Acked()
	require.NoError(t, err)
	require.Equal(t, 2, acked)
}

// The servers of one batch wait for their replicas at the same time: each of these answers WAIT when both were asked.
func TestBatchWaitsForTheReplicasOfAllServersAtOnce(t *testing.T) {
	t.Parallel()
	s := coldCount(t, lua.RetrySafe)
	var asked sync.WaitGroup
	asked.Add(2)
	addrs := make(map[string]string)
	for _, name := range []string{"one", "two"} {
		addrs[name] = startFake(t, func(verb string, _ int) string {
			switch verb {
			case "PING":
				return "+PONG"
			case "WAIT":
				asked.Done()
				asked.Wait()
				return ":2"
			case "SCRIPT LOAD":
				return "+" + s.SHA
			}
			return ":7"
		}).listener.Addr().String()
	}
	ring := redis.NewRing(&redis.RingOptions{Addrs: addrs, Protocol: 2, DisableIdentity: true})
	t.Cleanup(func() { _ = ring.Close() })
	b := lua.NewBatch(ring)
	b.Wait(2, time.Second)
	for i := range 20 { // each shard has some
		_ = lua.Queue(b, newCall(s, fmt.Sprint(i)), decodeInt)
	}
	require.NoError(t, b.Exec(within(t, 10*time.Second)))
	acked, err := b.Acked()
	require.NoError(t, err)
	require.Equal(t, 2, acked)
}

// No replica is known to have the writes of a script that was sent by its text, beside those of another one.
func TestBatchKnowsNoReplicasOfAScriptSentByItsText(t *testing.T) {
	t.Parallel()
	refused, loaded := coldCount(t, lua.RetrySafe), newScript("loaded", countSource, lua.RetrySafe)
	server := startFake(t, func(verb string, nth int) string {
		switch {
		case verb == "SCRIPT LOAD" && nth == 1:
			return "-NOPERM this user has no permissions to run SCRIPT LOAD"
		case verb == "SCRIPT LOAD":
			return "+" + loaded.SHA
		case verb == "EVALSHA" && nth == 1:
			return "-NOSCRIPT No matching script."
		case verb == "WAIT":
			return ":2"
		}
		return ":7"
	})
	b := lua.NewBatch(server.client(t))
	b.Wait(2, time.Second)
	_, _ = lua.Queue(b, newCall(refused, "k"), decodeInt), lua.Queue(b, newCall(loaded, "k"), decodeInt)
	require.NoError(t, b.Exec(within(t, 10*time.Second)))
	require.Equal(t, 1, server.count("EVAL"))
	acked, err := b.Acked()
	require.NoError(t, err)
	require.Zero(t, acked)
}

func TestFutureBeforeExec(t *testing.T) {
	t.Parallel()
	b := lua.NewBatch(untouched(t))
	f := lua.Queue(b, newCall(newScript("count", countSource, lua.RetrySafe), "k"), decodeInt)
	_, err := f.Get()
	require.ErrorIs(t, err, lua.ErrNotRun)
	require.EqualError(t, err, "count: batch not executed yet")
}

func TestEmptyBatchDoesNoIO(t *testing.T) {
	t.Parallel()
	b := lua.NewBatch(untouched(t))
	require.NoError(t, b.Exec(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, b.Exec(ctx))
}

func TestBatchReportsPartialFailure(t *testing.T) {
	t.Parallel()
	client, name := luatomictest.Client(t), luatomictest.Namespace(t)
	ctx := within(t, 10*time.Second)
	require.NoError(t, client.RPush(ctx, name+":50", "a list").Err())
	s, b := coldCount(t, lua.RetryNever), lua.NewBatch(client)
	s.Keys = []lua.Key{{Name: "counter", Type: "string"}}
	futures := make([]*lua.Future[int64], 100)
	for i := range futures {
		futures[i] = lua.Queue(b, newCall(s, fmt.Sprintf("%s:%d", name, i)), decodeInt)
	}
	err := b.Exec(ctx)
	require.ErrorContains(t, err, "1 of 100 calls failed: executed in part")
	require.ErrorContains(t, err, `:50" (counter) holds a list, not a string`)
	require.ErrorIs(t, err, lua.ErrWrongType)
	for i, f := range futures {
		got, err := f.Get()
		if i == 50 {
			requireOutcome(t, err, lua.ErrExecutedInPart)
			continue
		}
		require.NoError(t, err)
		require.EqualValues(t, 1, got)
	}

	f := lua.Queue(b, newCall(s, name+":again"), decodeInt)
	require.NoError(t, b.Exec(ctx), "the batch is empty again after Exec")
	got, err := f.Get()
	require.NoError(t, err)
	require.EqualValues(t, 1, got)
}

func TestBatchSendsTheGoodCallsBesideTheBad(t *testing.T) {
	t.Parallel()
	client, key := luatomictest.Client(t), luatomictest.Namespace(t)
	s, b := coldCount(t, lua.RetryNever), lua.NewBatch(client)
	bad := lua.Queue(b, newCall(s, key, "other"), decodeInt)
	fine := lua.Queue(b, newCall(s, key), decodeInt)
	err := b.Exec(within(t, 10*time.Second))
	require.ErrorIs(t, err, lua.ErrCrossSlot)
	require.ErrorContains(t, err, "1 of 2 calls failed: count: ")
	_, err = bad.Get()
	require.ErrorIs(t, err, lua.ErrCrossSlot)
	got, err := fine.Get()
	require.NoError(t, err)
	require.EqualValues(t, 1, got)
}

func TestBatchWithAnEndedContext(t *testing.T) {
	t.Parallel()
	b := lua.NewBatch(untouched(t))
	s := newScript("count", countSource, lua.RetrySafe)
	futures := []*lua.Future[int64]{lua.Queue(b, newCall(s, "a"), decodeInt), lua.Queue(b, newCall(s, "b"), decodeInt)}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorContains(t, b.Exec(ctx), "2 of 2 calls failed")
	for _, f := range futures {
		_, err := f.Get()
		requireOutcome(t, err, lua.ErrNotExecuted)
		require.ErrorIs(t, err, context.Canceled)
	}
}

func TestBatchRepeatsWhatWasNotExecuted(t *testing.T) {
	t.Parallel()
	fake := startFake(t, func(_ string, nth int) string {
		if nth <= 10 && nth%2 == 0 { // five of the first ten
			return "-LOADING Redis is loading the dataset in memory"
		}
		return fmt.Sprintf(":%d", nth)
	})
	b := lua.NewBatch(fake.client(t))
	s := newScript("count", countSource, lua.RetryNever)
	futures := make([]*lua.Future[int64], 10)
	for i := range futures {
		futures[i] = lua.Queue(b, newCall(s, "k"), decodeInt)
	}
	require.NoError(t, b.Exec(within(t, 10*time.Second)))
	require.Equal(t, 15, fake.count("EVALSHA"), "only the failed ones ran again")
	for i, want := range []int64{1, 11, 3, 12, 5, 13, 7, 14, 9, 15} {
		got, err := futures[i].Get()
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

func TestBatchEndsWithTheContext(t *testing.T) {
	t.Parallel()
	fake := startFake(t, func(_ string, nth int) string {
		if nth == 1 {
			return ":1"
		}
		return "-TRYAGAIN Multiple keys request during rehashing of slot"
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	client := fake.client(t)
	s := newScript("count", countSource, lua.RetrySafe)
	client.AddHook(afterError(s, cancel))
	b := lua.NewBatch(client)
	first, second := lua.Queue(b, newCall(s, "k"), decodeInt), lua.Queue(b, newCall(s, "k"), decodeInt)
	require.ErrorIs(t, b.Exec(ctx), context.Canceled)
	_, err := first.Get()
	require.NoError(t, err)
	_, err = second.Get()
	require.Equal(t, "TRYAGAIN", requireOutcome(t, err, lua.ErrNotExecuted).Code)
}

func TestFutureReportsABadReply(t *testing.T) {
	t.Parallel()
	b := lua.NewBatch(luatomictest.Client(t))
	f := lua.Queue(b, newCall(newScript("text", "return 'text'", lua.RetrySafe), luatomictest.Namespace(t)), decodeInt)
	require.NoError(t, b.Exec(within(t, 10*time.Second)))
	for range 2 {
		_, err := f.Get()
		require.ErrorIs(t, err, lua.ErrBadReply)
	}
}

func TestBatchOnADeadServer(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	client := server.Client(func(o *redis.Options) { o.DialerRetries = 1 })
	server.Kill()
	b := lua.NewBatch(client)
	f := lua.Queue(b, newCall(newScript("count", countSource, lua.RetryNever), "k"), decodeInt)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	require.ErrorContains(t, b.Exec(ctx), server.Addr())
	_, err := f.Get()
	requireOutcome(t, err, lua.ErrNotExecuted)
}

// The details of one error cost a round trip or more, and a batch can have a thousand errors.
func TestDetailsOfManyErrorsAreBounded(t *testing.T) {
	t.Parallel()
	fake := startFake(t, func(verb string, _ int) string {
		if verb == "TYPE" {
			time.Sleep(300 * time.Millisecond)
			return "+list"
		}
		return "-WRONGTYPE Operation against a key holding the wrong kind of value"
	})
	s := newScript("count", countSource, lua.RetryNever)
	s.Keys = []lua.Key{{Name: "counter", Type: "string"}}
	b := lua.NewBatch(fake.client(t))
	var futures []*lua.Future[int64]
	for range 30 {
		futures = append(futures, lua.Queue(b, newCall(s, "k"), decodeInt))
	}
	require.ErrorIs(t, b.Exec(within(t, time.Minute)), lua.ErrWrongType)
	for _, f := range futures {
		_, err := f.Get()
		require.ErrorIs(t, err, lua.ErrWrongType)
	}
	require.Less(t, fake.count("TYPE"), 15)
}
