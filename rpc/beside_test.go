package rpc_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

// A server that does not know a command quotes its arguments, and a large body is one of SET.
func TestABodyThatTheServerQuotesIsNotShown(t *testing.T) {
	t.Parallel()
	client := luatomictest.StartServer(t, "--rename-command", "SET", "").Client()
	require.ErrorContains(t, client.Set(t.Context(), "k", "secret", 0).Err(), "secret", "by the plain command")
	bus := lab.Serving(t, lab.Echo, client, "bus", nil, lab.Upper)
	_, err := lab.Echo.Call(t.Context(), bus, strings.Repeat("secret", 2<<10), nil)
	require.ErrorIs(t, err, lua.ErrNotExecuted)
	require.ErrorContains(t, err, "unknown command 'set'")
	require.NotContains(t, err.Error(), "secret")
	for _, err := range lab.Echo.Gather(t.Context(), bus, strings.Repeat("secret", 2<<10)) {
		require.ErrorIs(t, err, lua.ErrNotExecuted)
		require.ErrorContains(t, err, "unknown command 'set'")
		require.NotContains(t, err.Error(), "secret")
	}
}

// A body goes out with the script that announces it, and comes with one more round trip.
func TestALargeBodyGoesOutWithItsScript(t *testing.T) {
	t.Parallel()
	name := luatomictest.Namespace(t)
	lab.Serving(t, lab.Echo, luatomictest.Client(t), name, nil, lab.Upper)
	c := luatomictest.Client(t)
	caller := lab.OpenBus(t, c, name, &rpc.Options{Lease: time.Hour}) // no heartbeat meanwhile
	_, err := lab.Echo.Call(t.Context(), caller, "warm", nil)
	require.NoError(t, err)
	sent := make(chan []string, 100)
	c.AddHook(lab.Before(func(cmds ...redis.Cmder) {
		if names := lab.Names(cmds); slices.Contains(names, "get") || slices.Contains(names, "set") {
			sent <- names
		}
	}))
	_, err = lab.Echo.Call(t.Context(), caller, strings.Repeat("x", 60_000), nil)
	require.NoError(t, err)
	require.Equal(t, []string{"set", "evalsha"}, <-sent)
	require.Equal(t, []string{"get"}, <-sent)
}

// A gather stores its body once for all nodes, with the list of them, and lets it be removed at its end.
func TestAGatherStoresItsBodyOnce(t *testing.T) {
	t.Parallel()
	name, c := luatomictest.Namespace(t), luatomictest.Client(t)
	for range 3 {
		lab.Serving(t, lab.Echo, luatomictest.Client(t), name, nil, lab.Upper)
	}
	caller := lab.OpenBus(t, c, name, &rpc.Options{Timeout: time.Minute, Lease: quick.Lease})
	require.NoError(t, caller.Ready(t.Context()))
	var stored atomic.Int64
	c.AddHook(lab.Before(func(cmds ...redis.Cmder) {
		for _, cmd := range lab.Names(cmds) {
			if cmd == "set" {
				stored.Add(1)
			}
		}
	}))
	body, answers := strings.Repeat("x", 60_000), 0
	for part, err := range lab.Echo.Gather(t.Context(), caller, body) {
		require.NoError(t, err)
		require.Equal(t, strings.ToUpper(body), part.Result)
		answers++
	}
	require.Equal(t, 3, answers)
	require.EqualValues(t, 1, stored.Load())
	luatomictest.Eventually(t, 20*time.Second, "no body is left", func() bool {
		return len(lab.Must(c.Keys(t.Context(), "rpc:{"+name+"}:b:*").Result())) == 0
	})
}

// Bodies that are read while others are on their way share the next round trip.
func TestBodiesThatAreReadTogetherShareRoundTrips(t *testing.T) {
	t.Parallel()
	name, c := luatomictest.Namespace(t), luatomictest.Client(t)
	shared := make(chan struct{})
	share := sync.OnceFunc(func() { close(shared) })
	c.AddHook(lab.Before(func(cmds ...redis.Cmder) {
		switch {
		case cmds[0].Name() != "get":
		case len(cmds) > 1:
			share()
		default:
			select {
			case <-shared:
			case <-time.After(300 * time.Millisecond): // meanwhile others wait, and go out together
			}
		}
	}))
	lab.Serving(t, lab.Echo, c, name, nil, lab.Upper)
	caller := lab.OpenBus(t, luatomictest.Client(t), name, &rpc.Options{Timeout: 30 * time.Second})
	var calls sync.WaitGroup
	for range 40 {
		calls.Go(func() {
			out, err := lab.Echo.Call(t.Context(), caller, strings.Repeat("x", 10_000), nil)
			require.NoError(t, err)
			require.Len(t, out, 10_000)
		})
	}
	lab.Soon(t, 20*time.Second, "a round trip with several GETs", shared)
	calls.Wait()
}

