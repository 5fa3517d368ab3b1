package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

func TestMain(m *testing.M) { luatomictest.Main(m) }

// book keeps the lines of a log.
type book struct {
	mu    sync.Mutex
	lines []string
}

func (b *book) log(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, fmt.Sprintf(format, args...))
}

func (b *book) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Join(b.lines, "\n")
}

// serve runs a node until stop is called.
func serve(t *testing.T, client redis.UniversalClient, name string, s *stock, lines *book) (stop func()) {
	t.Helper()
	ctx, interrupt := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, client, name, s, &tracer{log: lines.log}) }()
	stop = sync.OnceFunc(func() {
		interrupt()
		require.NoError(t, <-ended, "Ctrl-C is no failure")
	})
	t.Cleanup(stop)
	return stop
}

// served waits until a node answers.
func served(t *testing.T, ctx context.Context, bus *rpc.Bus) {
	t.Helper()
	luatomictest.Eventually(t, 10*time.Second, "a node serves", func() bool {
		_, err := left.Call(ctx, bus, "apple", nil)
		return err == nil
	})
}

func TestCallsReachTheServiceAndAreTraced(t *testing.T) {
	t.Parallel()
	client, name := luatomictest.Client(t), luatomictest.Namespace(t)
	var atNode, atClient book
	stop := serve(t, client, name, &stock{pieces: map[string]int{"apple": 10}}, &atNode)
	err := dial(t.Context(), client, name, &tracer{log: atClient.log},
		func(ctx context.Context, bus *rpc.Bus) error {
			served(t, ctx, bus)
			ctx = withTrace(ctx, "t-1")
			for range 2 { // the second call is the same order, and takes nothing
				n, err := order(ctx, bus, "order-1", Reservation{"apple", 4})
				require.NoError(t, err)
				require.Equal(t, 6, n)
			}
			n, err := left.Call(ctx, bus, "apple", nil)
			require.Equal(t, 6, n)
			return err
		})
	require.NoError(t, err)
	stop()
	require.Contains(t, atClient.text(), "trace t-1: call stock.left, answered by ")
	require.Equal(t, 1, strings.Count(atNode.text(), "trace t-1: served stock.reserve, attempt 1"), atNode.text())
	require.Equal(t, 1, strings.Count(atNode.text(), "trace t-1: served stock.left"), atNode.text())
}

func TestFailureHasACode(t *testing.T) {
	t.Parallel()
	client, name := luatomictest.Client(t), luatomictest.Namespace(t)
	serve(t, client, name, &stock{pieces: map[string]int{"pear": 1}}, new(book))
	quiet := &tracer{log: new(book).log}
	err := dial(t.Context(), client, name, quiet, func(ctx context.Context, bus *rpc.Bus) error {
		served(t, ctx, bus)
		_, err := order(ctx, bus, "order-1", Reservation{"pear", 2})
		return err
	})
	var remote *rpc.RemoteError
	require.ErrorAs(t, err, &remote)
	require.Equal(t, codeShort, remote.Code)
	require.Equal(t, "1 left", remote.Message)
}

func TestNoNodeIsKnownAtOnce(t *testing.T) {
	t.Parallel()
	client, name := luatomictest.Client(t), luatomictest.Namespace(t)
	quiet := &tracer{log: new(book).log}
	err := dial(t.Context(), client, name, quiet, func(ctx context.Context, bus *rpc.Bus) error {
		_, err := left.Call(ctx, bus, "apple", nil)
		return err
	})
	require.ErrorIs(t, err, rpc.ErrNoResponders)
}

func TestANumberThatIsNoneIsNamed(t *testing.T) {
	t.Setenv("REDIS_URL", luatomictest.URL(t))
	require.ErrorContains(t, open(t.Context(), []string{"o-1", "apple", "two"}), `"two" is no number of pieces`)
}
