package lua_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

func TestGuardedBatch(t *testing.T) {
	t.Parallel()
	client, ctx := luatomictest.Client(t), within(t, 20*time.Second)
	tag := "{" + luatomictest.Namespace(t) + "}"
	lease := takeLock(t, client, tag+"lease")
	s, plain := withGuard(coldCount(t, lua.RetryNever)), coldCount(t, lua.RetryNever)
	b := lua.NewBatch(lua.Guard(client, lease))
	for _, state := range []string{"cold", "warm"} {
		var futures []*lua.Future[int64]
		for range 100 {
			futures = append(futures, lua.Queue(b, newCall(s, tag+"n"), decodeInt))
		}
		without := lua.Queue(b, newCall(plain, tag+"plain"), decodeInt)
		require.ErrorIs(t, b.Exec(ctx), lua.ErrNoGuard)
		for _, f := range futures {
			_, err := f.Get()
			require.NoError(t, err, state)
		}
		_, err := without.Get()
		require.EqualError(t, err,
			"count: no guard: add ---@guard guard.lua to the header of count.lua and run go generate")
	}
	require.Equal(t, 200, counted(t, client, tag+"n"))
	require.Zero(t, counted(t, client, tag+"plain"))

	require.NoError(t, client.Del(ctx, lease.key).Err())
	f := lua.Queue(b, newCall(s, tag+"n"), decodeInt)
	require.ErrorIs(t, b.Exec(ctx), lua.ErrFenced)
	_, err := f.Get()
	requireFenced(t, err, lua.ErrRefused)
	require.Equal(t, 200, counted(t, client, tag+"n"))
}

// A client that a program puts around that of Guard has its methods alone, and not its guard.
func TestNoScriptRunsWhereTheGuardIsHidden(t *testing.T) {
	t.Parallel()
	guard := lua.Guard(untouched(t), held{"{a}lease", "tok"})
	s := withGuard(newScript("count", countSource, lua.RetrySafe))
	hidden := struct{ redis.UniversalClient }{guard}
	_, err := runInt(within(t, 10*time.Second), hidden, s, "{a}n")
	requireOutcome(t, err, lua.ErrNotExecuted)
	require.EqualError(t, err,
		"not executed: another client hides the guard: pass that client to Guard instead (count)")
	b := lua.NewBatch(hidden)
	f := lua.Queue(b, newCall(s, "{a}n"), decodeInt)
	require.Error(t, b.Exec(within(t, 10*time.Second)))
	_, again := f.Get()
	require.EqualError(t, again, err.Error())

	for _, pipe := range []func() (*redis.AutoPipeliner, error){guard.AutoPipeline, guard.AsyncAutoPipeline,
		func() (*redis.AutoPipeliner, error) { return guard.AutoPipelineWithOptions(nil) },
		func() (*redis.AutoPipeliner, error) { return guard.AsyncAutoPipelineWithOptions(nil) }} {
		_, err = pipe()
		require.EqualError(t, err, "an AutoPipeliner hides the guard: pass it to Guard instead")
	}
}

// Plain commands pass a guard, also in a pipeline.
func TestPlainCommandsPassAGuard(t *testing.T) {
	t.Parallel()
	guard, key := lua.Guard(luatomictest.Client(t), held{"lease", "tok"}), luatomictest.Namespace(t)
	pipe := guard.Pipeline()
	pipe.Set(t.Context(), key, "x", time.Minute)
	require.NoError(t, pipe.Process(t.Context(), redis.NewStatusCmd(t.Context(), "ping")))
	_, err := pipe.Exec(t.Context())
	require.NoError(t, err)
	require.Equal(t, "x", guard.Get(t.Context(), key).Val())
}

