package lua_test

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

func TestKeysInDifferentSlotsAreRefusedBeforeIO(t *testing.T) {
	t.Parallel()
	client, s := untouched(t), newScript("move", "return 1", lua.RetrySafe)
	for _, keys := range [][]string{
		{"a", "b"}, {"{a}x", "{b}x"}, {"{a}x", "{a}y", "b"}, {"{}a", "{}b"}, {"a{b", "c{b"}, {"{a", "a"},
		{"{}{a}", "{a}"},
	} {
		_, err := runInt(t.Context(), client, s, keys...)
		require.ErrorIs(t, err, lua.ErrCrossSlot, "%q", keys)
		require.ErrorContains(t, err, "move: ")
		require.ErrorContains(t, err, "give them one {tag}")

		b := lua.NewBatch(client)
		f := lua.Queue(b, newCall(s, keys...), decodeInt)
		require.ErrorIs(t, b.Exec(t.Context()), lua.ErrCrossSlot)
		_, err = f.Get()
		require.ErrorIs(t, err, lua.ErrCrossSlot)
	}
}

// Layouts of other systems have no hash tags. A single server accepts them, a cluster refuses them.
func TestAScriptMayTakeKeysOfAnySlot(t *testing.T) {
	t.Parallel()
	client, name := luatomictest.Client(t), luatomictest.Namespace(t)
	s := newScript("move", "return #KEYS", lua.RetrySafe)
	s.AnySlot = true
	got, err := runInt(within(t, 10*time.Second), client, s, name+"a", name+"b", name+"c")
	require.NoError(t, err)
	require.EqualValues(t, 3, got)
}

func TestKeysInOneSlotAreAccepted(t *testing.T) {
	t.Parallel()
	client, name := luatomictest.Client(t), luatomictest.Namespace(t)
	s := newScript("one", "return #KEYS", lua.RetrySafe)
	tag, twin := "tag", "" // two tags, one slot
	for i := 0; twin == "" || lua.Slot(twin) != lua.Slot(tag); i++ {
		twin = "twin" + strconv.Itoa(i)
	}
	many := make([]string, 20) // more keys than fit inline in a call
	for i := range many {
		many[i] = "{" + name + "}" + string(rune('a'+i))
	}
	for _, keys := range [][]string{
		{"{" + name + "}a"}, {"{" + name + "}a", "{" + name + "}b"}, {"x{" + name + "}", name},
		{name + "{}", name + "{}"}, {"bar", "foo{bar}"},
		{"{" + tag + "}" + name, "{" + twin + "}" + name}, many,
	} {
		got, err := runInt(within(t, 10*time.Second), client, s, keys...)
		require.NoError(t, err)
		require.EqualValues(t, len(keys), got)
	}
}

// arguments is one mistake, or one value at a bound.
type arguments struct {
	build func(c *lua.Call)
	match error  // nil: it is accepted
	rule  string // the rule in the error
}

