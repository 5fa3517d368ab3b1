package rpc_test

import (
	"bytes"
	"context"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

// moody fails where it is set to.
type moody struct {
	marshal, unmarshal error
	panics             bool
}

func (m *moody) Marshal(v any) ([]byte, error) {
	if m.panics {
		panic("SECRET")
	}
	if m.marshal != nil {
		return nil, m.marshal
	}
	return json.Marshal(v)
}

func (m *moody) Unmarshal(data []byte, v any) error {
	if m.unmarshal != nil {
		return m.unmarshal
	}
	return json.Unmarshal(data, v)
}

// A codec that fails, on either side and in either direction, is an error that says so.
func TestRPCCodecThatFails(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	failed := errors.New("moody")
	var runs atomic.Int64
	count := func(context.Context, string) (string, error) {
		runs.Add(1)
		return "x", nil
	}
	methods := map[string]*moody{"sound": {}, "in": {unmarshal: failed}, "out": {marshal: failed},
		"panics": {panics: true}}
	for m, codec := range methods {
		lab.Serving(t, rpc.NewMethod[string, string](m), c, name, &rpc.Options{Codec: codec}, count)
	}
	call := func(method string, codec *moody) error {
		b := lab.OpenBus(t, c, name, &rpc.Options{Codec: codec})
		_, err := rpc.NewMethod[string, string](method).Call(ctx, b, "x", nil)
		return err
	}
	require.NoError(t, call("sound", &moody{}))
	require.ErrorIs(t, call("sound", &moody{marshal: failed}), failed)
	require.Equal(t, int64(1), runs.Load(), "a request that cannot be written is not sent")
	err := call("sound", &moody{unmarshal: failed})
	require.ErrorIs(t, err, failed)
	require.ErrorContains(t, err, "the result is not a string")
	for method, code := range map[string]string{"in": rpc.CodeBadRequest, "out": rpc.CodeError,
		"panics": rpc.CodeInternal} {
		var remote *rpc.RemoteError
		require.ErrorAs(t, call(method, &moody{}), &remote, method)
		require.Equal(t, code, remote.Code, method)
		require.NotContains(t, remote.Message, "SECRET")
	}
}

// JSON would change a string that is not UTF-8: neither a request nor a result arrives as another one.
func TestStringsThatJSONWouldChangeAreRefused(t *testing.T) {
	t.Parallel()
	var runs atomic.Int64
	b := lab.Serving(t, lab.Echo, luatomictest.Client(t), luatomictest.Namespace(t),
		&rpc.Options{Lease: 15 * time.Second}, func(context.Context, string) (string, error) {
			runs.Add(1)
			return "Jos\xe9", nil
		})
	_, err := lab.Echo.Call(t.Context(), b, "Jos\xe9", nil)
	require.ErrorContains(t, err, "the request cannot be encoded: a string in it is not UTF-8")
	require.Zero(t, runs.Load())
	_, err = lab.Echo.Call(t.Context(), b, "x", nil)
	var remote *rpc.RemoteError
	require.ErrorAs(t, err, &remote)
	require.Equal(t, rpc.CodeError, remote.Code)
	require.Contains(t, remote.Message, "the result cannot be encoded: a string in it is not UTF-8")
}

// A time-out above what a request can ask for is cut to that: a node would refuse the
// frame, and the caller wait.
func TestLongestTimeout(t *testing.T) {
	t.Parallel()
	b := lab.Serving(t, lab.Echo, luatomictest.Client(t), luatomictest.Namespace(t), &rpc.Options{Timeout: 1 << 62,
		Lease: 1 << 62}, lab.Upper)
	got := make(chan string, 1)
	go func() {
		out, err := lab.Echo.Call(context.Background(), b, "x", nil)
		got <- fmt.Sprint(out, err)
	}()
	select {
	case out := <-got:
		require.Equal(t, "X<nil>", out)
	case <-time.After(20 * time.Second):
		require.Fail(t, "no answer", "%+v", b.Stats())
	}
}

type gobCodec struct{}

func (gobCodec) Marshal(v any) ([]byte, error) {
	var buf bytes.Buffer
	err := gob.NewEncoder(&buf).Encode(v)
	return buf.Bytes(), err
}

func (gobCodec) Unmarshal(data []byte, v any) error {
	return gob.NewDecoder(bytes.NewReader(data)).Decode(v)
}

// key is a key for signing that is long enough.
func key(name string) []byte { return []byte(name + strings.Repeat("-", 32)) }

// A key that can be guessed is refused before anything is sent.
func TestShortKeysAreRefused(t *testing.T) {
	t.Parallel()
	_, err := rpc.New(new(redis.Client), "b", &rpc.Options{Keys: [][]byte{key("a"), []byte("password")}})
	require.ErrorContains(t, err, "key 1 has 8 bytes, at least 32")
}

// Another codec, and keys: a bus without the key gets nothing done.
func TestRPCCodecAndKeys(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	opts := &rpc.Options{Codec: gobCodec{}, Lease: time.Minute, Keys: [][]byte{key("new"), key("old")}}
	node := lab.Serving(t, lab.Echo, c, name, opts, lab.Upper)
	serveCount(t, node, 100_000)
	luatomictest.Eventually(t, 20*time.Second, "the second method is announced", func() bool {
		return c.ZCard(ctx, "rpc:{"+name+"}:methods").Val() == 2
	})
	caller := lab.OpenBus(t, c, name, &rpc.Options{Codec: gobCodec{}, Keys: [][]byte{key("old"), key("new")}})
	out, err := lab.Echo.Call(ctx, caller, "x", nil)
	require.NoError(t, err)
	require.Equal(t, "X", out)
	n := 0
	for p, err := range lab.Echo.Gather(ctx, caller, strings.Repeat("x", 100_000)) {
		require.NoError(t, err)
		require.Len(t, p.Result, 100_000)
		n++
	}
	require.Equal(t, 1, n)
	for part, err := range count.Call(ctx, caller, 5) {
		require.NoError(t, err)
		require.Len(t, part, 100_002)
	}
	callRefused(t, c, name, node, lab.OpenBus(t, c, name, &rpc.Options{Codec: gobCodec{}, Timeout: time.Minute}))
}
