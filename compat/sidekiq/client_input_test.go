package sidekiq_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/lua"
)

// A finished payload that Ruby cannot write back is refused: its scheduler, which takes a job out of its set before it
// writes it, would lose it.
func TestFinishedPayloadsThatRubyCannotWriteAreRefused(t *testing.T) {
	t.Parallel()
	f := newFleet(t, sidekiq.Options{})
	many := ""
	for i := range 20 {
		many += fmt.Sprintf(`"n%d":1,`, i)
	}
	for _, row := range []struct {
		args, more string
		want       error
	}{
		{`[1e999]`, ``, sidekiq.ErrNumber},
		{`[-1E+999]`, ``, sidekiq.ErrNumber},
		{`[` + strings.Repeat("9", 310) + `.0]`, ``, sidekiq.ErrNumber},
		{`[]`, `,"n":1e999`, sidekiq.ErrNumber},
		{`["\ud800"]`, ``, sidekiq.ErrEncoding},
		{`[{"\udc00":1}]`, ``, sidekiq.ErrEncoding},
		{`[]`, `,"tags":["\ud800"]`, sidekiq.ErrEncoding},
		{`[{"a":1,"a":2}]`, ``, sidekiq.ErrArgs},
		{`[[{"a":{"b":1,"\u0062":2}}]]`, ``, sidekiq.ErrArgs},
		{`[{` + many + `"n7":2}]`, ``, sidekiq.ErrArgs},
		{`[]`, `,"tags":{"a":1,"a":2}`, sidekiq.ErrArgs},
		{`[]`, `,"retry":1,"retry":2`, sidekiq.ErrArgs},
		{`[]`, `,"class":"Other"`, sidekiq.ErrArgs},
		{`[]`, `,"args":[2]`, sidekiq.ErrArgs},
		// These are no faults.
		{`[{"a":{"a":[{"a":1}]}},{"a":2},{` + many + `"class":2}]`, `,"x":{"class":1},"a":"\ud83d\ude00"`, nil},
		{`[1e-999,1.5e308,` + strings.Repeat("9", 400) + `]`, ``, nil},
	} {
		payload := fmt.Appendf(nil, `{"class":"W","queue":"q","args":%s,"jid":"j"%s}`, row.args, row.more)
		first := []byte(`{"class":"W","queue":"q","args":[],"jid":"j"}`) // a head that the next one shares
		for _, jobs := range [][]sidekiq.Job{{{Payload: payload}},
			{{Payload: first}, {Payload: payload, In: time.Hour}}} {
			_, err := f.d.PushBulk(f.ctx, jobs)
			require.ErrorIs(t, err, row.want, "%s", payload)
		}
	}
	require.Len(t, f.queue("q"), 4)
}