func TestArgumentsAreCheckedBeforeIO(t *testing.T) {
	t.Parallel()
	mib := strings.Repeat("x", 1<<20)
	bytes, text := []byte(mib), mib[:1<<20-1]
	for name, tc := range map[string]arguments{
		"int below": {func(c *lua.Call) {
			c.Int("limit", 0, 1, 10)
		}, lua.ErrOutOfRange, "limit: 0 is out of range, at least 1, at most 10"},
		"int above": {func(c *lua.Call) {
			c.Int("limit", 11, 1, 10)
		}, lua.ErrOutOfRange, "limit: 11 is out of range, at least 1, at most 10"},
		"int no top": {func(c *lua.Call) {
			c.Int("limit", -1, 0, math.MaxInt64)
		}, lua.ErrOutOfRange, "limit: -1 is out of range, at least 0"},
		"int at the bounds": {func(c *lua.Call) { c.Int("limit", 1, 1, 10); c.Int("limit", 10, 1, 10) }, nil, ""},
		"uint below": {func(c *lua.Call) {
			c.Uint("n", 0, 1, math.MaxUint64)
		}, lua.ErrOutOfRange, "n: 0 is out of range, at least 1"},
		"uint above": {func(c *lua.Call) {
			c.Uint("n", math.MaxUint64, 0, 5)
		}, lua.ErrOutOfRange, "n: 18446744073709551615 is out of range, at least 0, at most 5"},
		"nan": {func(c *lua.Call) {
			c.Float("f", math.NaN())
		}, lua.ErrOutOfRange, "f: NaN is out of range"},
		"inf": {func(c *lua.Call) {
			c.Float("f", math.Inf(1))
		}, lua.ErrOutOfRange, "f: +Inf is out of range"},
		"minus inf": {func(c *lua.Call) {
			c.Float("f", math.Inf(-1))
		}, lua.ErrOutOfRange, "f: -Inf is out of range"},
		"far time": {func(c *lua.Call) {
			c.TimeMilli("at", time.Unix(math.MaxInt64, 0))
		}, lua.ErrOutOfRange, "at: "},
		"never": {func(c *lua.Call) {
			c.TimeMilli("at", time.Unix(1<<63-62135596801, 999999999))
		}, lua.ErrOutOfRange, "at: "},
		"sub-ms": {func(c *lua.Call) {
			c.Milliseconds("ttl", 999*time.Microsecond, 1, math.MaxInt64)
		}, lua.ErrOutOfRange, "ttl: 999µs is out of range, at least 1ms"},
		"sub-ms or zero": {func(c *lua.Call) {
			c.Milliseconds("ttl", time.Nanosecond, 0, 5)
		}, lua.ErrOutOfRange, "ttl: 1ns is out of range, at least 1ms, at most 5ms"},
		"sub-ms unbounded": {func(c *lua.Call) {
			c.Milliseconds("ttl", time.Nanosecond, math.MinInt64, math.MaxInt64)
		}, lua.ErrOutOfRange, "at least 1ms"},
		"sub-second": {func(c *lua.Call) {
			c.Seconds("ttl", 20*time.Millisecond, 0, 9)
		}, lua.ErrOutOfRange, "ttl: 20ms is out of range, at least 1s, at most 9s"},
		"negative": {func(c *lua.Call) {
			c.Milliseconds("ttl", -time.Second, 0, math.MaxInt64)
		}, lua.ErrOutOfRange, "ttl: -1s is out of range, at least 0s"},
		"too long": {func(c *lua.Call) {
			c.Milliseconds("ttl", time.Second, 1, 999)
		}, lua.ErrOutOfRange, "ttl: 1s is out of range, at least 1ms, at most 999ms"},
		"zero duration": {func(c *lua.Call) { c.Milliseconds("ttl", 0, 0, 5); c.Seconds("ttl", 0, 0, 5) }, nil, ""},
		"zero time": {func(c *lua.Call) {
			c.TimeMilli("due", time.Time{})
		}, lua.ErrOutOfRange, "due: the zero time is out of range"},
		"zero time, s": {func(c *lua.Call) {
			c.TimeSec("due", time.Time{})
		}, lua.ErrOutOfRange, "due: the zero time is out of range"},
		"epoch":   {func(c *lua.Call) { c.TimeMilli("due", time.UnixMilli(0)) }, nil, ""},
		"no name": {func(c *lua.Call) { c.Name("queue", "") }, lua.ErrBadName, "queue is empty"},
		"open brace": {func(c *lua.Call) {
			c.Name("queue", "a{b")
		}, lua.ErrBadName, `queue "a{b" holds a brace, and braces choose the cluster slot`},
		"close brace": {func(c *lua.Call) { c.Name("queue", "}") }, lua.ErrBadName, "holds a brace"},
		"newline": {func(c *lua.Call) {
			c.Name("queue", "a\nb")
		}, lua.ErrBadName, `queue "a\nb" holds a control character`},
		"delete": {func(c *lua.Call) {
			c.Name("queue", "\x7f")
		}, lua.ErrBadName, "holds a control character"},
		"129 bytes": {func(c *lua.Call) {
			c.Name("queue", mib[:129])
		}, lua.ErrBadName, "queue has 129 bytes, at most 128"},
		"128 bytes": {func(c *lua.Call) {
			c.Name("queue", mib[:128])
			c.Name("queue", "Größe 1/2:é")
		}, nil, ""},
		"items": {func(c *lua.Call) {
			c.Group("job", 1001, 1000, 2)
		}, lua.ErrTooLarge, "too large: job: 1001 items, at most 1000 in one call"},
		"1000 items": {func(c *lua.Call) { c.Group("job", 1000, 1000, 2) }, nil, ""},
		"bytes": {func(c *lua.Call) {
			c.Bytes(&bytes)
		}, lua.ErrTooLarge, "keys and arguments: 1048577 bytes, at most 1048576 in one call"},
		"bytes by ref":      {func(c *lua.Call) { c.BytesAt(&bytes) }, lua.ErrTooLarge, "1048577 bytes"},
		"string":            {func(c *lua.Call) { c.String(&mib) }, lua.ErrTooLarge, "1048577 bytes"},
		"string by ref":     {func(c *lua.Call) { c.StringAt(&mib) }, lua.ErrTooLarge, "1048577 bytes"},
		"a MiB":             {func(c *lua.Call) { c.String(&text) }, nil, ""},
		"the first mistake": {func(c *lua.Call) { c.Name("a", ""); c.Int("b", 0, 1, 2) }, lua.ErrBadName, "a is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testArguments(t, newScript("checked", "return 1", lua.RetrySafe), tc)
		})
	}
	raised := newScript("checked", "return 1", lua.RetrySafe)
	raised.MaxBytes = 2 << 20
	testArguments(t, raised, arguments{build: func(c *lua.Call) { c.Bytes(&bytes) }})
	more := append(bytes, bytes...)
	testArguments(t, raised, arguments{func(c *lua.Call) {
		c.Bytes(&more)
	}, lua.ErrTooLarge, "2097153 bytes, at most 2097152"})
}

