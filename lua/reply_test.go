package lua_test

import (
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// everything has a field of each type, decoded as in generated code.
type everything struct {
	Int     int64
	Uint    uint64
	Bool    bool
	Float   float64
	String  string
	Bytes   []byte
	Short   time.Duration
	Long    time.Duration
	AtMs    time.Time
	AtSec   time.Time
	Maybe   lua.Opt[int64]
	Numbers []int64
	Rows    []pair
}

type pair struct {
	ID string
	At int64
}

var fields = []string{
	"int",
	"uint",
	"bool",
	"float",
	"string",
	"bytes",
	"ms",
	"sec",
	"at_ms",
	"at_sec",
	"maybe",
	"numbers",
	"rows",
}

func decodeEverything(r *lua.Reply) everything {
	var v everything
	r.Tuple(13)
	v.Int, v.Uint, v.Bool, v.Float = r.Int("int"), r.Uint("uint"), r.Bool("bool"), r.Float("float")
	v.String, v.Bytes = r.String("string"), r.Bytes("bytes")
	v.Short, v.Long, v.AtMs, v.AtSec = r.Milliseconds("ms"), r.Seconds("sec"), r.TimeMilli("at_ms"), r.TimeSec("at_sec")
	if !r.Absent() {
		v.Maybe = lua.Some(r.Int("maybe"))
	}
	if rows, n := r.Rows("numbers", 1); n > 0 {
		v.Numbers = make([]int64, n)
		for i := range v.Numbers {
			v.Numbers[i] = rows.Int("numbers")
		}
	}
	if rows, n := r.Rows("rows", 2); n > 0 {
		v.Rows = make([]pair, n)
		for i := range v.Rows {
			v.Rows[i] = pair{rows.String("rows.id"), rows.Int("rows.at")}
		}
	}
	return v
}

// good returns a valid reply, as go-redis delivers it.
func good() []any {
	return []any{
		int64(-1), "18446744073709551615", int64(1), "1.5", "text", "\xff\x00", int64(1500), int64(60),
		int64(1700000000123),
		int64(1700000000), nil, []any{int64(1), "2"}, []any{"a", int64(10), "b", int64(20)},
	}
}

// decode runs a decoder over a reply without a server.
func decode[T any](reply any, decoder func(*lua.Reply) T) (T, error) {
	return lua.Decode("queue_take", reply, decoder)
}

func TestRepliesDecodeTheSameInBothProtocols(t *testing.T) {
	t.Parallel()
	s := newScript(
		"everything",
		`return {-1, '18446744073709551615', true, '1.5', 'text', '\255\0', 1500, 60, 1700000000123, 1700000000,
  ARGV[1] == '' and 7 or false, {1, '2'}, {'a', 10, 'b', 20}}`,
		lua.RetrySafe,
	)
	want := everything{
		Int: -1, Uint: math.MaxUint64, Bool: true, Float: 1.5, String: "text", Bytes: []byte("\xff\x00"),
		Short: 1500 * time.Millisecond, Long: time.Minute,
		AtMs: time.UnixMilli(
			1700000000123,
		), AtSec: time.Unix(1700000000, 0), Numbers: []int64{1, 2}, Rows: []pair{{"a", 10}, {"b", 20}},
	}
	for _, protocol := range []int{2, 3} {
		client := luatomictest.Client(t, func(o *redis.Options) { o.Protocol = protocol })
		hello, err := client.Do(t.Context(), "HELLO").Result()
		require.NoError(t, err)
		if _, resp3 := hello.(map[any]any); protocol == 3 {
			require.True(t, resp3, "the server speaks RESP3")
		}
		for _, present := range []bool{false, true} {
			c := lua.NewCall(s, 1, 1)
			c.Key("key", luatomictest.Namespace(t))
			c.EndKeys()
			absent := "absent"
			want.Maybe = lua.Opt[int64]{}
			if present {
				c.None()
				want.Maybe = lua.Some(int64(7))
			} else {
				c.String(&absent)
			}
			got, err := lua.Run(within(t, 10*time.Second), client, c, decodeEverything)
			require.NoError(t, err)
			require.Equal(t, want, got, "RESP%d", protocol)
		}
		for source, accepts := range map[string]func(*lua.Reply) any{
			"return false": func(r *lua.Reply) any { return r.Absent() && !r.Bool("b") },
			"return true":  func(r *lua.Reply) any { return r.Bool("b") },
			"return {1, false}": func(r *lua.Reply) any {
				r.Tuple(2)
				n := r.Int("n")
				_, rows := r.Rows("rows", 3)
				return n == 1 && rows == 0
			},
			"return {}":                           func(r *lua.Reply) any { _, n := r.Rows("rows", 3); return n == 0 },
			"return redis.status_reply('QUEUED')": func(r *lua.Reply) any { return r.String("s") == "QUEUED" },
			"return {false, 1}": func(r *lua.Reply) any {
				r.Tuple(2)
				return r.Absent() && r.Int("n") == 1
			},
		} {
			got, err := lua.Run(
				within(t, 10*time.Second),
				client,
				newCall(newScript("scalar", source, lua.RetrySafe), luatomictest.Namespace(t)),
				accepts,
			)
			require.NoError(t, err, source)
			require.Equal(t, true, got, "%s over RESP%d", source, protocol)
		}
	}
}

func TestGoodReplyDecodes(t *testing.T) {
	t.Parallel()
	got, err := decode(good(), decodeEverything)
	require.NoError(t, err)
	require.Equal(t, uint64(math.MaxUint64), got.Uint)
	require.Equal(t, []pair{{"a", 10}, {"b", 20}}, got.Rows)
	_, present := got.Maybe.Get()
	require.False(t, present)
}

// A script's false, which arrives as nil, is an empty array only within a tuple.
func TestFalseIsAnEmptyArray(t *testing.T) {
	t.Parallel()
	reply := good()
	reply[11], reply[12] = nil, nil
	got, err := decode(reply, decodeEverything)
	require.NoError(t, err)
	require.Empty(t, got.Numbers)
	require.Empty(t, got.Rows)
	_, err = decode(nil, func(r *lua.Reply) int { _, n := r.Rows("rows", 1); return n })
	require.ErrorIs(t, err, lua.ErrBadReply)
}

// secret must never be part of an error.
const secret = "payload-that-stays-private"

// TestWrongTypeAtEachPosition puts every wrong value at each position.
func TestWrongTypeAtEachPosition(t *testing.T) {
	t.Parallel()
	huge := strings.Repeat("9", 400)
	text, number, list := any(secret), any(int64(5)), any([]any{secret})
	wrong := map[string][]any{
		"int": {nil, text, list, huge, "1.5", "", 1.5, true}, "uint": {nil, text, list, huge, int64(-1), "-1", ""},
		"bool": {text, list, int64(2), "1", "true", map[any]any{}}, "float": {nil, text, list, number, "", "0x"},
		"string": {nil, number, list, true}, "bytes": {nil, number, list, map[any]any{secret: secret}},
		"ms": {nil, text, list, huge, int64(math.MaxInt64), int64(math.MinInt64), int64(math.MaxInt64/1_000_000 + 1)},
		"sec": {
			nil,
			text,
			list,
			huge,
			int64(math.MaxInt64),
			int64(math.MaxInt64/1_000_000_000 + 1),
		}, "at_ms": {nil, text, list, huge}, "at_sec": {nil, text, list, huge},
		"maybe": {
			text,
			list,
			huge,
		}, "numbers": {text, number, map[any]any{}},
		"rows": {text, number, []any{secret}, []any{secret, number, secret}},
	}
	require.Len(t, wrong, len(fields))
	for i, field := range fields {
		for _, value := range wrong[field] {
			reply := good()
			reply[i] = value
			_, err := decode(reply, decodeEverything)
			requireBadReply(t, err, field, i+1)
		}
	}
	for name, tc := range map[string]struct {
		rows     []any
		field    string
		position int
	}{
		"id": {[]any{"a", number, nil, number}, "rows.id", 3}, "at": {[]any{"a", number, "b", text}, "rows.at", 4},
	} {
		reply := good()
		reply[12] = tc.rows
		_, err := decode(reply, decodeEverything)
		require.Error(t, err, name)
		requireBadReply(t, err, tc.field, tc.position)
	}
}

func requireBadReply(t *testing.T, err error, field string, position int) {
	t.Helper()
	require.ErrorIs(t, err, lua.ErrBadReply)
	require.ErrorContains(t, err, fmt.Sprintf("queue_take: bad reply: %s at position %d: want ", field, position))
	require.NotContains(t, err.Error(), secret)
	require.NotContains(t, err.Error(), "9999")
	for _, outcome := range outcomes {
		require.NotErrorIs(t, err, outcome)
	}
}

func TestWrongArity(t *testing.T) {
	t.Parallel()
	for name, reply := range map[string]any{
		"short": good()[:12], "long": append(good(), secret), "empty": []any{}, "nil": nil, "scalar": int64(1),
		"text": secret, "map": map[any]any{},
	} {
		_, err := decode(reply, decodeEverything)
		require.Error(t, err, name)
		requireBadReply(t, err, "the reply", 0)
		require.ErrorContains(t, err, "want an array of 13, got ")
	}
}

func TestScalarOfAnotherType(t *testing.T) {
	t.Parallel()
	_, err := decode[int64]([]any{int64(1)}, decodeInt)
	requireBadReply(t, err, "n", 0)
	require.ErrorContains(t, err, "want an integer, got an array of 1")
	_, err = decode(int64(1), decodeText)
	require.ErrorContains(t, err, "want a string, got an integer")
}

func TestEnumReportsTheValueJustRead(t *testing.T) {
	t.Parallel()
	enum := func(r *lua.Reply) int64 {
		if n := r.Int("state"); n != 1 {
			r.Fail("state", "one of 1 (held)")
		}
		return 0
	}
	for _, reply := range []any{int64(9), "9"} {
		_, err := decode(reply, enum)
		require.ErrorIs(t, err, lua.ErrBadReply)
		require.ErrorContains(t, err, "state at position 0: want one of 1 (held), got a")
	}
	_, err := decode([]any{"x", int64(9)}, func(r *lua.Reply) int64 { r.Tuple(2); r.String("s"); return enum(r) })
	require.ErrorContains(t, err, "state at position 2: want one of 1 (held), got an integer")
}

func TestFailedDecodeGivesTheZeroValue(t *testing.T) {
	t.Parallel()
	reply := good()
	reply[12] = secret
	got, err := decode(reply, decodeEverything)
	require.Error(t, err)
	require.Zero(t, got)
}

// FuzzReply runs the decoders over any tree of values that a connection can deliver.
func FuzzReply(f *testing.F) {
	for _, seed := range []string{
		`[1,2,1,"1.5","s","b",1,1,1,1,null,[1],["a",1]]`, `[]`, `null`, `[[[[]]]]`, `"x"`, `[1,null,[null],{"a":1}]`,
		`9223372036854775807`, `[1e400]`,
		`[-1,-1,-1,"NaN","","",9223372036854775807,9223372036854775807,1,1,1,[],[[],[]]]`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var tree any
		if json.Unmarshal(data, &tree) != nil {
			t.Skip("not a tree")
		}
		reply := wire(tree)
		if _, err := decode(reply, decodeEverything); err != nil {
			require.ErrorIs(t, err, lua.ErrBadReply)
		}
		for _, decoder := range []func(*lua.Reply) any{
			func(r *lua.Reply) any {
				return r.Int("v")
			}, func(r *lua.Reply) any { return r.Uint("v") }, func(r *lua.Reply) any { return r.Bool("v") },
			func(r *lua.Reply) any {
				return r.Float("v")
			}, func(r *lua.Reply) any { return r.Bytes("v") }, func(r *lua.Reply) any { return r.Seconds("v") },
			func(r *lua.Reply) any {
				rows, n := r.Rows("v", 2)
				return fmt.Sprint(n, rows.Int("a"), rows.String("b"), rows.Absent())
			},
			func(r *lua.Reply) any { r.Tuple(1); return fmt.Sprint(r.Absent(), r.Int("a"), r.Int("past the end")) },
		} {
			if _, err := decode(reply, decoder); err != nil {
				require.ErrorIs(t, err, lua.ErrBadReply)
			}
		}
	})
}

