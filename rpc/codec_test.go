package rpc_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

// moody fails where it is told to.
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
	methods := map[string]*moody{"sound": {}, "in": {unmarshal: failed}, "out": {marshal: failed}, "panics": {panics: true}}
	for m, codec := range methods {
		lab.Serving(t, rpc.NewMethod[string, string](m), c, name, &rpc.Options{Codec: codec}, count)
	}
	call := func(method string, codec *moody) error {
		b := lab.OpenBus(t, c, name, &rpc.Options{Codec: codec})
		_, err := rpc.NewMethod[string, string](method).Call(ctx, b, "x")
		return err
	}
	require.NoError(t, call("sound", &moody{}))
	require.ErrorIs(t, call("sound", &moody{marshal: failed}), failed)
	require.Equal(t, int64(1), runs.Load(), "a request that cannot be written is not sent")
	err := call("sound", &moody{unmarshal: failed})
	require.ErrorIs(t, err, failed)
	require.ErrorContains(t, err, "the result is not a string")
	for method, code := range map[string]string{"in": rpc.CodeBadRequest, "out": rpc.CodeError, "panics": rpc.CodeInternal} {
		var remote *rpc.RemoteError
		require.ErrorAs(t, call(method, &moody{}), &remote, method)
		require.Equal(t, code, remote.Code, method)
		require.NotContains(t, remote.Message, "SECRET")
	}
}

// C9: no clock of a caller or a node is on the wire, only what is left of the time. A
// request that is fetched later has less left, by the server's clock.
func TestRPCDeadlineIsWhatIsLeft(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	w := tap(t, c, name)
	client, proxy := through(t)
	left := make(chan time.Duration, 10)
	node := lab.Serving(t, lab.Echo, &twoWays{Client: c, sub: client}, name, &rpc.Options{Lease: time.Minute}, func(ctx context.Context, s string) (string, error) {
		deadline, _ := ctx.Deadline()
		left <- time.Until(deadline)
		return s, nil
	})
	caller := lab.OpenBus(t, c, name, &rpc.Options{Timeout: 20 * time.Second})
	_, err := lab.Echo.Call(t.Context(), caller, "x")
	require.NoError(t, err)
	require.InDelta(t, 20*time.Second, <-left, float64(5*time.Second))
	require.Regexp(t, `^1 (20000|19\d\d\d)\nQ`, w.find(t, node.Node(), "1 ").Payload)

	proxy.Blackhole(true)
	called := startCall(t, lab.Echo, caller, "y")
	luatomictest.Eventually(t, 20*time.Second, "it is sent", func() bool {
		for _, record := range lab.Must(c.Keys(t.Context(), "rpc:{"+name+"}:r:*").Result()) {
			if strings.HasPrefix(c.Get(t.Context(), record).Val(), "p") {
				return true
			}
		}
		return false
	})
	time.Sleep(time.Second) // what must be missing
	proxy.CutAll()
	proxy.Blackhole(false)
	out := <-called
	require.NoError(t, out.err)
	require.Less(t, <-left, 19100*time.Millisecond)
	require.Equal(t, int64(1), node.Stats().Fetched)
}