func testArguments(t *testing.T, s *lua.Script, tc arguments) {
	t.Helper()
	build := func() *lua.Call {
		c := lua.NewCall(s, 1, 2)
		c.Key("key", "k")
		c.EndKeys()
		tc.build(c)
		return c
	}
	if tc.match == nil {
		_, err := lua.Run(within(t, 10*time.Second), luatomictest.Client(t), build(), decodeInt)
		require.NoError(t, err)
		return
	}
	_, err := lua.Run(t.Context(), untouched(t), build(), decodeInt)
	require.ErrorIs(t, err, tc.match)
	require.ErrorContains(t, err, tc.rule)
	require.True(t, strings.HasPrefix(err.Error(), "checked: "), err)
	for _, outcome := range outcomes {
		require.NotErrorIs(t, err, outcome)
	}
}

func TestKeysAreCheckedBeforeIO(t *testing.T) {
	t.Parallel()
	s, client := newScript("checked", "return 1", lua.RetrySafe), untouched(t)
	for name, tc := range map[string]struct {
		build func(c *lua.Call)
		match error
		rule  string
	}{
		"empty key": {func(c *lua.Call) { c.Key("lock", "") }, lua.ErrBadName, "key lock is empty"},
		"no keys": {func(c *lua.Call) {
			c.Keys("queues", nil, 3)
		}, lua.ErrBadName, "queues is empty; pass at least one key"},
		"keys": {func(c *lua.Call) {
			c.Keys("queues", []string{"a", "a", "a", "a"}, 3)
		}, lua.ErrTooLarge, "queues: 4 keys, at most 3"},
		"no groups": {func(c *lua.Call) {
			c.KeyGroup("queue", 0, 3)
		}, lua.ErrBadName, "queue is empty; pass at least one key"},
		"groups": {func(c *lua.Call) { c.KeyGroup("queue", 4, 3) }, lua.ErrTooLarge, "queue: 4 items, at most 3"},
		"one empty": {func(c *lua.Call) {
			c.Keys("queues", []string{"a", ""}, 0)
		}, lua.ErrBadName, "key queues is empty"},
		"bytes": {func(c *lua.Call) { c.Key("lock", strings.Repeat("x", 1<<20+1)) }, lua.ErrTooLarge, "1048577 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			c := lua.NewCall(s, 1, 0)
			tc.build(c)
			c.EndKeys()
			_, err := lua.Run(t.Context(), client, c, decodeInt)
			require.ErrorIs(t, err, tc.match)
			require.ErrorContains(t, err, tc.rule)
		})
	}
}

