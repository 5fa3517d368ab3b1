package actionhero_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/actionhero"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
)

// Cast runs the method on every node and returns before any of them answers.
func TestCastWaitsForNoResponse(t *testing.T) {
	t.Parallel()
	for _, era := range []actionhero.Era{actionhero.Callback, actionhero.Promise} {
		client := luatomictest.Client(t)
		o := actionhero.Options{Channel: luatomictest.Namespace(t), ServerToken: "change-me", Era: era,
			Methods: map[string]int{"api.note": 1}}
		caller := actionhero.NewNode(client, &o)
		require.ErrorIs(t, caller.Cast(t.Context(), "api.note", []any{0}, ""), actionhero.ErrNoResponders)
		require.ErrorIs(t, caller.Cast(t.Context(), "note", []any{0}, ""), actionhero.ErrBadName)

		ran, release := make(chan string, 2), make(chan bool)
		for range 2 {
			o.ServerID = ""
			n := actionhero.NewNode(client, &o)
			require.NoError(t, n.Handle("api.note", func(_ context.Context, r *actionhero.Request) (any, error) {
				ran <- string(r.Args[0])
				<-release
				return nil, nil
			}))
			ctx, cancel := context.WithCancel(context.Background())
			ended := make(chan error, 1)
			go func() { ended <- n.Run(ctx) }()
			t.Cleanup(func() {
				cancel()
				<-ended
			})
			require.NoError(t, n.Ready(t.Context()))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		require.NoError(t, caller.Cast(ctx, "api.note", []any{7}, ""))
		cancel()
		require.Equal(t, "7", <-ran)
		require.Equal(t, "7", <-ran)
		close(release)
	}
}

// A call that waits for no response ends with its context, even while the server is silent.
func TestMessagesEndWithTheirContext(t *testing.T) {
	t.Parallel()
	proxy, client := through(t)
	n := newNode(t, client, luatomictest.Namespace(t), nil)
	proxy.Blackhole(true)
	defer proxy.Blackhole(false)
	for what, send := range map[string]func(context.Context) error{
		"Cast":    func(ctx context.Context) error { return n.Cast(ctx, "api.x", nil, "") },
		"Publish": func(ctx context.Context) error { return n.Publish(ctx, "mine", nil) },
		"Chat": func(ctx context.Context) error {
			return n.Chat(ctx, actionhero.ChatMessage{Room: "r", Message: "m"})
		},
	} {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, errors.New("its own end"))
		defer cancel()
		require.ErrorContains(t, send(ctx), "its own end", what)
	}
}

// A message whose caller has left is not kept: a server that hangs would collect them.
func TestAMessageWithoutItsCallerIsForgotten(t *testing.T) {
	t.Parallel()
	proxy := luatomictest.NewLossyProxy(t, luatomictest.URL(t))
	opts, err := redis.ParseURL(proxy.URL())
	require.NoError(t, err)
	opts.ReadTimeout = -1
	client := redis.NewClient(opts)
	t.Cleanup(func() { _ = client.Close() })
	n := actionhero.NewNode(client, &actionhero.Options{Channel: luatomictest.Namespace(t)})
	require.NoError(t, n.Publish(t.Context(), "x", nil))
	luatomictest.Eventually(t, 20*time.Second, "the goroutine of the first ends", func() bool {
		return actionhero.RoundTrips(n) == 0
	})
	proxy.Blackhole(true)
	defer proxy.Blackhole(false)
	ctx, cancel := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	for range 10 {
		callers.Go(func() { _ = n.Publish(ctx, "x", nil) })
	}
	luatomictest.Eventually(t, 20*time.Second, "all but two wait", func() bool { return actionhero.Waiting(n) == 8 })
	cancel()
	callers.Wait()
	require.Zero(t, actionhero.Waiting(n))
}

// unwritable panics when it is encoded.
type unwritable struct{}

func (unwritable) MarshalJSON() ([]byte, error) { panic("of unwritable") }

// A result that panics when it is encoded is a failure of its handler, and does not end the process.
func TestAResultThatPanicsIsAFailure(t *testing.T) {
	t.Parallel()
	c, ch := luatomictest.Client(t), luatomictest.Namespace(t)
	reported := make(chan error, 10)
	n := newNode(t, c, ch, &actionhero.Options{OnError: func(err error) { reported <- err }})
	require.NoError(t, n.Handle("api.x", func(context.Context, *actionhero.Request) (any, error) {
		return unwritable{}, nil
	}))
	require.NoError(t, newNode(t, c, ch, nil).Cast(t.Context(), "api.x", nil, ""))
	select {
	case err := <-reported:
		require.ErrorContains(t, err, "panic: of unwritable")
		require.ErrorContains(t, err, "unwritable.MarshalJSON", "the stack")
	case <-time.After(20 * time.Second):
		t.Fatal("it is not reported")
	}
	require.Equal(t, int64(1), n.Stats().Failed)
}

// A panic of a receiver is reported, and ends neither the process nor the subscription.
func TestAReceiverThatPanicsIsReported(t *testing.T) {
	t.Parallel()
	reported, received := make(chan error, 10), make(chan actionhero.Message, 10)
	n := actionhero.NewNode(luatomictest.Client(t), &actionhero.Options{
		Channel: luatomictest.Namespace(t), OnError: func(err error) { reported <- err },
	})
	require.NoError(t, n.OnMessage("bad", func(actionhero.Message) { panic("of the receiver") }))
	require.NoError(t, n.OnMessage("good", func(m actionhero.Message) { received <- m }))
	runNode(t, n)
	require.NoError(t, n.Publish(t.Context(), "bad", nil))
	require.NoError(t, n.Publish(t.Context(), "good", nil))
	err := lab.Soon(t, 20*time.Second, "the panic", reported)
	require.ErrorContains(t, err, `message of type "bad": panic: of the receiver`)
	require.Equal(t, "good", lab.Soon(t, 20*time.Second, "the next message", received).Type)
}

// A handler that ends its goroutine, as require does in a test, has failed: it is reported, and its caller gets the
// error.
func TestAHandlerThatEndsItsGoroutineIsAFailure(t *testing.T) {
	t.Parallel()
	c, ch := luatomictest.Client(t), luatomictest.Namespace(t)
	reported := make(chan error, 10)
	n := newNode(t, c, ch, &actionhero.Options{Era: actionhero.Callback,
		OnError: func(err error) { reported <- err }})
	require.NoError(t, n.Handle("api.x", func(context.Context, *actionhero.Request) (any, error) {
		runtime.Goexit()
		return "never", nil
	}))
	caller := newNode(t, c, ch, &actionhero.Options{Era: actionhero.Callback, Methods: map[string]int{"api.x": 0},
		Timeout: 20 * time.Second})
	for range 2 {
		_, err := caller.DoCluster(t.Context(), "api.x", nil, "")
		require.ErrorIs(t, err, actionhero.ErrRemote, "as for a callback with an error")
		require.ErrorContains(t, <-reported, "api.x: the handler ended its goroutine")
	}
	require.Equal(t, int64(2), n.Stats().Failed)
}
