package redisinaction_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/redisinaction"
	"github.com/luatomic/luatomic/compat/redisinaction/internal/script"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// A scriptCall is one call of a script on prepared data; p is the prefix of its keys.
type scriptCall struct {
	script *lua.Script
	run    func(ctx context.Context, c lua.Client, p string) (any, error)
	// prepare stores the data for the call.
	prepare func(ctx context.Context, c redis.Cmdable, p string) error
	// keys are the keys of the call, with their types.
	keys map[string]string
	// repeat is the reply to a retry, if it differs.
	repeat any
	// tolerates are the keys whose type does not fail the whole call.
	tolerates string
}

func scriptCalls() []scriptCall {
	nothing := func(context.Context, redis.Cmdable, string) error { return nil }
	held := func(ctx context.Context, c redis.Cmdable, p string) error { return c.Set(ctx, p+"l", "me", 0).Err() }
	lock := map[string]string{"l": "string"}
	return []scriptCall{
		{script: &script.ExecuteLaterScript, keys: map[string]string{"d": "zset", "q": "list", "s": "string"},
			run: func(ctx context.Context, c lua.Client, p string) (any, error) {
				r, err := script.ExecuteLater(ctx, c, script.ExecuteLaterParams{Delayed: p + "d", Queue: p + "q",
					Receipt: p + "s", Keep: time.Minute,
					Items: []script.ExecuteLaterItem{{Delay: 0, Body: []byte("a")}, {Delay: 1e9, Body: []byte("b")},
						{Delay: -1, Body: []byte("c")}, {Delay: 2e9, Body: []byte("e")}}})
				return []int64{r.Ready, r.Scheduled}, err
			},
			prepare: func(ctx context.Context, c redis.Cmdable, p string) error {
				return errors.Join(c.RPush(ctx, p+"q", "old").Err(),
					c.ZAdd(ctx, p+"d", redis.Z{Score: 5, Member: "old"}).Err())
			}},
		{script: &script.ExecuteLaterScript, keys: map[string]string{"d": "zset", "q": "list", "s": "string"},
			prepare: nothing,
			run: func(ctx context.Context, c lua.Client, p string) (any, error) {
				r, err := script.ExecuteLater(ctx, c, script.ExecuteLaterParams{Delayed: p + "d", Queue: p + "q",
					Receipt: p + "s", Keep: time.Minute,
					Items: []script.ExecuteLaterItem{{Delay: 0, Body: []byte("a")}, {Delay: 1e9, Body: []byte("b")}}})
				return []int64{r.Ready, r.Scheduled}, err
			}},
		{script: &script.DueScript, keys: map[string]string{"d": "zset"},
			run: func(ctx context.Context, c lua.Client, p string) (any, error) {
				r, err := script.Due(ctx, c, script.DueParams{Delayed: p + "d", Skip: 1, Max: 2, Bytes: 100})
				r.Now = 0
				return r, err
			},
			prepare: func(ctx context.Context, c redis.Cmdable, p string) error {
				return c.ZAdd(ctx, p+"d",
					redis.Z{Score: 1, Member: "a"}, redis.Z{Score: 2.5, Member: "b"}, redis.Z{Score: 3, Member: "c"},
					redis.Z{Score: 4, Member: "d"}, redis.Z{Score: 4e9, Member: "e"},
					redis.Z{Score: 4e12, Member: "f"}).Err()
			}},
		{script: &script.MoveDueScript, keys: map[string]string{"d": "zset", "q1": "list", "q2": "list"},
			repeat: []int64{0, 0}, tolerates: "q1 q2",
			run: func(ctx context.Context, c lua.Client, p string) (any, error) {
				return script.MoveDue(ctx, c, script.MoveDueParams{Delayed: p + "d",
					Lists: []string{p + "q1", p + "q2"},
					Items: []script.MoveDueItem{
						{To: 1, Score: "1", Body: []byte("a")}, {To: 2, Score: "2.5", Body: []byte("b")},
						{To: 1, Score: "3", Body: []byte("c")}, {To: 1, Score: "9", Body: []byte("put off")},
						{To: 2, Score: "1", Body: []byte("absent")}}})
			},
			prepare: func(ctx context.Context, c redis.Cmdable, p string) error {
				return errors.Join(c.RPush(ctx, p+"q1", "old").Err(),
					c.ZAdd(ctx, p+"d", redis.Z{Score: 1, Member: "a"}, redis.Z{Score: 2.5, Member: "b"},
						redis.Z{Score: 3, Member: "c"}, redis.Z{Score: 10, Member: "put off"}).Err())
			}},
		{script: &script.TakeScript, keys: map[string]string{"w": "list", "q1": "list", "q2": "list"}, repeat: "0 a",
			tolerates: "q1",
			run: func(ctx context.Context, c lua.Client, p string) (any, error) {
				r, err := script.Take(ctx, c, script.TakeParams{Working: p + "w", Queues: []string{p + "q1", p + "q2"}})
				got, _ := r.Get()
				return fmt.Sprint(got.From, " ", string(got.Body)), err
			},
			prepare: func(ctx context.Context, c redis.Cmdable, p string) error {
				return c.RPush(ctx, p+"q2", "a", "b").Err()
			}},
		{script: &script.QuarantineScript, keys: map[string]string{"w": "list", "m": "list"}, repeat: int64(0),
			run: func(ctx context.Context, c lua.Client, p string) (any, error) {
				return script.Quarantine(ctx, c, script.QuarantineParams{Working: p + "w", Malformed: p + "m",
					Body: []byte("a")})
			},
			prepare: func(ctx context.Context, c redis.Cmdable, p string) error {
				return c.RPush(ctx, p+"w", "a").Err()
			}},
		{script: &script.AcquireLockScript, keys: lock, prepare: nothing,
			run: func(ctx context.Context, c lua.Client, p string) (any, error) {
				return script.AcquireLock(ctx, c, script.AcquireLockParams{Lock: p + "l", Identifier: "me",
					TTL: time.Hour, Heal: time.Minute})
			}},
		{script: &script.AcquireLockScript, keys: lock, prepare: held,
			run: func(ctx context.Context, c lua.Client, p string) (any, error) {
				r, err := script.AcquireLock(ctx, c, script.AcquireLockParams{Lock: p + "l", Identifier: "you",
					TTL: time.Hour, Heal: time.Hour})
				r.Remaining /= 60_000
				return r, err
			}, repeat: script.AcquireLockResult{Remaining: 59}},
		{script: &script.ExtendLockScript, keys: lock, prepare: held,
			run: func(ctx context.Context, c lua.Client, p string) (any, error) {
				return script.ExtendLock(ctx, c, script.ExtendLockParams{Lock: p + "l", Identifier: "me",
					TTL: time.Hour})
			}},
		{script: &script.ExtendLockScript, keys: lock, prepare: held,
			run: func(ctx context.Context, c lua.Client, p string) (any, error) {
				return script.ExtendLock(ctx, c, script.ExtendLockParams{Lock: p + "l", Identifier: "me"})
			}},
		{script: &script.ReleaseLockScript, keys: lock, prepare: held, repeat: false,
			run: func(ctx context.Context, c lua.Client, p string) (any, error) {
				return script.ReleaseLock(ctx, c, script.ReleaseLockParams{Lock: p + "l", Identifier: "me"})
			}},
	}
}

