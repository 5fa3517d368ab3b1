package lua_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// held is a lease of a test.
type held struct{ key, token string }

func (h held) GuardKey() string   { return h.key }
func (h held) GuardToken() string { return h.token }

// withGuard gives a script the guard of the locks and semaphores.
func withGuard(s *lua.Script) *lua.Script {
	guard := queuescript.AckScript.Guarded.Guard
	s.Guarded = lua.Text{SHA: sha(*guard + *s.Source), Guard: guard, Source: s.Source}
	return s
}

// guardedEvalsha matches for a proxy the requests that run a script behind its guard, by digest.
func guardedEvalsha(s *lua.Script) func(args []string) bool {
	return luatomictest.Command("EVALSHA", s.Guarded.SHA)
}

// lockRecord returns the record of a lock, which stays for 20 s after the lease.
func lockRecord(owner string) string { return "2 7 0 - " + owner + " 0 20000 a note of the holder" }

// lapsed is how long a record with these tests' afterlife lives without a lease.
const lapsed = 20 * time.Second

// serverTime returns the server's clock, which decides.
func serverTime(t testing.TB, c redis.Cmdable) time.Time {
	now, err := c.Time(within(t, 10*time.Second)).Result()
	require.NoError(t, err)
	return now
}

// takeLock records a lease of a minute under a new key.
func takeLock(t testing.TB, c redis.Cmdable, key string) held {
	require.NoError(t, c.Set(within(t, 10*time.Second), key, lockRecord("tok"), time.Minute).Err())
	return held{key, "tok"}
}

const (
	guardPasses = ""
	guardOver   = "FENCED the lease is over"
	guardNotOur = "FENCED the lease is not held with this token"
)

// guardCase is a record of a lease, and the guard's answer to the token.
type guardCase struct {
	name, token, want string
	record            func(t testing.TB, c redis.Cmdable, key string, now time.Time)
}

func stringRecord(text string, life time.Duration) func(testing.TB, redis.Cmdable, string, time.Time) {
	return func(t testing.TB, c redis.Cmdable, key string, _ time.Time) {
		require.NoError(t, c.Set(within(t, 10*time.Second), key, text, life).Err())
	}
}

// ownedBy returns the record of a lock whose lease lasts for the time.
func ownedBy(owner string, lease time.Duration) func(testing.TB, redis.Cmdable, string, time.Time) {
	return stringRecord(lockRecord(owner), lease+lapsed)
}

// permits returns a sorted set of tokens; each lease ends so long from now.
func permits(ends map[string]time.Duration) func(testing.TB, redis.Cmdable, string, time.Time) {
	return func(t testing.TB, c redis.Cmdable, key string, now time.Time) {
		for token, left := range ends {
			z := redis.Z{Member: token, Score: float64(now.Add(left).UnixMilli())}
			require.NoError(t, c.ZAdd(within(t, 10*time.Second), key, z).Err())
		}
	}
}

func guardCases() []guardCase {
	nothing := func(testing.TB, redis.Cmdable, string, time.Time) {}
	short := permits(map[string]time.Duration{"tok": -time.Second, "other": time.Minute})
	return []guardCase{
		{"held", "tok", guardPasses, ownedBy("tok", time.Minute)},
		{"held, almost expired", "tok", guardPasses, ownedBy("tok", 10*time.Second)},
		{"over", "tok", guardOver, ownedBy("tok", 0)},
		{"without an expiry", "tok", guardOver, stringRecord(lockRecord("tok"), 0)},
		{"another's", "tok", guardNotOur, ownedBy("other", time.Minute)},
		{"a longer token", "tok", guardNotOur, ownedBy("token", time.Minute)},
		{"another's, and expired", "tok", guardNotOur, ownedBy("other", -lapsed/2)},
		{"free", "-", guardNotOur, ownedBy("-", time.Minute)},
		{"a pattern", ".*", guardNotOur, ownedBy("tok", time.Minute)},
		{"absent", "tok", guardNotOur, nothing},
		{"another string", "tok", guardNotOur, stringRecord("tok", time.Minute)},
		{"the empty string", "tok", guardNotOur, stringRecord("", time.Minute)},
		{"of another version", "tok", guardNotOur, stringRecord("3 7 0 - tok 0 1000 note", time.Minute)},
		{"no number", "tok", guardNotOur, stringRecord("2 7 0 - tok x 1000 ", time.Minute)},
		{"no number at the end", "tok", guardNotOur, stringRecord("2 7 0 - tok 0 y ", time.Minute)},
		{"a token of digits", "123", guardPasses, ownedBy("123", time.Minute)},
		{"a note like a record", "tok", guardNotOur, stringRecord("2 7 0 - other x y 2 7 0 - tok 0 1000 ",
			time.Minute)},
		{"the token elsewhere in the record", "tok", guardNotOur, stringRecord("2 7 0 9,tok other 0 1000 tok",
			time.Minute)},
		{"a note of any bytes", "tok", guardPasses, stringRecord("2 7 1 - tok 5 1000 \x00\n/tok/\xff", time.Minute)},
		{"permit", "tok", guardPasses, permits(map[string]time.Duration{"tok": time.Minute, "other": -time.Minute})},
		{"permit, over", "tok", guardOver, short},
		{"permit, another's is not", "other", guardPasses, short},
		{"permit, absent", "none", guardNotOur, short},
		{"permit without end", "tok", guardPasses, func(t testing.TB, c redis.Cmdable, key string, _ time.Time) {
			require.NoError(t, c.ZAdd(within(t, 10*time.Second), key, redis.Z{Member: "tok", Score: math.Inf(1)}).Err())
		}},
		{"a hash", "tok", guardNotOur, func(t testing.TB, c redis.Cmdable, key string, _ time.Time) {
			require.NoError(t, c.HSet(within(t, 10*time.Second), key, "o", "tok").Err())
		}},
		{"a set", "tok", guardNotOur, func(t testing.TB, c redis.Cmdable, key string, _ time.Time) {
			require.NoError(t, c.SAdd(within(t, 10*time.Second), key, "tok").Err())
		}},
	}
}

