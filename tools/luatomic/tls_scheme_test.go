package main

import (
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/luatomictest"
)

// A server without TLS behind rediss://: the cure is not the scheme that the URL has.
func TestTLSToAPlainServer(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	url := strings.Replace(server.URL(), "redis://", "rediss://", 1)
	c := (&env{t: t, url: url, extra: []string{inHaste}}).run("stats", "q").exits(exitFailed)
	require.Contains(t, c.stderr.String(), "write redis:// ")
	require.NotContains(t, c.stderr.String(), "wants TLS")
}

// A server that speaks TLS alone closes a connection without it, and says nothing.
func TestPlainTextToATLSServer(t *testing.T) {
	t.Parallel()
	server, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Close() })
	go func() {
		for c, err := server.Accept(); err == nil; c, err = server.Accept() {
			_, _ = c.Read(make([]byte, 1000))
			_ = c.Close()
		}
	}()
	c := (&env{t: t, url: "redis://" + server.Addr().String()}).run("stats", "q").exits(exitFailed)
	require.Contains(t, c.stderr.String(), "EOF; check that it is a Redis server and whether it wants TLS (rediss://)")
}
