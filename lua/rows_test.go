package lua_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// claimMany gives each key to the first token and returns the holder: safe to repeat. Each test has its own digest.
func claimMany(t testing.TB, width int) *lua.Script {
	body := `local out = {}
for row, key in ipairs(KEYS) do
  local token = ARGV[row]
  local holder = redis.call('SET', key, token, 'NX', 'GET') or token
  out[#out + 1] = holder
  WIDER
end
return out`
	wider := ""
	if width == 2 {
		wider = "out[#out + 1] = #KEYS"
	}
	s := newScript("claim", "-- "+luatomictest.Namespace(t)+"\n"+strings.Replace(body, "WIDER", wider, 1),
		lua.RetrySafe)
	s.Merge = &lua.Merge{Max: 64, Width: width, Tuple: width > 1}
	s.Keys = []lua.Key{{Name: "key", Type: "string"}}
	return s
}

func claim(s *lua.Script, key, token string) *lua.Call {
	c := lua.NewCall(s, 1, 1)
	c.Key("key", key)
	c.EndKeys()
	c.String(&token)
	return c
}

// row is the reply of a claim of two values.
type row struct {
	holder string
	rows   int64
}

func decodeRow(r *lua.Reply) row {
	r.Tuple(2)
	return row{r.String("holder"), r.Int("rows")}
}

func TestRowsOfABatchAreOneCommand(t *testing.T) {
	t.Parallel()
	client, ns, s := luatomictest.Client(t), luatomictest.Namespace(t), claimMany(t, 2)
	for _, state := range []string{"cold", "warm"} {
		b := lua.NewBatch(client)
		futures := make([]*lua.Future[row], 100)
		for i := range futures {
			futures[i] = lua.Queue(b, claim(s, fmt.Sprint(ns, i), fmt.Sprint(i)), decodeRow)
		}
		require.NoError(t, b.Exec(within(t, 10*time.Second)))
		for i, f := range futures {
			got, err := f.Get()
			require.NoError(t, err)
			require.Equal(t, fmt.Sprint(i), got.holder, "each row has its own reply")
			want := int64(1) // with SCRIPT LOAD each call is a command
			if state == "warm" {
				want = map[bool]int64{true: 64, false: 36}[i < 64]
			}
			require.Equal(t, want, got.rows, state)
		}
	}
}

// The order of a batch holds: only neighbours share a command.
func TestRowsKeepTheOrderOfABatch(t *testing.T) {
	t.Parallel()
	client, key, s := luatomictest.Client(t), luatomictest.Namespace(t), claimMany(t, 1)
	free := newScript("free", "return redis.call('DEL', KEYS[1])", lua.RetrySafe)
	preload(t, client, s, free)
	b := lua.NewBatch(client)
	one := lua.Queue(b, claim(s, key, "one"), decodeText)
	freed := lua.Queue(b, newCall(free, key), decodeInt)
	two := lua.Queue(b, claim(s, key, "two"), decodeText)
	require.NoError(t, b.Exec(within(t, 10*time.Second)))
	for want, f := range map[string]*lua.Future[string]{"one": one, "two": two} {
		got, err := f.Get()
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	n, err := freed.Get()
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
}

func TestARowOfAWrongTypeHarmsNoOther(t *testing.T) {
	t.Parallel()
	client, ns, s := luatomictest.Client(t), luatomictest.Namespace(t), claimMany(t, 1)
	preload(t, client, s)
	bad := fmt.Sprint(ns, 40)
	require.NoError(t, client.RPush(t.Context(), bad, "a list").Err())
	b := lua.NewBatch(client)
	futures := make([]*lua.Future[string], 64)
	for i := range futures {
		futures[i] = lua.Queue(b, claim(s, fmt.Sprint(ns, i), fmt.Sprint(i)), decodeText)
	}
	require.ErrorContains(t, b.Exec(within(t, 10*time.Second)), "1 of 64 calls failed")
	for i, f := range futures {
		got, err := f.Get()
		if i == 40 {
			e := requireOutcome(t, err, lua.ErrExecutedInPart)
			require.ErrorIs(t, err, lua.ErrWrongType)
			require.Contains(t, e.Detail, bad)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint(i), got)
	}
}

func TestALostReplyOfRowsIsRepeatedRowByRow(t *testing.T) {
	t.Parallel()
	n, ns, s := overSingle(t), luatomictest.Namespace(t), claimMany(t, 1)
	preload(t, n.direct, s)
	n.drop(2, evalsha(s))
	b := lua.NewBatch(n.client)
	futures := make([]*lua.Future[string], 10)
	for i := range futures {
		futures[i] = lua.Queue(b, claim(s, fmt.Sprint(ns, i), fmt.Sprint(i)), decodeText)
	}
	require.NoError(t, b.Exec(within(t, 20*time.Second)))
	for i, f := range futures {
		got, err := f.Get()
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint(i), got)
	}
}

