package wire

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFrames(t *testing.T) {
	t.Parallel()
	var s Sealer
	want := &Request{ID: "id", Method: "m", Flags: FlagStream, Keep: 2 * time.Millisecond, Body: []byte("b\x00")}
	q, err := DecodeRequest(string(want.Encode()), 0, 0, &s)
	require.NoError(t, err)
	require.Equal(t, want, q)
	for _, want := range []Frame{
		&Answer{ID: "id", Body: []byte("out")},
		&Answer{ID: "id", Failure: &Failure{Code: "c", Message: "m"}},
		&Part{Node: "n", Answer: Answer{ID: "id", Body: []byte("out")}},
		&Part{Node: "n", Answer: Answer{ID: "id", Failure: &Failure{Code: "c", Message: "m"}}},
		&Chunk{ID: "id", Seq: 300, Body: []byte("x")},
		&Notice{Kind: RequestStored, Texts: []string{"a", "", "c"}},
	} {
		got, err := Decode(string(want.Encode()), &s)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}

	got, err := Decode("12 5000\n"+string(want.Encode()), &s)
	require.NoError(t, err)
	want.Attempt, want.Left = 12, 5*time.Second
	require.Equal(t, want, got)
	_, left, frame, ok := cutHeader("12 5000\nrest\n")
	require.True(t, ok)
	require.Equal(t, []any{5 * time.Second, "rest\n"}, []any{left, frame})
	for _, bad := range []string{
		"", "1 5000", "1\nx", "1 -1\nx", "1 99999999999999\nx", "1 86400001\nx", " 1\nx", "1 1e3\nx", "01 5\nx", "1 05\nx",
	} {
		_, _, _, ok := cutHeader(bad)
		require.False(t, ok, bad)
	}
}

// Bytes that no encoder writes are refused: a request without its header, an unknown kind or version, the wrong number
// of texts, a number that is longer than needed, bytes behind the end.
func TestMalformedFramesAreRefused(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{
		"", "R", "R\x02\x02id\x00", "R\x01\x02id", "R\x01\x02id\x00x", "R\x01\x82\x00id\x00", "Q\x01\x00\x00\x02id\x01m\x01b",
		"X\x01", "X\x01\x01a\x01b", "K\x01\x01a", "U\x01", "D\x01", "Z\x01", "1 5\nR\x01\x02id\x00", "\x00",
	} {
		f, err := Decode(bad, &Sealer{})
		require.ErrorIs(t, err, ErrMalformed, "%q", bad)
		require.Nil(t, f)
	}
}

// Anything may arrive on a channel. It is decoded or refused, nothing panics, and what is decoded encodes to the same
// bytes.
func FuzzDecode(f *testing.F) {
	q := &Request{ID: "id", Method: "m", Body: []byte("b")}
	f.Add(string(q.Encode()))
	f.Add("1 5000\n" + string(q.Encode()))
	for _, frame := range []Frame{
		&Answer{ID: "id"}, &Answer{ID: "id", Failure: &Failure{}}, &Part{Node: "n", Answer: Answer{ID: "id"}},
		&Part{Answer: Answer{ID: "id", Failure: &Failure{Code: "c"}}}, &Chunk{ID: "id", Seq: 1},
		&Notice{Kind: RequestStored, Texts: []string{"a", "b"}}, &Notice{Kind: Echo},
	} {
		f.Add(string(frame.Encode()))
	}
	f.Add("Q\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff")
	f.Add("0 0\nQ\x01\x80\x00\x00\x00\x00\x00")
	f.Fuzz(func(t *testing.T, payload string) {
		for _, s := range []*Sealer{{}, {Keys: [][]byte{[]byte("k")}, Bus: "b"}} {
			_, _ = DecodeRequest(payload, 1, 0, s)
			frame, err := Decode(payload, s)
			if err != nil {
				require.Nil(t, frame)
				continue
			}
			header := ""
			if q, ok := frame.(*Request); ok {
				header = fmt.Sprintf("%d %d\n", q.Attempt, q.Left.Milliseconds())
			}
			require.Equal(t, payload, header+string(s.Seal(frame.Encode())))
		}
	})
}

// C9: a frame holds how much time is left and no time of day, so it is the same whenever it is made, and no clock of
// one machine is compared with that of another.
func TestRPCFramesHoldNoTimeOfDay(t *testing.T) {
	t.Parallel()
	q := Request{ID: "id", Method: "m", Keep: time.Minute, Body: []byte("b")}
	require.Equal(t, "Q\x01\x00\xe0\xd4\x03\x02id\x01m\x01b", string(q.Encode()))
	got, err := Decode("1 250\n"+string(q.Encode()), &Sealer{})
	require.NoError(t, err)
	require.Equal(t, 250*time.Millisecond, got.(*Request).Left)
}