// An error of the script is distinguished from one of the guard, and its line is one of the script's file.
func TestErrorsBehindTheGuard(t *testing.T) {
	t.Parallel()
	client, ctx := luatomictest.Client(t), within(t, 20*time.Second)
	tag := "{" + luatomictest.Namespace(t) + "}"
	guard := lua.Guard(client, takeLock(t, client, tag+"lease"))

	s := withGuard(newScript("refuse", "return redis.error_reply('FULL of it')", lua.RetrySafe))
	_, err := runInt(ctx, guard, s, tag+"n")
	require.ErrorIs(t, err, lua.ErrRefused)
	require.ErrorIs(t, err, &lua.Code{Script: "refuse", Name: "FULL"})
	require.NotErrorIs(t, err, lua.ErrFenced)

	s = withGuard(newScript("raise", "\nerror({err = 'FENCED by hand'})", lua.RetrySafe))
	_, err = runInt(ctx, guard, s, tag+"n")
	require.ErrorIs(t, err, lua.ErrExecutedInPart)
	require.NotErrorIs(t, err, lua.ErrFenced)

	s = withGuard(newScript("fail", "\nreturn nil + 1", lua.RetrySafe))
	_, err = runInt(ctx, guard, s, tag+"n")
	require.ErrorIs(t, err, lua.ErrExecutedInPart)
	require.ErrorContains(t, err, "(guarded fail:2)", "the line of the script's own file")

	broken := "local lease, token = table.remove(KEYS), table.remove(ARGV)\nlocal x = nil + 1\n"
	s.Guarded = lua.Text{SHA: sha(broken + *s.Source), Guard: &broken, Source: s.Source}
	_, err = runInt(ctx, guard, s, tag+"n")
	require.ErrorIs(t, err, lua.ErrExecutedInPart)
	require.ErrorContains(t, err, "(guarded fail)", "a line of the guard is none of the script")
	require.ErrorContains(t, err, "user_script:2")

	s = newScript("plain", "return redis.error_reply('FENCED by the script')", lua.RetrySafe)
	_, err = runInt(ctx, client, s, tag+"n")
	require.ErrorIs(t, err, lua.ErrRefused)
	require.NotErrorIs(t, err, lua.ErrFenced, "only a guard gives ErrFenced")

	s = withGuard(newScript("push", "return redis.call('RPUSH', KEYS[1], 'x')", lua.RetrySafe))
	s.Keys = []lua.Key{{Name: "list", Type: "list", Variadic: true}}
	_, err = runInt(ctx, guard, s, tag+"lease")
	require.ErrorIs(t, err, lua.ErrWrongType)
	require.ErrorContains(t, err, fmt.Sprintf("key %q (list) holds a string", tag+"lease"))
	require.NoError(t, client.HSet(ctx, tag+"hash", "a", "b").Err())
	_, err = runInt(ctx, guard, withGuard(newScript("get", "return redis.call('GET', '"+tag+"hash')", lua.RetrySafe)),
		tag+"n")
	require.ErrorIs(t, err, lua.ErrWrongType)
	require.NotContains(t, err.Error(), "lease", "the lease is no list, and need not be")
}

func TestGuardedReadOnlyScript(t *testing.T) {
	t.Parallel()
	client, ctx := luatomictest.Client(t), within(t, 20*time.Second)
	tag := "{" + luatomictest.Namespace(t) + "}"
	s := withGuard(newScript("read", "-- "+tag+"\nreturn redis.call('EXISTS', KEYS[1])", lua.RetrySafe))
	s.ReadOnly = true
	lease := takeLock(t, client, tag+"lease")
	got, err := runInt(ctx, lua.Guard(client, lease), s, tag+"n")
	require.NoError(t, err)
	require.Zero(t, got)
	_, err = runInt(ctx, lua.Guard(client, held{lease.key, "other"}), s, tag+"n")
	requireFenced(t, err, lua.ErrRefused)
}

// Not parallel: AllocsPerRun counts those of the whole process.
func TestAllocationsOfAGuardedCall(t *testing.T) {
	client := luatomictest.Client(t)
	tag := "{" + luatomictest.Namespace(t) + "}"
	s := withGuard(newScript("keep", "return redis.call('SETNX', KEYS[1], 'x')", lua.RetrySafe))
	guard := lua.Guard(client, takeLock(t, client, tag+"lease"))
	call := func() {
		if _, err := runInt(t.Context(), guard, s, tag+"n"); err != nil {
			t.Error(err)
		}
	}
	call()
	n := testing.AllocsPerRun(200, call)
	t.Logf("%v allocations", n)
	require.LessOrEqual(t, n, 10.0, "as many as without a guard, and three")
}

