package lua_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

func TestGuardedLostReplies(t *testing.T) {
	t.Parallel()
	testGuardedLostReplies(t, overSingle)
}

// testGuardedLostReplies loses 0 to 4 replies of a guarded call: the guard does not change which calls are retried.
func testGuardedLostReplies(t *testing.T, over func(testing.TB) *topology) {
	for name, retry := range retries {
		for lost := range 5 {
			t.Run(fmt.Sprintf("%s %d lost", name, lost), func(t *testing.T) {
				t.Parallel()
				n, tag, s := over(t), "{"+luatomictest.Namespace(t)+"}", withGuard(coldCount(t, retry))
				preload(t, n.direct, s)
				guard := lua.Guard(n.client, takeLock(t, n.direct, tag+"lease"))
				n.drop(lost, guardedEvalsha(s))
				got, err := runInt(within(t, 20*time.Second), guard, s, tag+"n")
				if lost > 0 && retry == lua.RetryNever {
					e := requireOutcome(t, trimGuarded(t, err), lua.ErrOutcomeUnknown)
					require.Equal(t, 1, e.Tries)
					require.NotErrorIs(t, err, lua.ErrFenced)
					require.Equal(t, 1, counted(t, n.direct, tag+"n"), "executed once")
					return
				}
				require.NoError(t, err)
				require.EqualValues(t, lost+1, got)
				require.Equal(t, lost+1, counted(t, n.direct, tag+"n"))
			})
		}
	}
}

// trimGuarded lets requireOutcome check an error whose message begins with the guarded file.
func trimGuarded(t testing.TB, err error) error {
	t.Helper()
	var e *lua.Error
	require.ErrorAs(t, err, &e)
	require.True(t, e.Guarded)
	plain := *e
	plain.Guarded = false
	return &plain
}

// The first attempt ran, its reply was lost, and then the lease was lost: "fenced" alone would mean that nothing is
// written.
func TestLeaseLostBetweenTwoAttempts(t *testing.T) {
	t.Parallel()
	client, ctx := luatomictest.Client(t), within(t, 20*time.Second)
	tag := "{" + luatomictest.Namespace(t) + "}"
	s := withGuard(newScript("once", "-- "+tag+"\nredis.call('DEL', '"+tag+
		"lease')\nreturn redis.call('INCR', KEYS[1])", lua.RetrySafe))
	preload(t, client, s)
	for _, form := range []string{"run", "batch"} {
		n, lease := overSingle(t), takeLock(t, client, tag+"lease")
		n.drop(1, guardedEvalsha(s))
		guard, key := lua.Guard(n.client, lease), tag+form
		var err error
		if form == "run" {
			_, err = runInt(ctx, guard, s, key)
		} else {
			b := lua.NewBatch(guard)
			f := lua.Queue(b, newCall(s, key), decodeInt)
			require.ErrorIs(t, b.Exec(ctx), lua.ErrFenced)
			_, err = f.Get()
		}
		e := requireFenced(t, err, lua.ErrOutcomeUnknown)
		require.Equal(t, 2, e.Tries, "final")
		require.Equal(t, 1, counted(t, client, key), "it is written")
	}
}

// A guarded call that the server refuses before the script is retried like any other, and FENCED ends the retries.
func TestFencedIsFinal(t *testing.T) {
	t.Parallel()
	for name, retry := range retries {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := withGuard(newScript("count", countSource, retry))
			fake := startFake(t, func(_ string, nth int) string {
				return []string{"-TRYAGAIN keys are moving", "-FENCED the lease is over", ":1"}[min(nth, 3)-1]
			})
			_, err := runInt(within(t, 10*time.Second), lua.Guard(fake.client(t), held{"l", "tok"}), s, "l")
			e := requireFenced(t, err, lua.ErrRefused)
			require.Equal(t, 2, e.Tries)
			require.Equal(t, 2, fake.count("EVALSHA"))
		})
	}
}