// Faults of a job are found before anything is sent, and the error names the job by its index.
func TestBadJobsAreRefused(t *testing.T) {
	t.Parallel()
	f := newFleet(t, sidekiq.Options{})
	v8 := f.through(f.client, sidekiq.Options{Version: sidekiq.V8})
	done := `{"class":"W","args":[],"queue":"q","jid":"j"%s}`
	for i, row := range []struct {
		job  sidekiq.Job
		want error
	}{
		{sidekiq.Job{}, sidekiq.ErrClass},
		{sidekiq.Job{Class: "W", Args: json.RawMessage(`{"a":1}`)}, sidekiq.ErrArgs},
		{sidekiq.Job{Class: "W", Args: json.RawMessage(`"a"`)}, sidekiq.ErrArgs},
		{sidekiq.Job{Class: "W", Args: json.RawMessage(`[1`)}, sidekiq.ErrArgs},
		{sidekiq.Job{Class: "W", Args: json.RawMessage(` `)}, sidekiq.ErrArgs},
		{sidekiq.Job{Class: "W", Args: json.RawMessage(`[1e999]`)}, sidekiq.ErrNumber},
		{sidekiq.Job{Class: "W", Args: json.RawMessage("[\"\xff\"]")}, sidekiq.ErrEncoding},
		{sidekiq.Job{Class: "W\xff"}, sidekiq.ErrEncoding},
		{sidekiq.Job{Class: "W", Queue: "\xff"}, sidekiq.ErrEncoding},
		{sidekiq.Job{Class: "W", JID: "\xff"}, sidekiq.ErrEncoding},
		{sidekiq.Job{Class: "W", Fields: []sidekiq.Field{{Name: "at", Value: args(1)}}}, sidekiq.ErrField},
		{sidekiq.Job{Class: "W", Fields: []sidekiq.Field{{Name: "", Value: args(1)}}}, sidekiq.ErrField},
		{sidekiq.Job{Class: "W", Fields: []sidekiq.Field{{Name: "tags", Value: args(1)},
			{Name: "tags", Value: args(1)}}},
			sidekiq.ErrField},
		{sidekiq.Job{Class: "W", Fields: []sidekiq.Field{{Name: "retry", Value: args(1)},
			{Name: "retry", Value: args(1)}}},
			sidekiq.ErrField},
		{sidekiq.Job{Class: "W", Fields: []sidekiq.Field{{Name: "tags"}}}, sidekiq.ErrField},
		{sidekiq.Job{Class: "W", Fields: []sidekiq.Field{{Name: "retry", Value: json.RawMessage(`x`)}}},
			sidekiq.ErrField},
		{sidekiq.Job{Class: "W", At: time.Date(1969, 1, 1, 0, 0, 0, 0, time.UTC)}, sidekiq.ErrTime},
		{sidekiq.Job{Class: "W", At: time.Date(10001, 1, 1, 0, 0, 0, 0, time.UTC)}, sidekiq.ErrTime},
		{sidekiq.Job{Payload: []byte(`null`)}, sidekiq.ErrPayload},
		{sidekiq.Job{Payload: []byte(`{"args":[],"queue":"q","jid":"j"}`)}, sidekiq.ErrClass},
		{sidekiq.Job{Payload: []byte(`{"class":"W","args":{},"queue":"q","jid":"j"}`)}, sidekiq.ErrArgs},
		{sidekiq.Job{Payload: []byte(`{"class":"W","args":[],"jid":"j"}`)}, sidekiq.ErrPayload},
		{sidekiq.Job{Payload: []byte(`{"class":"W","args":[],"queue":"q","jid":1}`)}, sidekiq.ErrPayload},
		{sidekiq.Job{Payload: []byte("{\"class\":\"W\",\"args\":[\"\xff\"],\"queue\":\"q\",\"jid\":\"j\"}")},
			sidekiq.ErrEncoding},
		{sidekiq.Job{Payload: fmt.Appendf(nil, done, `,"at":"x"`)}, sidekiq.ErrTime},
		{sidekiq.Job{Payload: fmt.Appendf(nil, done, `,"at":1e300`)}, sidekiq.ErrNumber},
		{sidekiq.Job{Payload: fmt.Appendf(nil, done, `,"created_at":"x"`)}, sidekiq.ErrTime},
		// Sidekiq 8 would read 1970.
		{sidekiq.Job{Payload: fmt.Appendf(nil, done, `,"failed_at":1700000000`)}, sidekiq.ErrTime},
		{sidekiq.Job{Payload: fmt.Appendf(nil, done, `,"enqueued_at":1700000000`)}, sidekiq.ErrTime},
		{sidekiq.Job{Payload: fmt.Appendf(nil, done, `,"enqueued_at":1700000000000.5`)}, sidekiq.ErrTime},
	} {
		_, err := f.d.PushBulk(f.ctx, []sidekiq.Job{{Class: "fine"}, row.job})
		require.ErrorIs(t, err, row.want, "row %d", i)
		require.ErrorContains(t, err, "sidekiq: push: job 1: ")
	}
	_, err := v8.Push(f.ctx, sidekiq.Job{Payload: fmt.Appendf(nil, done, `,"enqueued_at":1700000000`)})
	require.ErrorIs(t, err, sidekiq.ErrTime)
	for _, fine := range []string{`,"enqueued_at":1700000000000`, `,"enqueued_at":1700000000.0`} {
		_, err = v8.Push(f.ctx, sidekiq.Job{Payload: fmt.Appendf(nil, done, fine)})
		require.NoError(t, err)
	}
	require.EqualValues(t, 2, f.client.LLen(f.ctx, f.key("queue:q")).Val())
	require.Zero(t, f.client.Exists(f.ctx, f.key("queue:default"), f.key("schedule")).Val())
	_, err = f.d.Push(f.ctx, sidekiq.Job{Class: "W", Args: json.RawMessage(`["` + strings.Repeat("x", 1<<20) + `"]`)})
	require.ErrorIs(t, err, lua.ErrTooLarge)
}

