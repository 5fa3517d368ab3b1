package lab

import (
	"cmp"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/rpc"
)

var Echo = rpc.NewMethod[string, string]("echo")

// NewBus returns a bus that the test runs itself. Without a lease it has one that outlasts a pause of the machine.
func NewBus(t testing.TB, client redis.UniversalClient, name string, opts *rpc.Options) *rpc.Bus {
	t.Helper()
	var own rpc.Options
	if opts != nil {
		own = *opts
	}
	own.Lease = cmp.Or(own.Lease, 15*time.Second)
	b, err := rpc.New(client, name, &own)
	require.NoError(t, err)
	return b
}

// OpenBus runs a bus until the test ends.
func OpenBus(t testing.TB, client redis.UniversalClient, name string, opts *rpc.Options) *rpc.Bus {
	t.Helper()
	b, err := rpc.New(client, name, opts)
	require.NoError(t, err)
	RunBus(t, b)
	return b
}

func RunBus(t testing.TB, b *rpc.Bus) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = b.Run(ctx)
	}()
	stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	return stop
}

// Serving runs a NewBus that serves the method, and is announced, until the test ends.
func Serving[Req, Res any](
	t testing.TB, m rpc.Method[Req, Res], client redis.UniversalClient, name string, opts *rpc.Options,
	h func(context.Context, Req) (Res, error),
) *rpc.Bus {
	t.Helper()
	b := NewBus(t, client, name, opts)
	require.NoError(t, m.Serve(b, h, nil))
	RunBus(t, b)
	require.NoError(t, b.Ready(t.Context()))
	return b
}

func Upper(_ context.Context, s string) (string, error) { return strings.ToUpper(s), nil }