// Rows of a script that must not run twice are sent again only where nothing was written.
func TestRowsThatMustNotRunTwiceAreNotSentAgain(t *testing.T) {
	t.Parallel()
	n, ns, s := overSingle(t), luatomictest.Namespace(t), claimMany(t, 1)
	s.Retry, s.WritesAfter = lua.RetryNever, 1
	preload(t, n.direct, s)
	futures := func() (all []*lua.Future[string]) {
		b := lua.NewBatch(n.client)
		for i := range 10 {
			all = append(all, lua.Queue(b, claim(s, fmt.Sprint(ns, i), fmt.Sprint(i)), decodeText))
		}
		require.Error(t, b.Exec(within(t, 20*time.Second)))
		return all
	}
	n.drop(1, evalsha(s))
	for _, f := range futures() {
		_, err := f.Get()
		requireOutcome(t, err, lua.ErrOutcomeUnknown)
	}
	require.NoError(t, n.direct.Del(t.Context(), fmt.Sprint(ns, 4)).Err())
	require.NoError(t, n.direct.RPush(t.Context(), fmt.Sprint(ns, 4), "a list").Err())
	for i, f := range futures() {
		_, err := f.Get()
		requireOutcome(t, err, lua.ErrExecutedInPart)
		require.ErrorIs(t, err, lua.ErrWrongType, i)
	}
	s.WritesAfter = 5 // as if the script had read them all first
	for i, f := range futures() {
		got, err := f.Get()
		if i == 4 {
			requireOutcome(t, err, lua.ErrNotExecuted)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint(i), got)
	}
}

// go-redis gives every command of a broken pipeline the error of its connection, also those that have their reply.
func TestRowsThatAreAnsweredBeforeTheCutHaveTheirReplies(t *testing.T) {
	t.Parallel()
	server := startFake(t, func(_ string, nth int) string {
		if nth == 2 {
			return ""
		}
		return "*2\r\n$3\r\none\r\n$3\r\ntwo"
	})
	s := claimMany(t, 1)
	s.Merge.Max = 2
	b := lua.NewBatch(server.client(t))
	futures := make([]*lua.Future[string], 4)
	for i := range futures {
		futures[i] = lua.Queue(b, claim(s, fmt.Sprint("{k}", i), fmt.Sprint(i)), decodeText)
	}
	require.NoError(t, b.Exec(within(t, 20*time.Second)))
	for i, f := range futures {
		got, err := f.Get()
		require.NoError(t, err)
		require.Equal(t, []string{"one", "two"}[i%2], got)
	}
	require.Equal(t, 3, server.count("EVALSHA"), "what has its reply is not sent again")
}

func TestRowsOnAFullServerAreNotExecuted(t *testing.T) {
	t.Parallel()
	server, s := luatomictest.StartServer(t), claimMany(t, 1)
	client := server.Client()
	preload(t, client, s)
	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", "1").Err())
	b := lua.NewBatch(client)
	futures := make([]*lua.Future[string], 5)
	for i := range futures {
		futures[i] = lua.Queue(b, claim(s, fmt.Sprint("k", i), "x"), decodeText)
	}
	require.Error(t, b.Exec(within(t, 10*time.Second)))
	for _, f := range futures {
		_, err := f.Get()
		require.Equal(t, "OOM", requireOutcome(t, err, lua.ErrNotExecuted).Code)
	}
}

func TestAReplyWithTooFewRowsIsRefused(t *testing.T) {
	t.Parallel()
	client, ns := luatomictest.Client(t), luatomictest.Namespace(t)
	s := newScript("short", "-- "+ns+"\nreturn {'one'}", lua.RetrySafe)
	s.Merge = &lua.Merge{Max: 64, Width: 1}
	preload(t, client, s)
	b := lua.NewBatch(client)
	one, two := lua.Queue(b, newCall(s, ns), decodeText), lua.Queue(b, newCall(s, ns), decodeText)
	require.NoError(t, b.Exec(within(t, 10*time.Second)))
	for _, f := range []*lua.Future[string]{one, two} {
		_, err := f.Get()
		require.ErrorIs(t, err, lua.ErrBadReply, "no row gets the reply of another")
	}
}