func TestArgs(t *testing.T) {
	t.Parallel()
	type point struct{ X int }
	got, err := sidekiq.Args(nil, true, 1, uint64(1)<<63, 2.0, float32(0.5), "a<é", []any{1.0, nil},
		map[string]any{"b": 3.0, "a": []any(nil)}, point{4}, json.RawMessage(`[5]`), []any(nil), map[string]any(nil))
	require.NoError(t, err)
	require.Equal(t,
		`[null,true,1,9223372036854775808,2.0,0.5,"a<é",[1.0,null],{"a":null,"b":3.0},{"X":4},[5],null,null]`,
		string(got))
	for want, value := range map[error]any{sidekiq.ErrEncoding: "\xff", sidekiq.ErrArgs: make(chan int)} {
		_, err = sidekiq.Args(1, value)
		require.ErrorIs(t, err, want)
		require.ErrorContains(t, err, "argument 1: ")
	}
	_, err = sidekiq.Args([]any{map[string]any{"a": nan()}})
	require.ErrorIs(t, err, sidekiq.ErrNumber)
	_, err = sidekiq.Args(map[string]any{"\xff": 1})
	require.ErrorIs(t, err, sidekiq.ErrEncoding)
	for _, value := range []any{[]string{"\xff"}, map[string]string{"\xff": "\xfe"}, struct{ A string }{"\xff"},
		sidekiq.Keywords{"a": "\xff"}, []sidekiq.Symbol{"\xff"}, sidekiq.GlobalID("\xff")} {
		_, err = sidekiq.Args(value)
		require.ErrorIs(t, err, sidekiq.ErrEncoding, "%#v", value)
	}
	for _, value := range []any{[]float64{nan()}, struct{ F float64 }{nan()}, float32(nan()),
		sidekiq.Keywords{"a": nan()}} {
		_, err = sidekiq.Args(value)
		require.ErrorIs(t, err, sidekiq.ErrNumber, "%#v", value)
	}
	got, err = sidekiq.Args(float32(0.1), float32(16777216), sidekiq.Keywords{"ratio": 2.0, "n": 2, "in": []any{1.0}})
	require.NoError(t, err)
	require.Equal(t, `[0.1,16777216.0,{"_aj_ruby2_keywords":["in","n","ratio"],"in":[1.0],"n":2,"ratio":2.0}]`,
		string(got))
}

func nan() float64 {
	zero := 0.0
	return zero / zero
}

func TestNewChecksItsOptions(t *testing.T) {
	t.Parallel()
	for _, v := range []sidekiq.Version{-1, 1, 3, 9} {
		_, err := sidekiq.New(new(redis.Client), &sidekiq.Options{Version: v})
		require.ErrorIs(t, err, sidekiq.ErrVersion)
	}
	for _, ns := range []string{"a b", "\xff", strings.Repeat("x", 129), "a\n"} {
		_, err := sidekiq.New(new(redis.Client), &sidekiq.Options{Namespace: ns})
		require.ErrorIs(t, err, sidekiq.ErrNamespace)
	}
	d, err := sidekiq.New(new(redis.Client), nil)
	require.NoError(t, err)
	require.Equal(t, sidekiq.V7, d.Version())
}