// forEach runs a test for each call.
func forEach(t *testing.T, test func(t *testing.T, call scriptCall)) {
	t.Helper()
	seen := make(map[*lua.Script]bool)
	for i, call := range scriptCalls() {
		seen[call.script] = true
		t.Run(fmt.Sprint(call.script.Name, i), func(t *testing.T) {
			t.Parallel()
			test(t, call)
		})
	}
	for _, s := range redisinaction.Scripts() {
		require.True(t, seen[s], "%s has no call", s.Name)
	}
}

// contents returns the data of the call's keys, without times to live.
func (call *scriptCall) contents(ctx context.Context, t testing.TB, c *redis.Client, p string) map[string]any {
	t.Helper()
	out := make(map[string]any)
	for name := range call.keys {
		key := p + name
		switch c.Type(ctx, key).Val() {
		case "list":
			out[name] = c.LRange(ctx, key, 0, -1).Val()
		case "zset":
			out[name] = c.ZRange(ctx, key, 0, -1).Val()
		case "string":
			out[name] = c.Get(ctx, key).Val()
		case "hash":
			out[name] = c.HGetAll(ctx, key).Val()
		}
	}
	return out
}

// Each script returns its reply, and is sent again when the reply is lost, up to four times, without another effect.
func TestLostRepliesOfEveryScript(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, call scriptCall) {
		ctx, direct := bounded(t), luatomictest.Client(t)
		clean, faulty := luatomictest.Namespace(t)+":", luatomictest.Namespace(t)+":"
		require.NoError(t, call.prepare(ctx, direct, clean))
		want, err := call.run(ctx, direct, clean)
		require.NoError(t, err)
		_, c, proxy := proxied(t, faulty)
		for lost := range 5 {
			for key := range call.keys {
				require.NoError(t, direct.Del(ctx, faulty+key).Err())
			}
			require.NoError(t, call.prepare(ctx, direct, faulty))
			sent := lab.Sent(call.script)
			before := proxy.Executed(sent)
			proxy.Drop(lost, sent)
			got, err := call.run(ctx, c, faulty)
			require.NoError(t, err)
			require.Equal(t, lost+1, proxy.Executed(sent)-before)
			if lost > 0 && call.repeat != nil {
				require.Equal(t, call.repeat, got)
			} else {
				require.Equal(t, want, got)
			}
			a, b := call.contents(ctx, t, direct, clean), call.contents(ctx, t, direct, faulty)
			delete(a, "s") // the receipt holds the time
			delete(b, "s")
			require.Equal(t, a, b)
		}
	})
}

