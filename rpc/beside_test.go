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

	"github.com/luatomic/luatomic/internal/lab"
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
	_, err := lab.Echo.Call(t.Context(), bus, strings.Repeat("secret", 2<<10))
	require.ErrorIs(t, err, lua.ErrNotExecuted)
	require.ErrorContains(t, err, "unknown command 'set'")
	require.NotContains(t, err.Error(), "secret")
}

// A body goes out with the script that announces it, and comes with one more round trip.
func TestALargeBodyGoesOutWithItsScript(t *testing.T) {
	t.Parallel()
	name := luatomictest.Namespace(t)
	lab.Serving(t, lab.Echo, luatomictest.Client(t), name, nil, lab.Upper)
	c := luatomictest.Client(t)
	caller := lab.OpenBus(t, c, name, &rpc.Options{Lease: time.Hour}) // no heartbeat meanwhile
	_, err := lab.Echo.Call(t.Context(), caller, "warm")
	require.NoError(t, err)
	sent := make(chan []string, 100)
	c.AddHook(&besideCommands{seen: sent})
	_, err = lab.Echo.Call(t.Context(), caller, strings.Repeat("x", 60_000))
	require.NoError(t, err)
	require.Equal(t, []string{"set", "evalsha"}, <-sent)
	require.Equal(t, []string{"get"}, <-sent)
}

// besideCommands reports the names of the commands of each round trip that has a plain GET or SET.
type besideCommands struct {
	lab.RoundTrips
	seen chan<- []string
}

func (h *besideCommands) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.report(cmd)
		return next(ctx, cmd)
	}
}

func (h *besideCommands) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		h.report(cmds...)
		return next(ctx, cmds)
	}
}

func (h *besideCommands) report(cmds ...redis.Cmder) {
	var names []string
	for _, cmd := range cmds {
		names = append(names, cmd.Name())
	}
	if slices.Contains(names, "get") || slices.Contains(names, "set") {
		h.seen <- names
	}
}

// Bodies that are read while others are on their way share the next round trip.
func TestBodiesThatAreReadTogetherShareRoundTrips(t *testing.T) {
	t.Parallel()
	name, c := luatomictest.Namespace(t), luatomictest.Client(t)
	shared := make(chan struct{})
	c.AddHook(&untilShared{shared: shared})
	lab.Serving(t, lab.Echo, c, name, nil, lab.Upper)
	caller := lab.OpenBus(t, luatomictest.Client(t), name, &rpc.Options{Timeout: 30 * time.Second})
	var calls sync.WaitGroup
	for range 40 {
		calls.Go(func() {
			out, err := lab.Echo.Call(t.Context(), caller, strings.Repeat("x", 10_000))
			require.NoError(t, err)
			require.Len(t, out, 10_000)
		})
	}
	lab.Soon(t, 20*time.Second, "a round trip with several GETs", shared)
	calls.Wait()
}

// untilShared holds each plain GET back, so that others wait, until several go out together.
type untilShared struct {
	lab.RoundTrips
	shared chan struct{}
	once   sync.Once
}

func (h *untilShared) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "get" {
			select {
			case <-h.shared:
			case <-time.After(300 * time.Millisecond): // the next round trip takes all that wait by now
			}
		}
		return next(ctx, cmd)
	}
}

func (h *untilShared) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if len(cmds) > 1 && cmds[0].Name() == "get" && cmds[1].Name() == "get" {
			h.once.Do(func() { close(h.shared) })
		}
		return next(ctx, cmds)
	}
}

// Where the server refuses a body and not the script that announces it, the caller is told why, and nothing runs.
func TestABodyThatTheServerRefuses(t *testing.T) {
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
		says         string
		ran          int64
	}{
		"of a request": {admin, few, 10_000, "store a body: NOPERM", 0},
		"of a reply":   {few, admin, 1, "its reply cannot be read, the handler has run: its body is lost", 1},
	} {
		ran.Store(0)
		node, err := rpc.NewBus(c.node, "bus", nil)
		require.NoError(t, err)
		require.NoError(t, lab.Echo.Serve(node, handler))
		stop := lab.RunBus(t, node)
		require.NoError(t, node.Ready(ctx))
		_, err = lab.Echo.Call(ctx, lab.OpenBus(t, c.caller, "bus", nil), strings.Repeat("x", c.body))
		require.ErrorContains(t, err, c.says, what)
		require.Equal(t, c.ran == 0, errors.Is(err, lua.ErrNotExecuted), what)
		require.Equal(t, c.ran, ran.Load(), what)
		stop()
	}
}
