package sidekiq

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFieldReadsTheOutermostObjectOnly(t *testing.T) {
	t.Parallel()
	for payload, want := range map[string]string{
		`{"queue":"a"}`:                                      `"a"`,
		` { "queue" : "a" } `:                                `"a"`,
		`{"args":[{"queue":"in"}],"queue":"a"}`:              `"a"`,
		`{"queue":"a","args":{"queue":"in"}}`:                `"a"`,
		`{"queue":"a","queue":"b"}`:                          `"b"`,
		`{"qu\u0065ue":"a"}`:                                 `"a"`,
		`{"x":"\"queue\":\"b\"","queue":"a"}`:                `"a"`,
		`{"x":"}\\","queue":"a"}`:                            `"a"`,
		`{"queue":{"a":[1,{}]},"x":[]}`:                      `{"a":[1,{}]}`,
		`{"queue":1.0e+300}`:                                 `1.0e+300`,
		`{"queue":null}`:                                     `null`,
		`{"queue":"é漢\u2028"}`:                               `"é漢\u2028"`,
		"{\n\t\"queue\"\r\n:\t-0.0\n,\"b\":[ ],\"c\":{ }\n}": `-0.0`,
	} {
		got, found, err := field([]byte(payload), "queue")
		require.NoError(t, err, payload)
		require.True(t, found, payload)
		require.Equal(t, want, string(got), payload)
	}
	for _, payload := range []string{`{}`, `{"args":[{"queue":"in"}]}`, `{"queue ":1}`, `{"x":"queue"}`} {
		_, found, err := field([]byte(payload), "queue")
		require.NoError(t, err, payload)
		require.False(t, found, payload)
	}
}