func TestErrorTypesCarryTheirParts(t *testing.T) {
	t.Parallel()
	c := newCall(newScript("checked", "return 1", lua.RetrySafe), "k")
	c.Int("limit", 11, 1, 10)
	_, err := lua.Run(t.Context(), untouched(t), c, decodeInt)
	var out *lua.RangeError
	require.ErrorAs(t, err, &out)
	require.Equal(t, lua.RangeError{Field: "limit", Value: "11", Min: "1", Max: "10"}, *out)

	c = newCall(newScript("checked", "return 1", lua.RetrySafe), "k")
	c.Group("job", 5, 4, 1)
	_, err = lua.Run(t.Context(), untouched(t), c, decodeInt)
	var large *lua.SizeError
	require.ErrorAs(t, err, &large)
	require.Equal(t, lua.SizeError{What: "job", N: 5, Max: 4, Unit: "items"}, *large)
}

// TestArgumentsArriveUnchanged sends every kind of argument and reads it back as the server received it.
func TestArgumentsArriveUnchanged(t *testing.T) {
	t.Parallel()
	s := newScript("echo", "return ARGV", lua.RetrySafe)
	texts := []string{"plain", "", "with \x00 and \r\n", "Größe", "fifth", "sixth"}
	payload, empty := []byte("\xff\x00{}[]"), []byte{}
	large, due := int64(math.MinInt64), time.UnixMilli(1700000000123)
	c := lua.NewCall(s, 1, 3)
	c.Key("key", luatomictest.Namespace(t))
	c.EndKeys()
	for i := range texts {
		c.String(&texts[i])
	}
	c.StringAt(&texts[3])
	c.Bytes(&payload)
	c.BytesAt(&payload)
	c.Bytes(&empty)
	c.Bool(true)
	c.Bool(false)
	for range 3 {
		c.Int("n", math.MaxInt64, math.MinInt64, math.MaxInt64)
	}
	c.IntAt(&large)
	c.Uint("u", math.MaxUint64, 0, math.MaxUint64)
	c.Float("f", 0.1)
	c.Float("f", 1e300)
	c.Milliseconds("ttl", 1500*time.Millisecond, 1, math.MaxInt64)
	c.Seconds("ttl", time.Minute, 1, math.MaxInt64)
	c.TimeMilli("due", due)
	c.TimeSec("due", due)
	c.None()
	c.String(nil)
	c.StringAt(nil)
	c.Bytes(nil)
	c.BytesAt(nil)
	got, err := lua.Run(within(t, 10*time.Second), luatomictest.Client(t), c, decodeTexts)
	require.NoError(t, err)
	require.Equal(t, append(append([]string{}, texts...), "Größe", string(payload), string(payload), "", "1", "0",
		"9223372036854775807", "9223372036854775807", "9223372036854775807", "-9223372036854775808",
		"18446744073709551615",
		"0.1", "1e+300", "1500", "60", "1700000000123", "1700000000", "", "", "", "", ""), got)
}

func decodeTexts(r *lua.Reply) []string {
	rows, n := r.Rows("texts", 1)
	texts := make([]string, n)
	for i := range texts {
		texts[i] = rows.String("texts")
	}
	return texts
}

// A bound in the header may be longer than any duration.
func TestMessageWithoutABoundThatNoDurationReaches(t *testing.T) {
	t.Parallel()
	c := lua.NewCall(newScript("take", "", lua.RetryNever), 0, 1)
	c.EndKeys()
	c.Seconds("ttl", -time.Hour, 1, 1<<62)
	_, err := lua.Run(t.Context(), untouched(t), c, decodeTexts)
	require.EqualError(t, err, "take: ttl: -1h0m0s is out of range, at least 1s")
}