// A queue named like the lock is in its slot: made with the guarded client, it accepts work from the holder only.
func TestGuardedQueue(t *testing.T) {
	t.Parallel()
	client, ctx := luatomictest.Client(t), within(t, 20*time.Second)
	name := luatomictest.Namespace(t)
	lease := takeLock(t, client, "lock:{"+name+"}")
	plain, err := queue.New(client, name, nil)
	require.NoError(t, err)
	ours, err := queue.New(lua.Guard(client, lease), name, nil)
	require.NoError(t, err)

	_, err = ours.Push(ctx, queue.Job{ID: "one", Body: []byte("x")}, queue.Job{ID: "two", Delay: time.Hour})
	require.NoError(t, err)
	stats, err := plain.Stats(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 1, stats.Ready)
	require.EqualValues(t, 1, stats.Scheduled)
	_, err = ours.Stats(ctx)
	require.ErrorIs(t, err, lua.ErrNoGuard)

	// The holder pauses; the lease expires, and another process acquires the lock.
	require.NoError(t, client.Set(ctx, lease.key, lockRecord("other"), time.Minute).Err())
	_, err = ours.Push(ctx, queue.Job{ID: "late"})
	requireFenced(t, err, lua.ErrRefused)
	_, err = ours.Cancel(ctx, "two")
	requireFenced(t, err, lua.ErrRefused)
	_, err = plain.Cancel(ctx, "two")
	require.NoError(t, err, "who is not bound to a lease needs none")
	elsewhere, err := queue.New(lua.Guard(client, lease), name+"-2", nil)
	require.NoError(t, err)
	_, err = elsewhere.Push(ctx, queue.Job{ID: "one"})
	require.ErrorIs(t, err, lua.ErrCrossSlot)
}

// Every script with @guard has a variant that passes while the lease is held, and loads under its digest.
func TestMarkedScriptsAreLoaded(t *testing.T) {
	t.Parallel()
	client, ctx := luatomictest.Client(t), within(t, 20*time.Second)
	marked := []*lua.Script{
		&queuescript.PushScript, &queuescript.CancelScript, &queuescript.RescheduleScript, &queuescript.ControlScript,
		&queuescript.RequeueScript,
		&queuescript.TrimScript, &queuescript.AckScript, &queuescript.NackScript, &queuescript.PromoteScript,
	}
	preload(t, lua.Guard(client, held{"k", "t"}), marked...)
	for _, s := range marked {
		require.Same(t, s.Source, s.Guarded.Source)
		require.Equal(t, *queuescript.AckScript.Guarded.Guard+*s.Source, s.Guarded.String())
		known, err := client.ScriptExists(ctx, s.SHA, s.Guarded.SHA).Result()
		require.NoError(t, err)
		require.Equal(t, []bool{true, true}, known, s.Name)
	}
}

// The guard reads the records of the lock's own scripts: held, extended, released, forced.
func TestGuardReadsTheLocksOfTheRoot(t *testing.T) {
	t.Parallel()
	client, ctx := luatomictest.Client(t), within(t, 20*time.Second)
	ns := luatomictest.Namespace(t)
	locks := lock.New(client, &lock.Options{Note: "a note / with 1 2 3"})
	t.Cleanup(func() { require.NoError(t, locks.Close()) })
	limit := int64(0)
	set := func(l *lock.Lease) error {
		limit++
		p := queuescript.ControlParams{Control: "{" + ns + "}c", Wake: "{" + ns + "}w", Limit: limit}
		p.Receipt = fmt.Sprintf("{%s}i:%d", ns, limit)
		_, err := queuescript.Control(ctx, lua.Guard(client, l), p)
		return err
	}
	lease, err := locks.Try(ctx, ns)
	require.NoError(t, err)
	require.NoError(t, set(lease))
	require.NoError(t, lease.Extend(ctx))
	require.NoError(t, set(lease))
	require.NoError(t, lease.Release(ctx))
	requireFenced(t, set(lease), lua.ErrRefused)

	lease, err = locks.Try(ctx, ns)
	require.NoError(t, err)
	require.NoError(t, set(lease))
	other := lock.New(client, nil)
	t.Cleanup(func() { require.NoError(t, other.Close()) })
	stolen, err := other.Steal(ctx, ns)
	require.NoError(t, err)
	requireFenced(t, set(lease), lua.ErrRefused)
	require.NoError(t, set(stolen))
}
