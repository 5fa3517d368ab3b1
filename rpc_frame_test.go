package luatomic

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFrames(t *testing.T) {
	t.Parallel()
	q, err := decodeRequest(string(encodeRequest("id", "m", 1500*time.Microsecond, []byte("b\x00"))))
	require.NoError(t, err)
	require.Equal(t, request{id: "id", method: "m", timeout: 2 * time.Millisecond, body: []byte("b\x00")}, q)
	r, err := decodeReply(string(encodeReply("id", []byte("out"))))
	require.NoError(t, err)
	require.Equal(t, reply{id: "id", body: []byte("out")}, r)
	r, err = decodeReply(string(encodeFailure("id", &RemoteError{Code: "c", Message: "m"})))
	require.NoError(t, err)
	require.Equal(t, &RemoteError{Code: "c", Message: "m"}, r.err)
}

// Anything may arrive on a channel: it is decoded or refused, and nothing panics.
func FuzzFrames(f *testing.F) {
	f.Add(string(encodeRequest("id", "m", time.Second, []byte("b"))))
	f.Add(string(encodeReply("id", nil)))
	f.Add(string(encodeFailure("id", &RemoteError{})))
	f.Add("Q\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff")
	f.Fuzz(func(t *testing.T, s string) {
		if q, err := decodeRequest(s); err == nil {
			again, err := decodeRequest(string(encodeRequest(q.id, q.method, q.timeout, q.body)))
			require.NoError(t, err)
			require.Equal(t, q, again)
		}
		if r, err := decodeReply(s); err == nil && r.err == nil {
			again, err := decodeReply(string(encodeReply(r.id, r.body)))
			require.NoError(t, err)
			require.Equal(t, r, again)
		}
	})
}