// hammer has so many callers claim new keys for a while, and returns the number of claims.
func hammer(t *testing.T, client lua.Client, s *lua.Script, callers int, while time.Duration,
	key func(n int64) string) int64 {
	t.Helper()
	var n atomic.Int64
	var wg sync.WaitGroup
	ctx := within(t, time.Minute)
	for range callers {
		wg.Go(func() {
			for end := time.Now().Add(while); time.Now().Before(end) && !t.Failed(); {
				i := n.Add(1)
				token := fmt.Sprint(i)
				got, err := lua.Run(ctx, client, claim(s, key(i), token), decodeText)
				if err != nil || got != token {
					t.Errorf("claim %d: %q, %v", i, got, err)
				}
			}
		})
	}
	wg.Wait()
	return n.Load()
}

func evalshas(t *testing.T, c redis.UniversalClient) int64 {
	t.Helper()
	text, err := c.Info(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	var calls int64
	for line := range strings.Lines(text) {
		if _, after, ok := strings.Cut(line, "cmdstat_evalsha:calls="); ok {
			_, err := fmt.Sscan(after[:strings.IndexByte(after, ',')], &calls)
			require.NoError(t, err)
		}
	}
	return calls
}

func TestCallersShareCommands(t *testing.T) {
	t.Parallel()
	server, s := luatomictest.StartServer(t), claimMany(t, 1)
	client := server.Client()
	preload(t, client, s)
	n := hammer(t, client, s, 256, time.Second/2, func(n int64) string { return fmt.Sprint("k", n) })
	require.Less(t, 4*evalshas(t, client), n, "%d claims", n)
	require.EqualValues(t, n, client.DBSize(t.Context()).Val())
}

func TestDirectSendsEachCallByItself(t *testing.T) {
	t.Parallel()
	server, s := luatomictest.StartServer(t), claimMany(t, 1)
	client := lua.Direct(server.Client())
	preload(t, client, s)
	n := hammer(t, client, s, 64, time.Second/4, func(n int64) string { return fmt.Sprint("k", n) })
	require.Equal(t, n, evalshas(t, client))
}

func TestSharedCallsSurviveScriptFlush(t *testing.T) {
	t.Parallel()
	server, s := luatomictest.StartServer(t), claimMany(t, 1)
	client := server.Client()
	ctx, stop := context.WithCancel(t.Context())
	var flushing sync.WaitGroup
	flushing.Go(func() {
		admin := server.Client()
		for tick := time.NewTicker(time.Millisecond); ctx.Err() == nil; <-tick.C {
			_ = admin.ScriptFlush(ctx).Err()
		}
	})
	n := hammer(t, client, s, 64, time.Second, func(n int64) string { return fmt.Sprint("k", n) })
	stop()
	flushing.Wait()
	require.EqualValues(t, n, client.DBSize(t.Context()).Val())
}

func TestSharedCallsOnAClusterFollowAMovingSlot(t *testing.T) {
	t.Parallel()
	ctx, cluster, s := t.Context(), luatomictest.StartCluster(t), claimMany(t, 1)
	client := cluster.Client()
	preload(t, client, s)
	done := make(chan int64)
	go func() {
		done <- hammer(t, client, s, 64, 2*time.Second, func(n int64) string {
			return fmt.Sprintf("{tag%d}%d", n%5, n)
		})
	}()
	slot, err := cluster.Slot(ctx, "{tag1}")
	require.NoError(t, err)
	for range 3 {
		from, err := cluster.Owner(ctx, slot)
		require.NoError(t, err)
		m, err := cluster.MigrateSlot(ctx, slot, from, (from+1)%3)
		require.NoError(t, err)
		time.Sleep(100 * time.Millisecond) // calls go on meanwhile; nothing waits for them
		require.NoError(t, m.Finish(ctx))
	}
	require.Positive(t, <-done)
}

// One node of a cluster refuses rows of several slots: each row is then sent by itself, and later ones by slot.
func TestRowsOfSeveralSlotsOnOneNode(t *testing.T) {
	t.Parallel()
	cluster, s := luatomictest.StartCluster(t), claimMany(t, 1)
	client := cluster.Nodes()[0].Client()
	preload(t, client, s)
	owned := make([]string, 0, 20)
	for i := 0; len(owned) < cap(owned); i++ {
		key := fmt.Sprint("k", i)
		slot, err := cluster.Slot(t.Context(), key)
		require.NoError(t, err)
		owner, err := cluster.Owner(t.Context(), slot)
		require.NoError(t, err)
		if owner == 0 {
			owned = append(owned, key)
		}
	}
	require.Positive(t, hammer(t, client, s, 64, time.Second/2, func(n int64) string {
		key := owned[n%int64(len(owned))]
		return fmt.Sprintf("{%s}%d", key, n)
	}))
}