// The server can refuse a body and run the script that announces it. Where the body is a request's, the call returns
// the server's error, and no handler runs. Where it is a reply's, the call returns that the reply cannot be read.
func TestABodyThatTheServerRefuses(t *testing.T) {
	lab.Long(t)
	t.Parallel()
	server := luatomictest.StartServer(t)
	ctx, admin := t.Context(), server.Client()
	// All but the bodies, rpc:{bus}:b:ID, may be written.
	require.NoError(t, admin.Do(ctx, "acl", "setuser", "few", "on", ">few", "+@all", "&*", "%R~*",
		"~rpc:{bus}:[^b]*").Err())
	few := server.Client(func(o *redis.Options) { o.Username, o.Password = "few", "few" })
	var ran atomic.Int64
	handler := func(_ context.Context, text string) (string, error) {
		ran.Add(1)
		return strings.Repeat("x", 10_000), nil
	}
	for what, c := range map[string]struct {
		node, caller redis.UniversalClient
		body         int
		key          string
		says         string
		outcome      error
		ran          int64
	}{
		"of a request":            {admin, few, 10_000, "", "store a body: NOPERM", lua.ErrNotExecuted, 0},
		"of a request with a key": {admin, few, 10_000, "k", "store a body: NOPERM", lua.ErrOutcomeUnknown, 0},
		"of a reply":              {few, admin, 1, "", "the handler has run: its body is lost", rpc.ErrUnreadable, 1},
	} {
		ran.Store(0)
		reported := make(chan error, 1)
		node, err := rpc.New(c.node, "bus", &rpc.Options{OnError: func(err error) {
			select {
			case reported <- err:
			default:
			}
		}})
		require.NoError(t, err)
		require.NoError(t, lab.Echo.Serve(node, handler, nil))
		stop := lab.RunBus(t, node)
		require.NoError(t, node.Ready(ctx))
		caller := lab.OpenBus(t, c.caller, "bus", nil)
		_, err = lab.Echo.Call(ctx, caller, strings.Repeat("x", c.body), &rpc.CallOptions{Key: c.key})
		require.ErrorContains(t, err, c.says, what)
		for _, outcome := range []error{lua.ErrNotExecuted, lua.ErrOutcomeUnknown, rpc.ErrUnreadable} {
			require.Equal(t, outcome == c.outcome, errors.Is(err, outcome), "%s: %v", what, err)
		}
		require.Equal(t, c.ran, ran.Load(), what)
		if c.ran == 1 {
			err := lab.Soon(t, 20*time.Second, "the node's error", reported)
			require.ErrorContains(t, err, "store a body: NOPERM")
			require.NotErrorIs(t, err, lua.ErrNotExecuted, "the script has run")
		}
		stop()
	}
}

// A large body travels by itself, so that what is left of a frame is small enough to be published: no request and no
// reply needs a notice that it is stored.
func TestTheLargestFrameIsPublished(t *testing.T) {
	t.Parallel()
	ctx, client, longest := t.Context(), luatomictest.Client(t), strings.Repeat("n", 128)
	name := luatomictest.Namespace(t)
	m := rpc.NewMethod[string, string](longest)
	headers := map[string]string{"header": strings.Repeat("h", 16<<10-len("header")-8)}
	caller := lab.Serving(t, m, client, name, nil, func(ctx context.Context, in string) (string, error) {
		rpc.ReplyHeader(ctx, "header", headers["header"])
		if in == "" {
			return "", &rpc.RemoteError{Code: longest, Message: strings.Repeat("m", 4<<10),
				Details: strings.Repeat("d", rpc.MaxDetails)}
		}
		return in, nil
	})
	published := client.PSubscribe(ctx, "rpc:{"+name+"}:*")
	defer published.Close()
	require.IsType(t, &redis.Subscription{}, lab.Must(published.Receive(ctx)))

	body := strings.Repeat("x", rpc.BesideMin-1-len(`""`))
	out, err := m.Call(ctx, caller, body, &rpc.CallOptions{Headers: headers, Key: longest})
	require.NoError(t, err)
	require.Equal(t, body, out)
	var refused *rpc.RemoteError
	_, err = m.Call(ctx, caller, "", &rpc.CallOptions{Headers: headers})
	require.ErrorAs(t, err, &refused)
	require.Len(t, refused.Details, rpc.MaxDetails)
	for large := 0; large < 4; { // two requests, two replies
		message, err := published.ReceiveMessage(ctx)
		require.NoError(t, err)
		require.LessOrEqual(t, len(message.Payload), rpc.InlineMax)
		if len(message.Payload) > len(headers["header"]) {
			large++
		}
	}
}
