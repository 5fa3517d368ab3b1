package actionhero_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/actionhero"
)

// captured returns the messages of a channel between two real nodes.
func captured(t *testing.T, version string) []string {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", "wire", version+".ndjson"))
	require.NoError(t, err)
	defer f.Close()
	var lines []string
	for s := bufio.NewScanner(f); s.Scan(); {
		lines = append(lines, s.Text())
	}
	require.Greater(t, len(lines), 20)
	return lines
}

func TestCapturedMessagesAreWrittenByteForByte(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"12.5.0", "14.0.12", "29.3.5"} {
		for _, line := range captured(t, version) {
			got, ok := actionhero.Recode(line)
			require.True(t, ok, line)
			require.Equal(t, line, got, version)
		}
	}
}

func TestCapturedResponsesAreRead(t *testing.T) {
	t.Parallel()
	read := func(version string, era actionhero.Era) map[string]bool {
		seen := map[string]bool{}
		for _, line := range captured(t, version) {
			if !strings.HasPrefix(line, `{"messageType":"doResponse"`) {
				continue
			}
			r, err := actionhero.ParseResponse(line, era)
			require.Contains(t, []string{"node-A", "node-B"}, r.ServerID)
			if era == actionhero.Callback {
				require.NotNil(t, r.Values, line)
			} else {
				require.Nil(t, r.Values, line)
			}
			seen[string(r.Raw)] = true
			if string(r.Raw) == "[{}]" {
				require.ErrorIs(t, err, actionhero.ErrRemote)
			} else {
				require.NoError(t, err)
			}
		}
		return seen
	}
	for _, version := range []string{"12.5.0", "14.0.12"} {
		seen := read(version, actionhero.Callback)
		for _, want := range []string{`["hi"]`, `["abc",null]`, `[null,"xyz"]`, `[5,null]`, `[{"a":1},null]`, `[{}]`,
			`[{},{"v":1}]`, `[]`, `[10,9,"aa",null,"zz"]`} {
			require.True(t, seen[want], "%s: %s", version, want)
		}
	}
	seen := read("29.3.5", actionhero.Promise)
	for _, want := range []string{`"hi"`, ``, `null`, `[null,"x"]`, `{"a":1,"b":[2]}`, `{}`} {
		require.True(t, seen[want], want)
	}
}

func TestResponsesAreDecoded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text  string
		era   actionhero.Era
		value string // of Decode
		err   string
	}{
		{`{"requestId":"1","response":["hi"]}`, actionhero.Callback, `"hi"`, ""},
		{`{"requestId":"1","response":["abc",null]}`, actionhero.Callback, `"abc"`, ""},
		{`{"requestId":"1","response":[null,"xyz"]}`, actionhero.Callback, `"xyz"`, ""},
		{`{"requestId":"1","response":[10,9,"aa",null,"zz"]}`, actionhero.Callback, "", "several values"},
		{`{"requestId":"1","response":[]}`, actionhero.Callback, "", "no value"},
		{`{"requestId":"1","response":[null,null,null]}`, actionhero.Callback, "", "no value"},
		{`{"requestId":"1"}`, actionhero.Callback, "", "no value"},
		{`{"requestId":"1","response":"hi"}`, actionhero.Callback, `"hi"`, ""},
		{`{"requestId":"1","response":["hi"]}`, actionhero.Promise, `"hi"`, ""}, // an old node in a new cluster
		{`{"requestId":"1","response":["hi"]}`, actionhero.Promise18, `["hi"]`, ""},
		{`{"messageId":"1","response":["hi"]}`, actionhero.Promise, `["hi"]`, ""},
		{`{"messageId":"1","response":["hi"]}`, actionhero.Callback, `["hi"]`, ""}, // a new node in an old cluster
		{`{"messageId":"1","response":12345678901234567890}`, actionhero.Promise, `12345678901234567890`, ""},
		{`{"messageId":"1"}`, actionhero.Promise, "", "no value"},
		{`{"messageId":"1","response":[{}]}`, actionhero.Promise, `[{}]`, ""}, // a list with an object
	} {
		r, err := actionhero.ParseResponse(c.text, c.era)
		require.NoError(t, err, c.text)
		var v json.RawMessage
		if err = r.Decode(&v); c.err != "" {
			require.ErrorContains(t, err, c.err, c.text)
			continue
		}
		require.NoError(t, err, c.text)
		require.Equal(t, c.value, string(v), c.text)
	}
}

