package wire

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFrames(t *testing.T) {
	t.Parallel()
	var s Sealer
	ext := Ext{Headers: map[string]string{"a": "1", "b": ""}, Node: "n", Connection: "c", Details: "d", Load: 300,
		State: StateLost, Millis: 5000, Beside: "b", Digest: "e"}
	long := Ext{Details: strings.Repeat("x", 1000)}
	want := &Request{ID: "id", Method: "m", Flags: FlagStream, Keep: 2 * time.Millisecond, Ext: ext,
		Body: []byte("b\x00")}
	q, err := DecodeRequest(string(want.Encode()), 0, 0, &s)
	require.NoError(t, err)
	require.Equal(t, want, q)
	for _, want := range []Frame{
		&Answer{ID: "id", Body: []byte("out")},
		&Answer{ID: "id", Body: []byte("out"), Ext: ext},
		&Answer{ID: "id", Failure: &Failure{Code: "c", Message: "m"}, Ext: long},
		&Chunk{ID: "id", Seq: 300, Body: []byte("x")},
		&Body{ID: "id", Body: []byte("x")},
		&Notice{Kind: RequestStored, Texts: []string{"a", "", "c"}},
	} {
		got, err := Decode(string(want.Encode()), &s)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}

	item := fmt.Sprintf("12 5000 %d\n%s", len(want.Encode()), want.Encode())
	got, err := Decode(item, &s)
	require.NoError(t, err)
	want.Attempt, want.Left = 12, 5*time.Second
	require.Equal(t, want, got)
	_, left, size, head, ok := cutHeader("12 5000 7\nrest\n")
	require.True(t, ok)
	require.Equal(t, []any{5 * time.Second, 7, 10}, []any{left, size, head})
	for _, bad := range []string{
		"", "1 5000 1", "1\nx", "1 5\nx", "1 -1 1\nx", "1 99999999999999 1\nx", "1 86400001 1\nx", " 1 1\nx",
		"1 1e3 1\nx",
		"01 5 1\nx", "1 05 1\nx", "1 5 01\nx", "1 5 9999999999\nx", "1 5 1 1\nx",
	} {
		_, _, _, _, ok := cutHeader(bad)
		require.False(t, ok, bad)
	}
}

// Scripts put several items into one message. Each is read by itself; a length that is wrong ends the message.
func TestItemsOfAMessage(t *testing.T) {
	t.Parallel()
	item, rest, err := Next("1 5 3\nabc0 0 1\nx")
	require.NoError(t, err)
	require.Equal(t, []string{"1 5 3\nabc", "0 0 1\nx"}, []string{item, rest})
	item, rest, err = Next(rest)
	require.NoError(t, err)
	require.Equal(t, []string{"0 0 1\nx", ""}, []string{item, rest})
	item, rest, err = Next("P\x02")
	require.NoError(t, err)
	require.Equal(t, []string{"P\x02", ""}, []string{item, rest})
	for _, bad := range []string{"1 5 4\nabc", "1 5\nabc", "9"} {
		_, _, err = Next(bad)
		require.ErrorIs(t, err, ErrMalformed, bad)
	}
}

// A process of a later version may add fields, which this one skips. What it must not skip, a flag or another layout,
// is an error that names the request, so that it can be answered.
func TestFramesOfALaterVersion(t *testing.T) {
	t.Parallel()
	var s Sealer
	later := "Q\x02\x02id\x01m\x00\x00" + "\x08" + "\x02\x01n" + "\x63\x03new" + "\x01b"
	q, err := DecodeRequest(later, 1, time.Second, &s)
	require.NoError(t, err)
	require.Equal(t, &Request{ID: "id", Method: "m", Ext: Ext{Node: "n"}, Body: []byte("b"), Attempt: 1,
		Left: time.Second}, q)
	for frame, want := range map[string]UnreadableError{
		"Q\x03\x02id and what version 3 has":    {ID: "id", Version: 3},
		"Q\x02\x02id\x01m\x40\x00\x00\x01b":     {ID: "id", Flags: 64},
		"Q\x02\x02id\x01m\x00\x00\x09\x02":      {ID: "id"},
		"Q\x02\x02id\x01m\x00\x00\x02\x05\x00b": {ID: "id"},
	} {
		_, err := DecodeRequest(frame, 1, time.Second, &s)
		var e *UnreadableError
		require.ErrorAs(t, err, &e, "%q", frame)
		require.ErrorIs(t, err, ErrMalformed)
		want.Request, want.Attempt, want.Left = true, 1, time.Second
		require.Equal(t, want, *e)
		require.NotEmpty(t, e.Error())
	}
	_, err = Decode("R\x03\x02id whatever", &s)
	var e *UnreadableError
	require.ErrorAs(t, err, &e)
	require.Equal(t, UnreadableError{ID: "id", Version: 3}, *e)
}

