package rpc_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

func TestDeadlineReachesTheHandler(t *testing.T) {
	lab.Long(t)
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	left := make(chan time.Duration, 1)
	b := lab.Serving(t, lab.Echo, c, name, nil, func(ctx context.Context, _ string) (string, error) {
		deadline, _ := ctx.Deadline()
		left <- time.Until(deadline)
		<-ctx.Done()
		return "", ctx.Err()
	})
	const wait = 5 * time.Second // a busy machine has asked the handler by then
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	_, err := lab.Echo.Call(ctx, b, "", nil)
	require.Error(t, err)
	require.LessOrEqual(t, lab.Soon(t, 20*time.Second, "the handler runs", left), wait)
	luatomictest.Eventually(t, 20*time.Second, "the record of a call that timed out expires", func() bool {
		return len(lab.Must(c.Keys(t.Context(), "rpc:{"+name+"}:r:*").Result())) == 0
	})
}

// A call that has waited for Run gives its handler what is left, and not the whole time again.
func TestTheTimeOfACallBeginsBeforeRun(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	left := make(chan time.Duration, 1)
	note := func(ctx context.Context) error {
		deadline, _ := ctx.Deadline()
		left <- time.Until(deadline)
		return nil
	}
	node := lab.Serving(t, lab.Echo, c, name, nil, func(ctx context.Context, _ string) (string, error) {
		return "", note(ctx)
	})
	parts := rpc.NewStreamMethod[string, string]("parts")
	require.NoError(t, parts.Serve(node, func(ctx context.Context, _ string, _ func(string) error) error {
		return note(ctx)
	}))
	require.NoError(t, node.Ready(t.Context()))
	for kind, call := range map[string]func(context.Context, *rpc.Bus) error{
		"call": func(ctx context.Context, b *rpc.Bus) error {
			_, err := lab.Echo.Call(ctx, b, "", nil)
			return err
		},
		"gather": func(ctx context.Context, b *rpc.Bus) (err error) {
			for _, err = range lab.Echo.Gather(ctx, b, "") {
			}
			return err
		},
		"stream": func(ctx context.Context, b *rpc.Bus) (err error) {
			for _, err = range parts.Call(ctx, b, "") {
			}
			return err
		},
	} {
		caller := lab.NewBus(t, c, name, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		over, _ := ctx.Deadline()
		begins := make(chan time.Duration, 1)
		time.AfterFunc(100*time.Millisecond, func() {
			begins <- time.Until(over)
			lab.RunBus(t, caller)
		})
		require.NoError(t, call(ctx, caller), kind)
		cancel()
		require.LessOrEqual(t, <-left, <-begins, kind)
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
	node := lab.Serving(t, lab.Echo, &twoWays{Client: c, sub: client}, name, &rpc.Options{Lease: time.Minute},
		func(ctx context.Context, s string) (string, error) {
			deadline, _ := ctx.Deadline()
			left <- time.Until(deadline)
			return s, nil
		})
	caller := lab.OpenBus(t, c, name, &rpc.Options{Timeout: 20 * time.Second})
	require.NoError(t, caller.Ready(t.Context()))
	_, err := lab.Echo.Call(t.Context(), caller, "x", nil)
	require.NoError(t, err)
	require.InDelta(t, 20*time.Second, <-left, float64(5*time.Second))
	require.Regexp(t, `^1 (20000|1\d{4}) \d+\nQ`, w.find(t, node.Node(), "1 ").Payload)

	proxy.Blackhole(true)
	called, keyed := startCall(t, lab.Echo, caller, "y"), make(chan error, 1)
	go func() {
		_, err := lab.Echo.Call(t.Context(), caller, "z", &rpc.CallOptions{Key: "order"})
		keyed <- err
	}()
	luatomictest.Eventually(t, 20*time.Second, "both are sent", func() bool {
		sent := 0
		for _, record := range lab.Must(c.Keys(t.Context(), "rpc:{"+name+"}:r:*").Result()) {
			if strings.HasPrefix(c.Get(t.Context(), record).Val(), "p") {
				sent++
			}
		}
		return sent == 2
	})
	time.Sleep(time.Second) // what must be missing
	proxy.CutAll()
	proxy.Blackhole(false)
	out := <-called
	require.NoError(t, out.err)
	require.NoError(t, <-keyed)
	one, other := <-left, <-left
	require.Less(t, min(one, other), 19100*time.Millisecond)
	require.LessOrEqual(t, max(one, other), 20*time.Second, "the record of a key stays longer than its handler has")
	require.Equal(t, int64(2), node.Stats().Fetched)
}

func TestHandlersKnowTheirCall(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	calls := make(chan rpc.CallInfo, 4)
	lab.Serving(t, lab.Echo, c, name, nil, func(ctx context.Context, s string) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		info, ok := rpc.CallFrom(ctx)
		if ok {
			calls <- info
		}
		return s, nil
	})
	caller := lab.OpenBus(t, c, name, nil)
	for range 2 {
		_, err := lab.Echo.Call(ctx, caller, "", nil)
		require.NoError(t, err)
	}
	first, second := <-calls, <-calls
	require.NotEqual(t, first.ID, second.ID)
	require.Equal(t, rpc.CallInfo{ID: first.ID, Method: "echo", Attempt: 1}, first)
	_, err := lab.Echo.Call(ctx, caller, "", &rpc.CallOptions{Key: "k"})
	require.NoError(t, err)
	require.Equal(t, rpc.CallInfo{ID: "k4:echo:kK", Method: "echo", Attempt: 1}, <-calls)
	require.NoError(t, lab.Echo.Cast(ctx, caller, ""))
	require.Equal(t, rpc.CallInfo{Method: "echo"}, <-calls)
	_, ok := rpc.CallFrom(ctx)
	require.False(t, ok)
}