func TestGuard(t *testing.T) {
	t.Parallel()
	client, ctx := luatomictest.Client(t), within(t, time.Minute)
	for _, c := range guardCases() {
		t.Run(c.name, func(t *testing.T) {
			tag := "{" + luatomictest.Namespace(t) + "}"
			c.record(t, client, tag+"lease", serverTime(t, client))
			before, err := client.Dump(ctx, tag+"lease").Result()
			if err != redis.Nil {
				require.NoError(t, err)
			}
			p := queuescript.ControlParams{Control: tag + "control", Wake: tag + "wake", Receipt: tag + "receipt",
				Limit: 7}
			got, err := queuescript.Control(ctx, lua.Guard(client, held{tag + "lease", c.token}), p)
			after, _ := client.Dump(ctx, tag+"lease").Result()
			require.Equal(t, before, after, "the lease is as it was")
			if c.want == guardPasses {
				require.NoError(t, err)
				require.Equal(t, queuescript.ControlResult{Limit: 7}, got)
				require.Equal(t, "7", client.HGet(ctx, p.Control, "limit").Val())
				return
			}
			require.ErrorIs(t, err, lua.ErrFenced)
			e := requireFenced(t, err, lua.ErrRefused)
			require.EqualError(t, err, "refused: "+c.want+" (guarded queue_control)")
			require.Equal(t, 1, e.Tries)
			require.Zero(t, client.Exists(ctx, p.Control).Val(), "nothing is written")
		})
	}
}

// requireFenced checks that err is ErrFenced, of this outcome alone.
func requireFenced(t testing.TB, err, outcome error) *lua.Error {
	t.Helper()
	var e *lua.Error
	require.ErrorAs(t, err, &e)
	require.ErrorIs(t, err, lua.ErrFenced)
	require.Equal(t, "FENCED", e.Code)
	require.True(t, e.Guarded)
	for _, o := range outcomes {
		if o == outcome {
			require.ErrorIs(t, err, o)
		} else {
			require.NotErrorIs(t, err, o)
		}
	}
	return e
}