// The error names a key of another type, and nothing changes.
func TestWrongTypeOfEveryKey(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, call scriptCall) {
		ctx, c := bounded(t), luatomictest.Client(t)
		for key := range call.keys {
			if slices.Contains(strings.Fields(call.tolerates), key) {
				continue
			}
			p := luatomictest.Namespace(t) + ":"
			require.NoError(t, call.prepare(ctx, c, p))
			require.NoError(t, c.Del(ctx, p+key).Err())
			require.NoError(t, c.HSet(ctx, p+key, "f", "v").Err())
			before := call.contents(ctx, t, c, p)
			_, err := call.run(ctx, c, p)
			require.ErrorIs(t, err, lua.ErrWrongType, key)
			require.ErrorContains(t, err, p+key)
			require.Equal(t, before, call.contents(ctx, t, c, p), key)
		}
	})
}

// Scripts are loaded again whenever the server's cache was flushed.
func TestScriptFlushUnderLoad(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	r := luatomictest.StartServer(t).Client()
	c := redisinaction.New(r, nil)
	stop, flushed := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		defer func() { flushed <- n }()
		for {
			select {
			case <-stop:
				return
			default:
				if r.ScriptFlush(ctx).Err() == nil {
					n++
				}
			}
		}
	}()
	const n = 50
	for range n {
		_, err := c.ExecuteLater(ctx, "q", "n", nil, time.Microsecond)
		require.NoError(t, err)
		id, err := c.AcquireLock(ctx, "l", nil)
		require.NoError(t, err)
		require.NoError(t, c.ReleaseLock(ctx, "l", id))
	}
	moved := 0
	for moved < n {
		out, err := c.PollQueue(ctx)
		require.NoError(t, err)
		moved += out.Moved
	}
	close(stop)
	require.Positive(t, <-flushed)
	require.EqualValues(t, n, r.LLen(ctx, "queue:q").Val())
}

// A cluster refuses a script whose keys are in different slots, before it runs. A lock is one key. A prefix with a
// hash tag puts all keys into one slot.
func TestOnACluster(t *testing.T) {
	t.Parallel()
	ctx, r := bounded(t), luatomictest.StartCluster(t).Client()
	c := redisinaction.New(r, nil)
	_, err := c.ExecuteLater(ctx, "q", "n", nil, 0)
	require.ErrorContains(t, err, "CROSSSLOT")
	require.ErrorIs(t, err, lua.ErrNotExecuted)
	id, err := c.AcquireLock(ctx, "l", nil)
	require.NoError(t, err)
	require.NoError(t, c.ReleaseLock(ctx, "l", id))

	c = redisinaction.New(r, &redisinaction.Options{Prefix: "{app}:"})
	id, err = c.ExecuteLater(ctx, "q{other}", "n", nil, time.Microsecond)
	require.NoError(t, err)
	out, err := c.PollQueue(ctx)
	require.NoError(t, err)
	require.Equal(t, 1, out.Moved)
	w := newWorker(t, c, "w", nil, "empty", "q{other}")
	item, err := w.Take(ctx)
	require.NoError(t, err)
	require.Equal(t, id, item.ID)
	require.NoError(t, w.Done(ctx, item))
}