func TestAnErrorAloneIsRemote(t *testing.T) {
	t.Parallel()
	r, err := actionhero.ParseResponse(`{"serverId":"n","requestId":"1","response":[ { } ]}`, actionhero.Callback)
	require.ErrorIs(t, err, actionhero.ErrRemote)
	require.Equal(t, "n", r.ServerID)
}

// A process of the callback era ends on a response that is not a list.
func TestRepliesHaveTheFormOfTheCallersEra(t *testing.T) {
	t.Parallel()
	failed := errors.New("no")
	for _, c := range []struct {
		request, message string
		era              actionhero.Era
		value            any
		failed           error
		want             string // empty: no response
	}{
		{"1", "", actionhero.Callback, "hi", nil, `["hi"]`},
		{"1", "", actionhero.Callback, 3, nil, `[3]`},
		{"1", "", actionhero.Callback, nil, nil, `[]`},
		{"1", "", actionhero.Callback, []int{1, 2}, nil, `[[1,2]]`},
		{"1", "", actionhero.Callback, actionhero.Args{nil, "x"}, nil, `[null,"x"]`},
		{"1", "", actionhero.Callback, actionhero.Args(nil), nil, `[]`},
		{"1", "", actionhero.Callback, nil, failed, `[{}]`},
		{"1", "", actionhero.Promise, "hi", nil, `["hi"]`}, // era unknown: a form that harms neither
		{"1", "", actionhero.Promise18, "hi", nil, `"hi"`},
		{"1", "", actionhero.Promise18, "hi", failed, ``},
		{"", "1", actionhero.Promise, "<hi>", nil, `"<hi>"`},
		{"", "1", actionhero.Promise, nil, nil, `null`},
		{"", "1", actionhero.Promise, actionhero.Args{nil, "x"}, nil, `[null,"x"]`},
		{"", "1", actionhero.Promise, actionhero.Args(nil), nil, `[]`},
		{"", "1", actionhero.Callback, 3, nil, `3`},
		{"", "1", actionhero.Promise, "hi", failed, ``},
		{"1", "1", actionhero.Callback, "hi", nil, `"hi"`}, // another Go node
	} {
		got, answer, err := actionhero.Reply(c.request, c.message, c.era, c.value, c.failed)
		require.NoError(t, err)
		require.Equal(t, c.want, string(got), "%+v", c)
		require.Equal(t, c.want != "", answer, "%+v", c)
	}
}

// As JavaScript reads them.
func TestCallsAreReadAsANodeReadsThem(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text, connection string
		one              bool
		args             string
	}{
		{`{}`, "", false, `null`},
		{`{"connectionId":null,"args":null}`, "", false, `null`},
		{`{"connectionId":"","args":[]}`, "", false, `[]`},
		{`{"connectionId":0,"args":"scalar"}`, "", false, `["scalar"]`},
		{`{"connectionId":false,"args":{"a":1}}`, "", false, `[{"a":1}]`},
		{`{"connectionId":"c1","args":[1,[2],null]}`, "c1", true, `[1,[2],null]`},
		{`{"connectionId":7,"args":0}`, "7", true, `[0]`},
	} {
		connection, one, args := actionhero.Addressed(c.text)
		got, err := json.Marshal(args)
		require.NoError(t, err)
		require.Equal(t, c.connection, connection, c.text)
		require.Equal(t, c.one, one, c.text)
		require.Equal(t, c.args, string(got), c.text)
	}
}

func FuzzMessages(f *testing.F) {
	f.Add(`{"messageType":"do","serverToken":"t","requestId":"1","method":"api.a","args":[1]}`)
	f.Add(`null`)
	f.Add(`{"messageType":"doResponse","messageId":"1","response":[null]}`)
	f.Fuzz(func(t *testing.T, text string) {
		again, ok := actionhero.Recode(text)
		if !ok {
			return
		}
		require.True(t, json.Valid([]byte(again)))
		actionhero.Addressed(text)
		for _, era := range []actionhero.Era{actionhero.Promise, actionhero.Promise18, actionhero.Callback} {
			r, err := actionhero.ParseResponse(text, era)
			if err == nil && len(r.Raw) > 0 {
				require.True(t, json.Valid(r.Raw))
			}
		}
	})
}