// Each check of the guard is needed by one of the cases: without it, or with another in its place, some case has
// another outcome.
func TestEveryCheckOfTheGuardIsNeeded(t *testing.T) {
	t.Parallel()
	client, ctx := luatomictest.Client(t), within(t, 3*time.Minute)
	tag := "{" + luatomictest.Namespace(t) + "}"
	outcome := func(text string) []string {
		var got []string
		for i, c := range guardCases() {
			// a new record, as one is almost expired
			c.record(t, client, fmt.Sprintf("%s%d", tag, i), serverTime(t, client))
			_, err := client.Eval(ctx, text+"\nreturn #KEYS + #ARGV", []string{tag, fmt.Sprintf("%s%d", tag, i)}, "arg",
				c.token).Result()
			if err != nil {
				got = append(got, err.Error())
			} else {
				got = append(got, guardPasses)
			}
		}
		return got
	}
	var want []string
	for _, c := range guardCases() {
		want = append(want, c.want)
	}
	text := *queuescript.AckScript.Guarded.Guard
	require.Equal(t, want, outcome(text))
	for _, change := range [][2]string{
		{"kind == 'string'", "false"},
		{"kind == 'string'", "kind ~= 'zset'"},
		{"kind == 'zset'", "false"},
		{"kind == 'zset'", "kind ~= 'none'"},
		{"^2 ", "^%d "},
		{"'^2 %d+ %d %S+ (%S+)", "'2 %d+ %d %S+ (%S+)"},
		{" (%d+) ')", " (%S+) ')"},
		{"held = owner == token and", "held = owner and"},
		{"owner == token", "owner and string.find(owner, token, 1, true)"},
		{"owner == token", "owner and string.match(owner, '^' .. token .. '$')"},
		{" and owner ~= '-'", ""},
		{"over = held and redis.call('PTTL', lease) <= tonumber(after)", "over = false"},
		{"<= tonumber(after)", "<= 0"},
		{"<= tonumber(after)", "> tonumber(after)"},
		{"held = ends ~= false", "held = true"},
		{"over = held and math.floor(time[1] * 1000 + time[2] / 1000) > tonumber(ends)", "over = false"},
		{"time[1] * 1000", "time[1] * 1"},
		{"if over then", "if false then"},
		{"elseif not held then", "elseif false then"},
	} {
		require.Equal(t, 1, strings.Count(text, change[0]), "%q", change[0])
		require.NotEqual(t, want, outcome(strings.Replace(text, change[0], change[1], 1)),
			"%q in place of %q changes nothing", change[1], change[0])
	}
}

// The body must see only its own keys and arguments, the variadic ones too.
func TestGuardTakesItsKeyAndArgumentOff(t *testing.T) {
	t.Parallel()
	client := luatomictest.Client(t)
	tag := "{" + luatomictest.Namespace(t) + "}"
	s := withGuard(newScript("echo", "return table.concat(KEYS, ' ') .. '|' .. table.concat(ARGV, ' ')",
		lua.RetryNever))
	guard := lua.Guard(client, takeLock(t, client, tag+"lease"))
	for _, n := range []int{0, 1, 2, 5, 8, 9, 20} { // below, at and above the inline capacity of a Call
		var keys, args []string
		c := lua.NewCall(s, n, n)
		for i := range n {
			keys, args = append(keys, fmt.Sprint(tag, i)), append(args, fmt.Sprint("arg", i))
			c.Key("key", keys[i])
		}
		c.EndKeys()
		for i := range n {
			c.String(&args[i])
		}
		got, err := lua.Run(within(t, 10*time.Second), guard, c, decodeText)
		require.NoError(t, err)
		require.Equal(t, strings.Join(keys, " ")+"|"+strings.Join(args, " "), got)
	}
}

func TestGuardMistakesAreRefusedBeforeIO(t *testing.T) {
	t.Parallel()
	client := untouched(t)
	with, without := withGuard(newScript("count", countSource, lua.RetrySafe)), newScript("count", countSource,
		lua.RetrySafe)
	good := held{"{a}lease", "tok"}
	for name, c := range map[string]struct {
		client lua.Client
		script *lua.Script
		is     error
		text   string
	}{
		"no variant": {lua.Guard(client, good), without, lua.ErrNoGuard,
			"count: no guard: add ---@guard guard.lua to the header of count.lua and run go generate"},
		"another slot": {lua.Guard(client, held{"{b}lease", "tok"}), with, lua.ErrCrossSlot,
			`count: keys in different cluster slots: "{b}lease", which records the lease, and "{a}n"; give the lease a key with the data's {tag}`},
		"no key": {lua.Guard(client, held{"", "tok"}), with, lua.ErrBadName,
			"count: bad name: the lease's key is empty"},
		"no token": {lua.Guard(client, held{"{a}lease", ""}), with, lua.ErrBadName,
			"count: bad name: the lease's token is empty"},
		"no lease": {lua.Guard(client, nil), with, nil,
			"count: the client is bound to no lease: pass one to Guard, not nil"},
		"guarded twice": {lua.Guard(lua.Guard(client, good), good), with, nil,
			"count: the client is bound to two leases: pass the unguarded client to Guard"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := runInt(t.Context(), c.client, c.script, "{a}n")
			require.EqualError(t, err, c.text)
			b := lua.NewBatch(c.client)
			f := lua.Queue(b, newCall(c.script, "{a}n"), decodeInt)
			require.EqualError(t, b.Exec(t.Context()), "1 of 1 calls failed: "+c.text)
			_, err = f.Get()
			require.EqualError(t, err, c.text)
			if c.is != nil {
				require.ErrorIs(t, err, c.is)
			}
		})
	}
	_, err := runInt(t.Context(), lua.Guard(client, good), with, "{a}n", "{b}n")
	require.EqualError(t, err, `count: keys in different cluster slots: "{a}n" and "{b}n"; give them one {tag}`,
		"the data's own mistake comes first")
}
