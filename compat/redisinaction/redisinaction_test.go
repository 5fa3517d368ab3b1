package redisinaction_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/redisinaction"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

func TestMain(m *testing.M) { luatomictest.Main(m) }

// own returns a client whose keys begin with the test's own prefix.
func own(t testing.TB) (c *redisinaction.Client, r *redis.Client, prefix string) {
	t.Helper()
	r, prefix = luatomictest.Client(t), luatomictest.Namespace(t)+":"
	return redisinaction.New(r, &redisinaction.Options{Prefix: prefix}), r, prefix
}

// item returns an item of four elements in queue q.
func item(id string) string { return fmt.Sprintf(`["%s", "q", "name", []]`, id) }

func TestItemsAreWrittenAsPythonWritesThem(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c, r, prefix := own(t)
	raw := func(text string) any { return json.RawMessage(text) }
	for i, row := range []struct {
		args any
		want string
	}{
		{nil, `[]`},
		{[]any{}, `[]`},
		{[]any{1, "a", nil, true, false, []int{1, 2}, map[string]any{"a": 1}},
			`[1, "a", null, true, false, [1, 2], {"a": 1}]`},
		{[]any{"é", "日本", "😀", "<&>", "/", "\x7f", "\u2028", "\b\f\n\r\t\"\\\x01"},
			`["\u00e9", "\u65e5\u672c", "\ud83d\ude00", "<&>", "/", "\u007f", "\u2028", "\b\f\n\r\t\"\\\u0001"]`},
		{raw(`[ 1 , 2,{"b":[ ],"a":{ }} ]`), `[1, 2, {"b": [], "a": {}}]`},
		{raw(`[9223372036854775808, -0, -0.0, 1e3, 1.0, 1E400e]`), ""},
		{raw(`[9223372036854775808, -0, -0.0, 1e3, 1.50, 1e16, 1e15]`),
			`[9223372036854775808, 0, -0.0, 1000.0, 1.5, 1e+16, 1000000000000000.0]`},
		{raw(`[0.0001, 0.00001, 1e-7, 1.7976931348623157e308, 5e-324, 1e-400]`),
			`[0.0001, 1e-05, 1e-07, 1.7976931348623157e+308, 5e-324, 0.0]`},
		{raw(`["\u00e9\/\ud83d\ude00\ud83d", "\udE00", "\u0041"]`), `["\u00e9/\ud83d\ude00\ud83d", "\ude00", "A"]`},
		{raw(`[1e400]`), ""},
		{raw(`[` + strings.Repeat("1", 4300) + `]`), `[` + strings.Repeat("1", 4300) + `]`},
		{raw(`[` + strings.Repeat("1", 4301) + `]`), ""},
		{raw(`[-` + strings.Repeat("1", 4300) + `]`), `[-` + strings.Repeat("1", 4300) + `]`},
		{raw(`[-` + strings.Repeat("1", 4301) + `]`), ""},
		{raw(strings.Repeat("[", 500) + strings.Repeat("]", 500)), strings.Repeat("[", 500) + strings.Repeat("]", 500)},
		{raw(strings.Repeat("[", 501) + strings.Repeat("]", 501)), ""},
		{raw(`[{"a": 1, "b": {"a": 1}, "\u0061": 2}]`), ""},
		{raw(`[{"a": 1, "b": {"a": 1}}, {"a": 2}]`), `[{"a": 1, "b": {"a": 1}}, {"a": 2}]`},
		{raw("[\"\xff\"]"), ""},
		{[]string{"\xff"}, ""}, // encoding/json replaces it
		{[]any{map[string]int{"\xff": 1}}, ""},
		{[]any{"\ufffd", raw(`"\ufffd"`)}, `["\ufffd", "\ufffd"]`},
		{[]any(nil), "[]"}, {[]string(nil), "[]"}, {json.RawMessage(nil), "[]"}, {raw("null"), "[]"},
		{(*[]int)(nil), "[]"},
		{raw(`{"a": 1}`), ""},
		{"text", ""},
		{7, ""},
		{[]any{math.NaN()}, ""},
		{[]any{func() {}}, ""},
		{raw(`[1,]`), ""},
	} {
		q := fmt.Sprint("q", i)
		id, err := c.ExecuteLater(ctx, q, "näme", row.args, 0)
		if row.want == "" {
			require.ErrorIs(t, err, redisinaction.ErrArgs, "%s", row.args)
			require.Zero(t, r.Exists(ctx, prefix+"queue:"+q).Val())
			continue
		}
		require.NoError(t, err)
		got := r.LRange(ctx, prefix+"queue:"+q, 0, -1).Val()
		require.Equal(t, []string{fmt.Sprintf(`["%s", "%s", "n\u00e4me", %s]`, id, q, row.want)}, got)
		parsed, err := redisinaction.ParseItem([]byte(got[0]))
		require.NoError(t, err)
		require.Equal(t, []string{id, q, "näme", row.want},
			[]string{parsed.ID, parsed.Queue, parsed.Name, string(parsed.Args)})
	}
}

