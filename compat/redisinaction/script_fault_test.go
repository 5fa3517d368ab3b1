package redisinaction_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/redisinaction"
	"github.com/luatomic/luatomic/compat/redisinaction/internal/script"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
)

var contractLine = regexp.MustCompile(`(?m)^---@(?:contract +(\S+)|(readonly)\b)`)

// failing makes the n-th write of a script fail, by a prefix on its first line. The key p+"reached" shows that the
// write was reached.
func failing(source string, n int, p string) string {
	return fmt.Sprintf(`local redis = (function(real) `+
		`local n, writes = 0, {set=1,del=1,zadd=1,zrem=1,rpush=1,ltrim=1,lrem=1,lmove=1,pexpire=1} `+
		`local function faulty(f, raise) return function(c, ...) `+
		`if writes[string.lower(c)] then n = n + 1 if n == %d then real.call('SET', '%sreached', 1) `+
		`local e = {err = 'ERR failpoint ' .. c} if raise then error(e) end return e end end return f(c, ...) end end `+
		`return {call = faulty(real.call, true), pcall = faulty(real.pcall, false)} end)(redis) `, n, p) + source
}

// recorder keeps the arguments of a script and stops the call.
type recorder struct {
	redis.UniversalClient
	end  func()
	args []any
}

var errRecorded = errors.New("recorded")

func (r *recorder) Process(_ context.Context, cmd redis.Cmder) error {
	r.args = cmd.Args()
	r.end()
	cmd.SetErr(errRecorded)
	return errRecorded
}

// An error at any write leaves what the contract allows, and a retry completes it.
func TestFailpointsOfEveryScript(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, call scriptCall) {
		ctx, c := bounded(t), luatomictest.Client(t)
		found := contractLine.FindStringSubmatch(*call.script.Source)
		require.NotNil(t, found)
		var want map[string]any
		for n := 0; ; n++ {
			p := luatomictest.Namespace(t) + ":"
			require.NoError(t, call.prepare(ctx, c, p))
			before := call.contents(ctx, t, c, p)
			once, end := context.WithCancel(ctx)
			rec := &recorder{UniversalClient: c, end: end}
			_, err := call.run(once, rec, p)
			require.ErrorIs(t, err, errRecorded)
			args := append([]any{failing(lab.Text(c, call.script), n, p)}, rec.args[2:]...)
			_, err = c.Do(ctx, append([]any{"EVAL"}, args...)...).Result()
			if err == redis.Nil {
				err = nil
			}
			reached := c.Del(ctx, p+"reached").Val() == 1
			after := call.contents(ctx, t, c, p)
			switch {
			case n == 0:
				require.NoError(t, err)
				want = after
				delete(want, "s")
				continue
			case !reached:
				t.Logf("%s: %d failpoints", found[0], n-1)
				return
			case found[2] == "readonly":
				t.Fatal("a script that only reads has a write")
			case err == nil: // the script tolerates the failure
				require.NotEmpty(t, call.tolerates, call.script.Name)
			case found[1] == "all-or-nothing":
				require.ErrorContains(t, err, "failpoint")
				require.Equal(t, before, after, "failpoint %d", n)
			}
			requireNoneLost(t, before, after, n)
			_, err = call.run(ctx, c, p)
			require.NoError(t, err)
			again := call.contents(ctx, t, c, p)
			delete(again, "s")
			if found[1] == "all-or-nothing" {
				require.Equal(t, want, again, "failpoint %d", n)
			}
			requireNoneLost(t, want, again, n)
		}
	})
}

// requireNoneLost requires every item to be in one of the keys.
func requireNoneLost(t *testing.T, before, after map[string]any, n int) {
	t.Helper()
	all := fmt.Sprint(after)
	for key, v := range before {
		if items, ok := v.([]string); ok {
			for _, item := range items {
				require.Contains(t, all, item, "failpoint %d: of %s", n, key)
			}
		}
	}
}

// A user who may not delete the receipt, or not remove a task, adds none if a later write is refused: the next call
// under the receipt adds them all.
func TestWhatMayNotBeTakenBackIsNotAdded(t *testing.T) {
	t.Parallel()
	ctx, server := bounded(t), luatomictest.StartServer(t)
	r := server.Client()
	limited := server.Client(func(o *redis.Options) { o.Username, o.Password = "limited", "pw" })
	params := script.ExecuteLaterParams{Delayed: "d", Queue: "q", Receipt: "s", Keep: time.Hour,
		Items: []script.ExecuteLaterItem{{Delay: 1e9, Body: []byte("later")}, {Body: []byte("now")}}}
	for _, refused := range []string{"-del", "-zrem"} {
		require.NoError(t, r.FlushAll(ctx).Err())
		require.NoError(t, r.Do(ctx, "ACL", "SETUSER", "limited", "reset", "on", ">pw", "~*", "&*", "+@all",
			"-rpush", refused).Err())
		_, err := script.ExecuteLater(ctx, limited, params)
		require.Error(t, err, refused)
		require.Zero(t, r.Exists(ctx, "d", "q", "s").Val(), refused)
		added, err := script.ExecuteLater(ctx, r, params)
		require.NoError(t, err)
		require.Equal(t, []int64{1, 1}, []int64{added.Ready, added.Scheduled})
		require.Equal(t, []string{"now"}, r.LRange(ctx, "q", 0, -1).Val())
	}
}

// The receipt answers a retry: the tasks were added, even if they have been moved and taken since.
func TestExecuteLaterIsNotRepeated(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	_, r, prefix := own(t)
	var sent atomic.Int64
	c, _, proxy := proxied(t, prefix)
	direct := redisinaction.New(r, &redisinaction.Options{Prefix: prefix})
	_, err := c.ExecuteLater(ctx, "warm", "n", nil, 0)
	require.NoError(t, err)
	proxy.Drop(3, func(args []string) bool {
		if !luatomictest.Command("EVALSHA")(args) {
			return false
		}
		if sent.Add(1) > 1 { // the first run added it; it is moved and taken by now
			_, err := direct.PollQueue(ctx)
			require.NoError(t, err)
			r.Del(ctx, prefix+"queue:q")
		}
		return true
	})
	_, err = c.ExecuteLater(ctx, "q", "n", nil, time.Microsecond)
	require.NoError(t, err)
	_, err = direct.PollQueue(ctx)
	require.NoError(t, err)
	require.Zero(t, r.Exists(ctx, prefix+"queue:q", prefix+"delayed:").Val())
}