// wire converts a tree of JSON to the types that go-redis delivers.
func wire(v any) any {
	switch v := v.(type) {
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1e18 {
			return int64(v)
		}
	case []any:
		for i := range v {
			v[i] = wire(v[i])
		}
	case map[string]any:
		m := map[any]any{}
		for k, e := range v {
			m[k] = wire(e)
		}
		return m
	}
	return v
}

func TestAnArgumentBeyondWhatLuaHoldsIsNotSent(t *testing.T) {
	t.Parallel()
	for v, refused := range map[int64]bool{
		lua.MaxExact: false, -lua.MaxExact: false, lua.MaxExact + 1: true, -lua.MaxExact - 1: true,
	} {
		c := newCall(newScript("exact", "return 1", lua.RetryNever), "k")
		c.Exact("id", v)
		client := luatomictest.Client(t)
		if refused {
			client = untouched(t)
		}
		_, err := lua.Run(t.Context(), client, c, decodeInt)
		require.Equal(t, refused, err != nil, "%d: %v", v, err)
		var out *lua.RangeError
		require.Equal(t, refused, errors.As(err, &out))
	}
}

// A reply of any kind comes as go-redis gives it.
func TestReplyOfAnyKind(t *testing.T) {
	t.Parallel()
	client, ctx := luatomictest.Client(t), t.Context()
	for text, want := range map[string]any{
		"return 7\n": int64(7), "return 'x'\n": "x", "return {1, 'a', false}\n": []any{int64(1), "a", nil},
		"return nil\n": nil,
	} {
		sum := sha1.Sum([]byte(text))
		s := lua.Script{Name: "any", SHA: hex.EncodeToString(sum[:]), Source: &text}
		call := lua.NewCall(&s, 0, 0)
		call.EndKeys()
		got, err := lua.Run(ctx, client, call, func(r *lua.Reply) any { return r.Any("reply") })
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

// Lua prints 0/0 as the C library of the server does, on some processors with a sign.
func TestNoNumberIsANumberOfEachSign(t *testing.T) {
	t.Parallel()
	for text, isNaN := range map[string]bool{"nan": true, "-nan": true, "inf": false, "-inf": false} {
		got, err := decode(text, func(r *lua.Reply) float64 { return r.Float("mean") })
		require.NoError(t, err, text)
		require.Equal(t, isNaN, math.IsNaN(got), text)
	}
}