func TestExecuteAll(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c, r, prefix := own(t)
	before := r.Time(ctx).Val()
	out, err := c.ExecuteAll(ctx, "q", redisinaction.Task{Name: "now"},
		redisinaction.Task{Name: "late", Delay: time.Hour},
		redisinaction.Task{Name: "past", Delay: -time.Hour}, redisinaction.Task{Name: "late2", Delay: time.Hour},
		redisinaction.Task{Name: "soon", Delay: time.Microsecond})
	require.NoError(t, err)
	after := r.Time(ctx).Val()
	require.Equal(t, []int{2, 3}, []int{out.Ready, out.Scheduled})
	require.False(t, out.Now.Before(before) || out.Now.After(after))
	require.Equal(t, []string{
		fmt.Sprintf(`["%s", "q", "now", []]`, out.IDs[0]), fmt.Sprintf(`["%s", "q", "past", []]`, out.IDs[2]),
	}, r.LRange(ctx, prefix+"queue:q", 0, -1).Val())

	delayed := r.ZRangeWithScores(ctx, prefix+"delayed:", 0, -1).Val()
	require.Len(t, delayed, 3)
	for i, want := range []struct {
		id    string
		delay time.Duration
	}{{out.IDs[4], 3 * time.Microsecond}, {out.IDs[1], time.Hour}, {out.IDs[3], time.Hour + time.Microsecond}} {
		require.Contains(t, delayed[i].Member, want.id)
		require.InDelta(t, float64(out.Now.Add(want.delay).UnixMicro())/1e6, delayed[i].Score, 1.1e-6)
	}
	require.Len(t, out.IDs[0], 36)
	require.Equal(t, byte('4'), out.IDs[0][14], "a uuid of version 4")
	require.Positive(t, r.PTTL(ctx, prefix+"sent:"+out.IDs[0]).Val())
	require.Positive(t, r.ZCard(ctx, prefix+"delayed:").Val())
	require.Negative(t, r.PTTL(ctx, prefix+"delayed:").Val())

	out, err = c.ExecuteAll(ctx, "q")
	require.NoError(t, err)
	require.Empty(t, out)
}

func TestBadTasksAreRefusedBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c, r, prefix := own(t)
	good := redisinaction.Task{Name: "n"}
	for name, row := range map[string]struct {
		queue string
		tasks []redisinaction.Task
		want  error
	}{
		"no queue":      {"", []redisinaction.Task{good}, lua.ErrBadName},
		"no UTF-8":      {"q\xff", []redisinaction.Task{good}, lua.ErrBadName},
		"no name":       {"q", []redisinaction.Task{good, {}}, lua.ErrBadName},
		"name no UTF-8": {"q", []redisinaction.Task{{Name: "\xff"}}, lua.ErrBadName},
		"long name":     {"q", []redisinaction.Task{{Name: strings.Repeat("n", 513)}}, lua.ErrBadName},
		"args no array": {"q", []redisinaction.Task{good, {Name: "n", Args: 1}}, redisinaction.ErrArgs},
		"too many":      {"q", make([]redisinaction.Task, redisinaction.MaxBatch+1), lua.ErrTooLarge},
		"too many bytes": {"q", []redisinaction.Task{{Name: "n", Args: []string{strings.Repeat("x", 1<<20)}}},
			lua.ErrTooLarge},
	} {
		_, err := c.ExecuteAll(ctx, row.queue, row.tasks...)
		require.ErrorIs(t, err, row.want, name)
		require.ErrorContains(t, err, "redisinaction: execute later on ", name)
	}
	require.Empty(t, r.Keys(ctx, prefix+"*").Val())
}

