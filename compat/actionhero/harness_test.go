package actionhero_test

import (
	"context"
	"net"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/actionhero"
)

// runNode runs the node until the test ends, and returns when it is subscribed.
func runNode(t testing.TB, n *actionhero.Node) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		select {
		case err := <-done:
			require.ErrorIs(t, err, context.Canceled)
		case <-time.After(20 * time.Second):
			t.Error("Run does not return")
		}
	})
	ready, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	require.NoError(t, n.Ready(ready))
}

func splitAddr(t testing.TB, addr string) (host, port string) {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	return host, port
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// pattern returns a regular expression for a text in which T is a time.
func pattern(text string) string {
	return strings.ReplaceAll(regexp.QuoteMeta(text), `:T\}`, `:\d{13}\}`)
}
