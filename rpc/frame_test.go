package rpc

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFrames(t *testing.T) {
	t.Parallel()
	want := request{id: "id", method: "m", flags: flagStream, keep: 2 * time.Millisecond, body: []byte("b\x00")}
	q, err := decodeRequest(string(want.encode()))
	require.NoError(t, err)
	require.Equal(t, want, q)
	for _, want := range []response{
		{id: "id", body: []byte("out")},
		{id: "id", node: "n", body: []byte("out")},
		{id: "id", err: &RemoteError{Code: "c", Message: "m"}},
		{id: "id", node: "n", err: &RemoteError{Code: "c", Message: "m"}},
	} {
		a, err := decodeAnswer(string(want.encode()))
		require.NoError(t, err)
		require.Equal(t, want, a)
	}
	part := chunk{id: "id", seq: 300, body: []byte("x")}
	c, err := decodeChunk(string(part.encode()))
	require.NoError(t, err)
	require.Equal(t, part, c)
	texts, err := decodeWord(string(encodeWord('L', "a", "", "c")))
	require.NoError(t, err)
	require.Equal(t, []string{"a", "", "c"}, texts)

	attempt, left, frame, ok := cutHeader("12 5000\nrest\n")
	require.True(t, ok)
	require.Equal(t, []any{int64(12), int64(5000), "rest\n"}, []any{attempt, left, frame})
	for _, bad := range []string{"", "1 5000", "1\nx", "1 -1\nx", "1 99999999999999\nx", "1 86400001\nx", " 1\nx", "1 1e3\nx"} {
		_, _, _, ok := cutHeader(bad)
		require.False(t, ok, bad)
	}
}

// Whoever has none of the keys can neither ask nor answer; either of two keys will do,
// and so keys are changed while nodes run.
func TestFramesProveTheirOrigin(t *testing.T) {
	t.Parallel()
	open := func(name string, keys ...string) *Bus {
		opts := &Options{}
		for _, k := range keys {
			opts.Keys = append(opts.Keys, []byte(k))
		}
		b, err := NewBus(nil, name, opts)
		require.NoError(t, err)
		return b
	}
	old, both, other := open("b", "old"), open("b", "new", "old"), open("b", "other")
	frame := string(old.seal(encodeWord('P', "x")))
	plain, err := both.open(frame)
	require.NoError(t, err)
	require.Equal(t, string(encodeWord('P', "x")), plain)
	for _, b := range []*Bus{other, open("another bus", "old")} {
		_, err = b.open(frame)
		require.ErrorIs(t, err, errForged)
	}
	for i := range frame {
		bent := []byte(frame)
		bent[i] ^= 1
		_, err = both.open(string(bent))
		require.ErrorIs(t, err, errForged, "byte %d", i)
	}
	_, err = both.open("short")
	require.ErrorIs(t, err, errForged)
}

// Anything may arrive on a channel: it is decoded or refused, and nothing panics.
func FuzzFrames(f *testing.F) {
	q := request{id: "id", method: "m", body: []byte("b")}
	f.Add(string(q.encode()))
	f.Add("1 5000\n" + string(q.encode()))
	for _, a := range []response{{id: "id"}, {id: "id", node: "n"}, {id: "id", err: &RemoteError{}}} {
		f.Add(string(a.encode()))
	}
	f.Add(string((&chunk{id: "id", seq: 1}).encode()))
	f.Add(string(encodeWord('L', "a", "b")))
	f.Add("Q\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff")
	f.Fuzz(func(t *testing.T, s string) {
		if _, _, frame, ok := cutHeader(s); ok {
			require.Less(t, len(frame), len(s))
		}
		if q, err := decodeRequest(s); err == nil {
			again, err := decodeRequest(string(q.encode()))
			require.NoError(t, err)
			require.Equal(t, q, again)
		}
		if a, err := decodeAnswer(s); err == nil {
			again, err := decodeAnswer(string(a.encode()))
			require.NoError(t, err)
			if a.node == "" && s[0] > 'Z' {
				return // a part without a node is nobody's
			}
			require.Equal(t, a, again)
		}
		if c, err := decodeChunk(s); err == nil {
			again, err := decodeChunk(string(c.encode()))
			require.NoError(t, err)
			require.Equal(t, c, again)
		}
		if texts, err := decodeWord(s); err == nil && s != "" {
			again, err := decodeWord(string(encodeWord(s[0], texts...)))
			require.NoError(t, err)
			require.Equal(t, texts, again)
		}
	})
}

// C9: what travels says how much time is left, and is the same whenever it is made: no
// clock of one machine is compared with that of another.
func TestRPCFramesHoldNoTimeOfDay(t *testing.T) {
	t.Parallel()
	q := request{id: "id", method: "m", keep: time.Minute, body: []byte("b")}
	require.Equal(t, "Q\x01\x00\xe0\xd4\x03\x02id\x01m\x01b", string(q.encode()))
	_, left, _, ok := cutHeader("1 250\n" + string(q.encode()))
	require.True(t, ok)
	require.Equal(t, int64(250), left)
}
