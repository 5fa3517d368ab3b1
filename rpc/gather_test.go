package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

// BenchmarkGather asks fifty nodes, one of which takes longer than all others, and
// measures what comes after its handler has returned.
func BenchmarkGather(b *testing.B) {
	c, name := luatomictest.Client(b), luatomictest.Namespace(b)
	const nodes = 50
	var returned atomic.Int64
	for i := range nodes {
		lab.Serving(b, lab.Echo, c, name, nil, func(_ context.Context, s string) (string, error) {
			if i == 0 {
				<-time.After(20 * time.Millisecond)
				returned.Store(time.Now().UnixNano())
			}
			return s, nil
		})
	}
	caller := lab.OpenBus(b, c, name, nil)
	b.Run("ping", func(b *testing.B) {
		for b.Loop() {
			lab.Fatal(b, c.Ping(b.Context()).Err())
		}
	})
	b.Run("nodes=50", func(b *testing.B) {
		var after time.Duration
		for b.Loop() {
			answers := 0
			for _, err := range lab.Echo.Gather(b.Context(), caller, "x") {
				lab.Fatal(b, err)
				answers++
			}
			after += time.Since(time.Unix(0, returned.Load()))
			if answers != nodes {
				b.Fatalf("%d answers", answers)
			}
		}
		b.ReportMetric(float64(after.Microseconds())/float64(b.N), "us-after-slowest")
	})
}

// C10 and C11: the nodes asked are fixed when the request is published; the sequence ends with
// the last of them.
func TestRPCGather(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	caller := lab.OpenBus(t, c, name, &rpc.Options{Timeout: time.Minute})
	for _, err := range lab.Echo.Gather(ctx, caller, "") {
		require.ErrorIs(t, err, rpc.ErrNoResponders)
	}
	entered, leave := make(chan struct{}, 100), make(chan struct{})
	want := make(map[string]bool)
	for i := range 5 {
		b := lab.Serving(t, lab.Echo, c, name, nil, func(_ context.Context, s string) (string, error) {
			entered <- struct{}{}
			<-leave
			if i == 0 {
				return "", errors.New("not me")
			}
			return fmt.Sprint(s, i), nil
		})
		want[b.Node()] = true
	}
	go func() {
		for range 5 {
			<-entered
		}
		// A node that comes now is not asked, and one without a subscriber is not waited for.
		late := lab.NewBus(t, c, name, nil)
		require.NoError(t, lab.Echo.Serve(late, answering("late"), nil))
		lab.RunBus(t, late)
		require.NoError(t, late.Ready(ctx))
		close(leave)
	}()
	start, failed := time.Now(), 0
	for p, err := range lab.Echo.Gather(ctx, caller, "r") {
		require.True(t, want[p.Node], "%q answers twice, or was not asked: %v", p.Node, err)
		delete(want, p.Node)
		if err != nil {
			require.ErrorContains(t, err, "not me")
			failed++
		} else {
			require.True(t, strings.HasPrefix(p.Result, "r"))
		}
	}
	require.Empty(t, want)
	require.Equal(t, 1, failed)
	require.Less(t, time.Since(start), 30*time.Second, "half of its time")

	for range lab.Echo.Gather(ctx, caller, "r") {
		break // the others are cancelled
	}
	require.Zero(t, caller.Waiting())
}

func TestRPCGatherEndsWithItsTime(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	entered, told := make(chan struct{}), make(chan struct{})
	lab.Serving(t, lab.Echo, c, name, nil, func(ctx context.Context, _ string) (string, error) {
		close(entered)
		<-ctx.Done()
		close(told)
		return "", ctx.Err()
	})
	caller := lab.OpenBus(t, c, name, &rpc.Options{Timeout: time.Minute})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-entered
		cancel()
	}()
	n := 0
	for p, err := range lab.Echo.Gather(ctx, caller, "") {
		require.Empty(t, p.Node)
		require.ErrorIs(t, err, context.Canceled)
		n++
	}
	require.Equal(t, 1, n)
	lab.Soon(t, 30*time.Second, "the handler's context ends, long before its deadline", told)
}

// A gather that ends early names the nodes that have not answered.
func TestGatherNamesWhoIsMissing(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	caller := lab.OpenBus(t, c, name, &rpc.Options{Timeout: time.Minute})
	begun, ended := make(chan struct{}), make(chan error, 1)
	quick := lab.Serving(t, lab.Echo, c, name, nil, func(context.Context, string) (string, error) {
		<-begun // a call that is given up before its handler begins has none whose end can be seen
		return "", nil
	})
	slow := lab.Serving(t, lab.Echo, c, name, nil, func(ctx context.Context, _ string) (string, error) {
		close(begun)
		<-ctx.Done()
		ended <- ctx.Err()
		return "", nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var answered []string
	var missing *rpc.MissingError
	for p, err := range lab.Echo.Gather(ctx, caller, "x") {
		if err != nil {
			require.ErrorAs(t, err, &missing)
			continue
		}
		answered = append(answered, p.Node)
		cancel()
	}
	require.Equal(t, []string{quick.Node()}, answered)
	require.NotNil(t, missing)
	require.Equal(t, []string{slow.Node()}, missing.Nodes)
	require.ErrorIs(t, missing, context.Canceled)
	require.Equal(t, "echo", missing.Method)
	require.ErrorIs(t, lab.Soon(t, 20*time.Second, "the end of its handler", ended), context.Canceled)
}

// Options.WrapCall run once around a gather: their headers reach each node, and they see why it ended early.
func TestGatherIsWrapped(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	for range 3 {
		lab.Serving(t, lab.Echo, c, name, nil, func(ctx context.Context, _ string) (string, error) {
			info, _ := rpc.CallFrom(ctx)
			return info.Headers["trace"], nil
		})
	}
	var seen []error
	var refused error
	caller := lab.OpenBus(t, c, name, &rpc.Options{Timeout: time.Minute,
		WrapCall: []func(context.Context, *rpc.Outgoing, func(context.Context) error) error{
			func(ctx context.Context, call *rpc.Outgoing, next func(context.Context) error) error {
				if refused != nil {
					return refused
				}
				call.Headers["trace"] = "of " + call.Method
				err := next(ctx)
				seen = append(seen, err)
				return err
			},
		}})
	gather := func(m rpc.Method[string, string]) (traces []string, errs []error) {
		for p, err := range m.Gather(ctx, caller, "x") {
			if err != nil {
				require.Empty(t, p.Node)
				errs = append(errs, err)
				continue
			}
			traces = append(traces, p.Result)
		}
		return traces, errs
	}
	traces, errs := gather(lab.Echo)
	require.Equal(t, []string{"of echo", "of echo", "of echo"}, traces)
	require.Empty(t, errs)
	require.Equal(t, []error{nil}, seen)
	for range lab.Echo.Gather(ctx, caller, "x") {
		break
	}
	require.Equal(t, []error{nil, nil}, seen, "to read no further is no error")
	_, errs = gather(hold)
	require.Len(t, errs, 1)
	require.ErrorIs(t, errs[0], rpc.ErrNoResponders)
	require.Equal(t, errs[0], seen[2])
	refused = errors.New("not allowed")
	_, errs = gather(lab.Echo)
	require.Equal(t, []error{refused}, errs)
}