func TestWhatIsNotAJobIsRefused(t *testing.T) {
	t.Parallel()
	for _, payload := range []string{
		``, ` `, `null`, `[]`, `"a"`, `1`, `{`, `}`, `{}x`, `{}{}`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{,}`,
		`{a:1}`, `{'a':1}`,
		`{"a":01}`, `{"a":1.}`, `{"a":.5}`, `{"a":-}`, `{"a":1e}`, `{"a":+1}`, `{"a":NaN}`, `{"a":Infinity}`,
		`{"a":tru}`,
		`{"a":[1 2]}`,
		`{"a":[1,]}`, `{"a":"\x"}`, `{"a":"\u12g4"}`, "{\"a\":\"\\u\x10000\"}", "{\"a\":\"\n\"}", "{\"a\":\"\x00\"}",
		`{"a":"`, `{"a":"\`, "{}\x00",
		`{"a":1 "b":2}`, `{"a" 1}`, `{"a":1}/* */`, nested(maxDepth),
	} {
		_, _, err := field([]byte(payload), "queue")
		require.ErrorIs(t, err, ErrPayload, payload)
		_, err = setField([]byte(payload), "queue", []byte(`1`))
		require.ErrorIs(t, err, ErrPayload, payload)
		_, _, err = dropField([]byte(payload), "queue")
		require.ErrorIs(t, err, ErrPayload, payload)
	}
	_, _, err := field([]byte(`{"secret":"word"} "secret"`), "queue")
	require.EqualError(t, err, "sidekiq: not a job in JSON: something follows the object at byte 18")
	require.NoError(t, members([]byte(nested(maxDepth-1)), func(member) {}))
}

// nested is a payload with n levels of array inside the object.
func nested(n int) string {
	return `{"a":` + strings.Repeat("[", n) + strings.Repeat("]", n) + `}`
}

func TestSetFieldTouchesOneValue(t *testing.T) {
	t.Parallel()
	for payload, want := range map[string]string{
		`{}`:                      `{"t":7}`,
		" {\n} ":                  " {\n\"t\":7} ",
		`{"a":"}"}`:               `{"a":"}","t":7}`,
		`{"a":1 } `:               `{"a":1 ,"t":7} `,
		`{"t":1.5,"a":[{"t":2}]}`: `{"t":7,"a":[{"t":2}]}`,
		`{"a":[{"t":2}],"t" : "x\"}" , "b":0.10}`: `{"a":[{"t":2}],"t" : 7 , "b":0.10}`,
		`{"t":1,"t":2}`:                        `{"t":1,"t":7}`,
		`{"\u0074":1}`:                         `{"\u0074":7}`,
		`{"a":12345678901234567890123,"b":[]}`: `{"a":12345678901234567890123,"b":[],"t":7}`,
	} {
		original := bytes.Clone([]byte(payload))
		got, err := setField(original, "t", []byte(`7`))
		require.NoError(t, err, payload)
		require.Equal(t, want, string(got))
		require.Equal(t, payload, string(original), "the payload itself was written to")
	}
}

func TestDropFieldLeavesNoTwin(t *testing.T) {
	t.Parallel()
	for payload, want := range map[string]string{
		`{"at":1}`:                             `{}`,
		`{"at":1,"a":2}`:                       `{"a":2}`,
		`{"a":2,"at":1}`:                       `{"a":2}`,
		`{"at":0,"a":[{"at":5}],"at":1,"b":2}`: `{"a":[{"at":5}],"b":2}`,
		`{"\u0061t":1,"b":" , "}`:              `{"b":" , "}`,
	} {
		got, dropped, err := dropField([]byte(payload), "at")
		require.NoError(t, err, payload)
		require.True(t, dropped)
		require.Equal(t, want, string(got))
	}
	got, dropped, err := dropField([]byte(`{ "a":[{"at":5}] }`), "at")
	require.NoError(t, err)
	require.False(t, dropped)
	require.Equal(t, `{ "a":[{"at":5}] }`, string(got))
}

func TestStringsAreEscapedAsRubyDoes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                        `""`,
		"a\"b\\c/d":               `"a\"b\\c/d"`,
		"\t\n\r\b\f\x01\x1f\x00":  `"\t\n\r\b\f\u0001\u001f\u0000"`,
		"é 漢字 🎉 \u2028\u2029\x7f": "\"é 漢字 🎉 \u2028\u2029\x7f\"",
		"<script>&amp;'</script>": `"<script>&amp;'</script>"`,
	} {
		require.Equal(t, want, string(appendString(nil, text)))
	}
}

// FuzzFields compares the scanner with encoding/json: both accept the same texts, and after a change of one member a
// decoder returns that member changed and no other.
func FuzzFields(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"queue":"a","enqueued_at":1700000000.5,"args":[{"enqueued_at":1}]}`,
		`{"a":"\u0022}\\","queue":{"a":[1,-0.0e+5]}}`,
		`{"queue":1,"queue":2}`, ` { "a" : [ ] } `, `{"a":"é\ud83c"}`, `{"qu\u0065ue":tru}`, nested(99), nested(100),
		`[{}]`, `{"a":1}x`,
	} {
		f.Add([]byte(seed), "queue")
	}
	f.Fuzz(func(t *testing.T, payload []byte, name string) {
		name = strings.ToValidUTF8(name, "?")
		value, found, err := field(payload, name)
		var want map[string]json.RawMessage
		valid := json.Unmarshal(payload, &want) == nil && want != nil
		if err != nil {
			require.ErrorIs(t, err, ErrPayload)
			require.True(t, !valid || depth(payload) > maxDepth, "refused %q: %v", payload, err)
			return
		}
		require.True(t, valid, "accepted %q", payload)
		checkField(t, payload, name, value, found, want)
	})
}

func checkField(
	t *testing.T, payload []byte, name string, value json.RawMessage, found bool, want map[string]json.RawMessage,
) {
	expected, there := want[name]
	require.Equal(t, there, found)
	require.Equal(t, string(expected), string(value))

	set, err := setField(payload, name, []byte(`[7]`))
	require.NoError(t, err)
	var got map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(set, &got), "%q", set)
	want[name] = json.RawMessage(`[7]`)
	require.Equal(t, want, got)

	dropped, did, err := dropField(payload, name)
	require.NoError(t, err)
	require.Equal(t, there, did)
	got = nil
	require.NoError(t, json.Unmarshal(dropped, &got), "%q", dropped)
	delete(want, name)
	require.Equal(t, want, got)
}

// depth returns how deep a text's brackets nest, without those in strings.
func depth(text []byte) int {
	deepest, now, quoted := 0, 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case !quoted && (c == '[' || c == '{'):
			now++
			deepest = max(deepest, now)
		case !quoted && (c == ']' || c == '}'):
			now--
		}
	}
	return deepest
}