func TestGuardedScriptIsLoadedNotEvaluated(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	client, ctx := server.Client(), within(t, 10*time.Second)
	s := withGuard(newScript("count", countSource, lua.RetryNever))
	guard := lua.Guard(client, takeLock(t, client, "{n}lease"))
	for i := range 3 {
		got, err := runInt(ctx, guard, s, "{n}")
		require.NoError(t, err)
		require.EqualValues(t, i+1, got)
		got, err = runInt(ctx, client, s, "{n}plain")
		require.NoError(t, err)
		require.EqualValues(t, i+1, got)
	}
	require.Zero(t, commandCalls(t, client, "eval"))
	require.EqualValues(t, 2, commandCalls(t, client, "script|load"), "each text by itself, when it is missing")

	require.NoError(t, client.ScriptFlush(ctx).Err())
	b := lua.NewBatch(guard)
	for range 10 {
		lua.Queue(b, newCall(s, "{n}"), decodeInt)
	}
	require.NoError(t, b.Exec(ctx))
	require.Equal(t, 13, counted(t, client, "{n}"))
}

func TestGuardedEvalWhereScriptLoadIsRefused(t *testing.T) {
	t.Parallel()
	_, client := restricted(t, "-script")
	ctx, s := within(t, 10*time.Second), withGuard(newScript("count", countSource, lua.RetryNever))
	lease := takeLock(t, client, "{n}lease")
	got, err := runInt(ctx, lua.Guard(client, lease), s, "{n}")
	require.NoError(t, err)
	require.EqualValues(t, 1, got)
	_, err = runInt(ctx, lua.Guard(client, held{lease.key, "other"}), s, "{n}")
	requireFenced(t, err, lua.ErrRefused)
	require.EqualValues(t, 1, commandCalls(t, client, "eval"), "EVAL has taught the server the guarded text")
}

func testGuardCluster(t *testing.T, cluster *luatomictest.Cluster) {
	client, ctx := clusterClient(t, cluster, nil), within(t, 20*time.Second)
	s := withGuard(coldCount(t, lua.RetryNever))
	keyless := withGuard(newScript("keyless", "-- "+luatomictest.Namespace(t)+"\nreturn #KEYS", lua.RetryNever))
	for node := range 3 {
		tag, _ := keyIn(t, cluster, node)
		other, _ := keyIn(t, cluster, (node+1)%3)
		lease := takeLock(t, client, tag+"lease")
		guard := lua.Guard(client, lease)
		got, err := runInt(ctx, guard, s, tag+"n")
		require.NoError(t, err)
		require.EqualValues(t, 1, got)
		got, err = runInt(ctx, guard, keyless)
		require.NoError(t, err, "the lease's key leads to its node")
		require.Zero(t, got)

		_, err = runInt(ctx, guard, s, other+"n")
		require.ErrorIs(t, err, lua.ErrCrossSlot)
		require.ErrorContains(t, err, "give the lease a key with the data's {tag}")
		b := lua.NewBatch(guard)
		far, near := lua.Queue(b, newCall(s, other+"n"), decodeInt), lua.Queue(b, newCall(s, tag+"n"), decodeInt)
		require.ErrorIs(t, b.Exec(ctx), lua.ErrCrossSlot)
		_, err = far.Get()
		require.ErrorIs(t, err, lua.ErrCrossSlot)
		got, err = near.Get()
		require.NoError(t, err)
		require.EqualValues(t, 2, got)
		require.Zero(t, counted(t, client, other+"n"))

		_, err = runInt(ctx, lua.Guard(client, held{lease.key, "other"}), s, tag+"n")
		requireFenced(t, err, lua.ErrRefused)
	}
	preload(t, lua.Guard(client, held{"k", "t"}), s)
	for _, node := range cluster.Nodes() {
		known, err := node.Client().ScriptExists(ctx, s.SHA, s.Guarded.SHA).Result()
		require.NoError(t, err)
		require.Equal(t, []bool{true, true}, known)
	}
}