func TestFullBatch(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c, r, prefix := own(t)
	for _, delay := range []time.Duration{0, time.Nanosecond * 500, time.Microsecond, time.Hour} {
		tasks := make([]redisinaction.Task, redisinaction.MaxBatch)
		for i := range tasks {
			tasks[i] = redisinaction.Task{Name: "n", Delay: delay}
		}
		_, err := c.ExecuteAll(ctx, "q", tasks...)
		require.NoError(t, err)
	}
	require.EqualValues(t, 2*redisinaction.MaxBatch, r.LLen(ctx, prefix+"queue:q").Val(),
		"a delay below a microsecond is none")
	require.EqualValues(t, 2*redisinaction.MaxBatch, r.ZCard(ctx, prefix+"delayed:").Val())
}

func TestParseItem(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 5000) + strings.Repeat("]", 5000)
	for text, want := range map[string]string{
		`["id", "q", "n", [1, 2]]`:                       "id q n [1, 2]",
		"\n [ \"id\" ,\t\"q\",\"n\" , {\"a\": NaN} ] \r": `id q n {"a": NaN}`,
		`["n", [-Infinity, Infinity]]`:                   "  n [-Infinity, Infinity]",
		`["n", null]`:                                    "  n null",
		`["\u00e9", "é", "\ud83d\ude00\/", "\ud800"]`:    `é é 😀/ "\ud800"`,
		`["n", {"a": 1, "a": 2}]`:                        `  n {"a": 1, "a": 2}`,
		`["", "", "", []]`:                               "   []",
		`["n", ` + deep + `]`:                            "  n " + deep,
	} {
		got, err := redisinaction.ParseItem([]byte(text))
		require.NoError(t, err, text)
		require.Equal(t, want, got.ID+" "+got.Queue+" "+got.Name+" "+string(got.Args))
		require.Equal(t, text, string(got.Raw))
	}
	for _, text := range append(malformedItems, `["n", `+strings.Repeat("[", 10000)+strings.Repeat("]", 10000)+`]`) {
		_, err := redisinaction.ParseItem([]byte(text))
		require.ErrorIs(t, err, redisinaction.ErrMalformed, text)
	}
}

var malformedItems = []string{
	``, ` `, `null`, `{}`, `7`, `"text"`, `[`, `[]`, `["n"]`, `["id", "q", "n"]`, `["id", "q", "n", [], 5]`,
	`["id", "q", "n", [], 5, 6, 7]`,
	`[1, "q", "n", []]`, `["id", null, "n", []]`, `["id", "q", 3, []]`, `["id", "q", "n", [,]]`,
	`["id", "q", "n", [1,]]`, `["id", "q", "n", []],`,
	`["id", "q", "n", [] `, `["id" "q", "n", []]`, `["id", "q", "n", [01]]`, `["id", "q", "n", [1.]]`,
	`["id", "q", "n", [1e]]`, `["id", "q", "n", [-]]`,
	`["id", "q", "n", [+1]]`, `["id", "q", "n", ["a]]`, `["id", "q", "n", ["\x"]]`, `["id", "q", "n", ["\u12g4"]]`,
	`["id", "q", "n", ["\`, "[\"id\", \"q\", \"n\", [\"\n\"]]",
	"[\"id\", \"q\xff\", \"n\", []]", `["id", "\ud800", "n", []]`, `["\udc00", "q", "n", []]`,
	`["id", "q", "\ud800", []]`, `["id", "q", "n", {"a"}]`,
	`["id", "q", "n", {"a": 1,}]`, `["id", "q", "n", {1: 1}]`, `["id", "q", "n", nul]`, `["id", "q", "n", NaNa]`,
	"\ufeff[\"id\", \"q\", \"n\", []]",
	`{"Identifier":"id","Queue":"q","Name":"n","Args":[]}`,
}

func FuzzParseItem(f *testing.F) {
	for _, text := range append(malformedItems, item("id"), `["n", [NaN, "\ud83d\ude00", 1.5e3]]`) {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := redisinaction.ParseItem(raw)
		var fields []json.RawMessage
		valid := json.Unmarshal(raw, &fields) == nil
		if err != nil {
			return
		}
		if valid { // Go's own parser refuses NaN, which Python writes
			require.Contains(t, []int{2, 4}, len(fields))
			require.Equal(t, string(fields[len(fields)-1]), string(got.Args))
			var name string
			require.NoError(t, json.Unmarshal(fields[len(fields)-2], &name))
			require.Equal(t, name, got.Name)
		} else {
			require.Regexp(t, "NaN|Infinity", string(raw))
		}
	})
}

// bounded returns the test's context with a deadline.
func bounded(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}
