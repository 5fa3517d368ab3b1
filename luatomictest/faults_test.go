package luatomictest_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/luatomic/luatomic/luatomictest"
	"github.com/stretchr/testify/require"
)

// TestLossyProxyChangesNoByte compares the bytes of a server with the bytes behind the proxy, for every type of the
// protocol.
func TestLossyProxyChangesNoByte(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t, "--enable-debug-command", "yes")
	proxy := luatomictest.NewLossyProxy(t, server.URL())
	for _, hello := range []string{"HELLO 2", "HELLO 3"} {
		requests := []string{hello}
		for _, kind := range []string{
			"string", "integer", "double", "null", "array", "set", "map", "attrib", "push", "verbatim", "true",
			"false", "bignum",
		} {
			requests = append(requests, "DEBUG PROTOCOL "+kind)
		}
		requests = append(requests, "NOSUCH", "SUBSCRIBE a b", "PING", "UNSUBSCRIBE", "ECHO last")
		before := proxy.Executed(nil)
		require.Equal(t, answers(t, server.Addr(), requests), answers(t, proxy.Addr(), requests))
		require.Equal(t, len(requests), proxy.Executed(nil)-before, "every request found its reply")
	}
}

// answers sends inline requests in one write and returns all replies up to that of the last one, "ECHO last".
func answers(t *testing.T, addr string, requests []string) string {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	require.NoError(t, conn.SetDeadline(time.Now().Add(30*time.Second)))
	_, err = io.WriteString(conn, strings.Join(requests, "\r\n")+"\r\n")
	require.NoError(t, err)
	var got strings.Builder
	for in := bufio.NewReader(conn); !strings.HasSuffix(got.String(), "$4\r\nlast\r\n"); {
		line, err := in.ReadString('\n')
		require.NoError(t, err, got.String())
		got.WriteString(line)
	}
	return withoutID(got.String())
}

// withoutID removes the connection id from the reply of HELLO, the only difference between two connections.
func withoutID(reply string) string {
	before, after, ok := strings.Cut(reply, "$2\r\nid\r\n:")
	if !ok {
		return reply
	}
	_, after, _ = strings.Cut(after, "\r\n")
	return before + after
}

const childVariable = "LUATOMICTEST_CHILD"

// TestServerDiesWithTheTestProcess kills a test process that has a server, so that its own cleanup cannot run.
func TestServerDiesWithTheTestProcess(t *testing.T) {
	if os.Getenv(childVariable) != "" {
		fmt.Printf("server at %s\n", luatomictest.StartServer(t).Addr())
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	t.Parallel()
	child := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	child.Env = append(os.Environ(), childVariable+"=1")
	stdin, err := child.StdinPipe()
	require.NoError(t, err)
	defer func() { _ = stdin.Close() }()
	stdout, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	var addr string
	for lines := bufio.NewScanner(stdout); addr == "" && lines.Scan(); {
		_, addr, _ = strings.Cut(lines.Text(), "server at ")
	}
	require.NotEmpty(t, addr)
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	require.NoError(t, conn.Close())

	require.NoError(t, child.Process.Kill())
	_ = child.Wait()
	luatomictest.Eventually(t, 30*time.Second, "the server has ended", func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
}