// The bounds of headers hold for what is read, too.
func TestTooManyHeadersAreRefused(t *testing.T) {
	t.Parallel()
	headers := make(map[string]string)
	for i := range 1000 {
		headers[fmt.Sprint(i)] = ""
	}
	for _, bad := range []map[string]string{headers, {"k": strings.Repeat("x", MaxHeaderBytes)}} {
		q := &Request{ID: "id", Method: "m", Ext: Ext{Headers: bad}}
		_, err := DecodeRequest(string(q.Encode()), 1, 0, &Sealer{})
		require.ErrorIs(t, err, ErrMalformed)
	}
}

// Bytes that no encoder writes are refused: a request without its header, an unknown kind or version, the wrong number
// of texts, a number that is longer than needed, bytes behind the end.
func TestMalformedFramesAreRefused(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{
		"", "R", "R\x01\x02id\x00\x00", "R\x02\x02id\x00", "R\x02\x02id\x00\x00x", "R\x02\x82\x00id\x00\x00",
		"Q\x02\x02id\x01m\x00\x00\x00\x01b", "X\x02", "X\x02\x01a\x01b", "K\x02\x01a", "U\x02", "D\x02", "Z\x02",
		"U\x01\x01a",
		"1 5 5\nR\x02\x02id", "C\x03\x01a\x01\x00", "B\x03\x01a\x00", "\x00",
	} {
		f, err := Decode(bad, &Sealer{})
		require.ErrorIs(t, err, ErrMalformed, "%q", bad)
		require.Nil(t, f)
	}
}

// Anything may arrive on a channel. It is decoded or refused, nothing panics, and what is decoded is the same when it
// is encoded and decoded again.
func FuzzDecode(f *testing.F) {
	q := &Request{ID: "id", Method: "m", Ext: Ext{Headers: map[string]string{"a": "b"}}, Body: []byte("b")}
	f.Add(string(q.Encode()))
	f.Add(fmt.Sprintf("1 5000 %d\n%s", len(q.Encode()), q.Encode()))
	for _, frame := range []Frame{
		&Answer{ID: "id"}, &Answer{ID: "id", Failure: &Failure{}, Ext: Ext{Load: 3}}, &Chunk{ID: "id", Seq: 1},
		&Notice{Kind: RequestStored, Texts: []string{"a", "b"}}, &Notice{Kind: Echo}, &Body{ID: "id"},
	} {
		f.Add(string(frame.Encode()))
	}
	f.Add("Q\x02\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff")
	f.Add("0 0 8\nQ\x02\x80\x00\x00\x00\x00\x00")
	f.Fuzz(func(t *testing.T, message string) {
		for _, s := range []*Sealer{{}, {Keys: [][]byte{[]byte("k")}, Bus: "b"}} {
			_, _ = DecodeRequest(message, 1, 0, s)
			item, _, err := Next(message)
			if err != nil {
				continue
			}
			frame, err := Decode(item, s)
			if err != nil {
				require.Nil(t, frame)
				continue
			}
			sealed := string(s.Seal(frame.Encode()))
			if q, ok := frame.(*Request); ok {
				sealed = fmt.Sprintf("%d %d %d\n%s", q.Attempt, q.Left.Milliseconds(), len(sealed), sealed)
			}
			again, err := Decode(sealed, s)
			require.NoError(t, err)
			require.Equal(t, frame, again)
		}
	})
}

// C9: a frame holds how much time is left and no time of day, so it is the same whenever it is made, and no clock of
// one machine is compared with that of another.
func TestRPCFramesHoldNoTimeOfDay(t *testing.T) {
	t.Parallel()
	q := Request{ID: "id", Method: "m", Keep: time.Minute, Body: []byte("b")}
	require.Equal(t, "Q\x02\x02id\x01m\x00\xe0\xd4\x03\x00\x01b", string(q.Encode()))
	got, err := Decode("1 250 14\n"+string(q.Encode()), &Sealer{})
	require.NoError(t, err)
	require.Equal(t, 250*time.Millisecond, got.(*Request).Left)
}
